"""The stage: one private server, a folder, and processes of their own for everybody who is measured."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kombu
import redis

from benchmarks.scales import Scale
from celery_catchup.testing.embedded_server import EmbeddedServer

RABBITMQ = "amqp://guest:guest@127.0.0.1:5672//"
ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 60.0
"""Seconds for a process to do what it is waited for, unless the caller knows better."""
_LONGEST_TRIAL = 900.0
# Settings of somebody else's project would win over those of the benchmark's.
_FOREIGN = ("CELERY_", "CATCHUP_", "DJANGO_SETTINGS_MODULE", "PYTHONWARNINGS")


class Stage:
    """What a benchmark works with."""

    def __init__(self, scale: Scale, server: EmbeddedServer, folder: Path) -> None:
        self.scale, self.server, self.folder = scale, server, folder
        self.url = server.url()
        self.redis: Any = redis.Redis.from_url(self.url)
        self.broker = ""
        self.queue = f"benchmarks-{os.getpid()}"
        self._count = 0

    def say(self, text: str) -> None:
        """Progress, for whoever waits."""
        print(f"   {text}", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """An empty server, as every measurement wants to find it."""
        self.redis.flushall()
        self.redis.config_resetstat()
        if self.broker:
            delete_queues(self.broker, self.queue)

    @contextmanager
    def on(self, broker: str) -> Iterator[None]:
        """Let everybody use another broker than the server of the state, with queues of our own."""
        self.broker = broker
        try:
            yield
        finally:
            delete_queues(broker, self.queue)
            self.broker = ""

    def listeners(self, queue: str = "") -> int:
        """How many workers wait for messages; at their default level they do not say that they are ready.
        On RabbitMQ, those of one queue."""
        if not self.broker:
            return sum(client["cmd"] == "brpop" for client in self.redis.client_list())
        with kombu.Connection(self.broker) as connection, connection.channel() as channel:
            return int(channel.queue_declare(queue or self.queue, passive=True).consumer_count)

    def waiting(self) -> int:
        """How many messages wait for a worker."""
        if not self.broker:
            return int(self.redis.llen("celery"))
        with kombu.Connection(self.broker) as connection, connection.channel() as channel:
            return int(channel.queue_declare(self.queue, passive=True).message_count)

    def own_folder(self) -> Path:
        """An empty folder."""
        self._count += 1
        folder = self.folder / str(self._count)
        folder.mkdir()
        return folder

    def close(self) -> None:
        """Let go of the connection."""
        self.redis.close()

    # -- processes -------------------------------------------------------------------------

    def trial(self, subject: str, action: str, **spec: Any) -> dict[str, Any]:
        """Let a subject do something in a process of its own; what it measured."""
        spec = {"url": self.url, **spec}
        spec.setdefault("folder", str(self.own_folder()))
        command = [sys.executable, "-m", "benchmarks.subjects", subject, action, json.dumps(spec)]
        done = subprocess.run(
            command, cwd=ROOT, env=environment() | self._place(), capture_output=True, text=True,
            timeout=_LONGEST_TRIAL, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{subject} {action} failed:\n{done.stderr[-3000:]}")
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    def _place(self) -> dict[str, str]:
        """For `new_app` in the process of a trial."""
        return {"BENCHMARK_BROKER": self.broker, "BENCHMARK_QUEUE": self.queue}

    def settings(self, project: dict[str, Any]) -> str:
        """The settings of the benchmarks' project, for its environment."""
        place = {"broker_url": self.url}
        if self.broker:
            place = {
                "broker_url": self.broker,
                "catchup_redis_url": self.url,
                "task_default_queue": self.queue,
            }
        return json.dumps({**place, **project})

    @contextmanager
    def celery(self, *arguments: str, **project: Any) -> Iterator[Program]:
        """A Celery program of the benchmarks' project, ended when the block is."""
        folder, settings = self.own_folder(), self.settings(project)
        program = Program(
            ["celery", "-A", "benchmarks.project", *arguments], folder, BENCHMARK_SETTINGS=settings
        )
        try:
            yield program
        finally:
            program.kill()  # nobody measures this, and an orderly end takes seconds


class Program:
    """A Celery process in a session of its own; what it says is in a file."""

    def __init__(self, arguments: list[str], folder: Path, **environ: str) -> None:
        self.log = folder / "log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *arguments], cwd=folder, env=environment() | environ,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def until_it_says(self, text: str, *, patience: float = PATIENCE) -> None:
        """Wait for a text in its log."""

        def said() -> bool:
            if self.process.poll() is not None:
                raise RuntimeError(f"it ended while {text!r} was waited for:\n{self.last_words()}")
            return text in self.log.read_text(errors="replace")

        until(said, what=text, patience=patience)

    def last_words(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])

    def kill(self) -> None:
        """As a power cut would."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, 9)
        self.process.wait()

    def stop(self) -> float:
        """End it in good order; the seconds that took."""
        begun = time.perf_counter()
        self.process.terminate()
        self.process.wait(PATIENCE)
        return time.perf_counter() - begun


def until(happens: Callable[[], Any], *, what: str, patience: float = PATIENCE, every: float = 0.01) -> Any:
    """Wait for it; what it was in the end."""
    deadline = time.monotonic() + patience
    while not (found := happens()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {patience:g} s for {what}")
        time.sleep(every)
    return found


def environment() -> dict[str, str]:
    """Ours, without what would change the project."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    return kept | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def answers(broker: str) -> bool:
    """Whether a broker is there to be measured."""
    place = urlsplit(broker)
    try:
        with socket.create_connection((place.hostname, place.port), timeout=2):
            return True
    except OSError:
        return False


def delete_queues(broker: str, queue: str) -> None:
    """Leave nothing behind on a broker that is not ours."""
    with kombu.Connection(broker) as connection:
        for name in (queue, f"{queue}-first", *(f"{queue}-{number}" for number in range(5))):
            connection.default_channel.queue_delete(name)


def installed(module: str) -> bool:
    """Whether a peer is there to be measured."""
    return find_spec(module) is not None
