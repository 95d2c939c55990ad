"""Servers as people run them: with passwords, TLS, Sentinels, as a cluster; and schedulers that use them."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import redis
from celery import Celery
from celery.schedules import crontab

from celery_catchup.beat import Scheduler
from celery_catchup.embedded import EmbeddedServerError, find_binary
from celery_catchup.testing import FakeClock
from tests.services import missing

PATIENCE = 20.0  # seconds for something that usually takes a few milliseconds
MASTER = "mymaster"


def until(happens: Callable[[], Any], *, what: str, patience: float = PATIENCE) -> Any:
    """Wait for it; what it was in the end."""
    deadline = time.monotonic() + patience
    while not (found := happens()):
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.02)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


# -- one server ----------------------------------------------------------------------------------


def binary_of(kind: str) -> Path:
    """The server of a kind: ``valkey`` as the demo has it, or ``redis`` as the system has it."""
    found = shutil.which("redis-server")
    if kind == "redis":
        return Path(found) if found else missing("redis-server", "there is none on the PATH")
    try:
        return find_binary()
    except EmbeddedServerError as error:
        missing("valkey", str(error))


class Server:
    """One process with settings of the test's own. It listens on a port, and on a socket if told so."""

    def __init__(self, folder: Path, *, kind: str = "valkey", port: int | None = None, **settings: Any) -> None:
        self.folder, self.kind, self.settings = folder, kind, settings
        self.port = free_port() if port is None else port
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def tls(self) -> bool:
        return "tls_port" in self.settings

    def start(self, *mode: str) -> None:
        """Return when it answers, be it with an error."""
        ports = {"port": 0, "tls-port": self.port} if self.tls else {"port": self.port}
        named = {name.replace("_", "-"): value for name, value in self.settings.items()}
        settings = {"bind": "127.0.0.1", "dir": self.folder, "save": "", **named, **ports}
        words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [binary_of(self.kind), *mode, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until(self._answers, what=f"a server; see {self.folder / 'log'}")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def url(self, *, db: int = 0, user: str = "", password: str = "", options: str = "") -> str:
        login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user or password else ""
        scheme = "rediss" if self.tls else "redis"
        return f"{scheme}://{login}127.0.0.1:{self.port}/{db}{'?' + options if options else ''}"

    @contextmanager
    def admin(self, **options: Any) -> Iterator[redis.Redis]:
        """A client that may do everything."""
        with redis.Redis(port=self.port, socket_timeout=5, **options) as client:
            yield client

    def everything(self) -> dict[tuple[int, bytes], bytes | None]:
        """All that is stored, to be compared."""
        found = {}
        for db in range(3):
            with self.admin(db=db) as client:
                keys: Any = client.keys("*")
                found |= {(db, key): client.dump(key) for key in keys}
        return found


@contextmanager
def a_server(folder: Path, **settings: Any) -> Iterator[Server]:
    server = Server(folder, **settings)
    try:
        server.start()
        yield server
    finally:
        server.kill()


# -- a scheduler ---------------------------------------------------------------------------------

HOURLY = {"task": "proj.etl", "schedule": crontab(minute="0")}
"""What the schedulers of these tests have to send; its policy catches up six hours at once."""


@contextmanager
def a_scheduler(url: str, clock: FakeClock, **conf: Any) -> Iterator[Scheduler]:
    """The scheduler itself, with Redis at ``url`` as broker and store, and a clock of the test's own."""
    app = Celery("proj", broker=url, set_as_current=False)
    app.conf.update(
        beat_schedule={"etl": HOURLY},
        catchup_entries={"etl": {"window": "6h", "overlap_policy": "allow"}},
        catchup_namespace="proj",
        **conf,
    )
    kind = type("Scheduler", (Scheduler,), {"clock": clock})
    scheduler = kind(app)
    try:
        yield scheduler
    finally:
        scheduler.close()
        app.close()
