"""Real workers as processes, and a ledger that a test writes by itself."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from celery import Celery
from redis import Redis

from celery_catchup.model import to_rfc3339
from celery_catchup.store import Keys

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "tests.projects.claims"
NAMESPACE = "claims"
QUEUE = "celery"
SLOT = 1_770_458_400_000  # 2026-02-07T10:00:00Z
HOUR = 3_600_000


def until(condition: Callable[[], Any], *, timeout: float = 20.0, what: str = "") -> Any:
    """Wait for something that another process does."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"in vain for {timeout:g}s: {what or condition}")


class Site:
    """A broker, a ledger, and what tasks wrote."""

    def __init__(self, url: str, tmp_path: Path, *, store_url: str | None = None) -> None:
        self.url, self.store_url, self.tmp_path = url, store_url or url, tmp_path
        self.broker: Redis = Redis.from_url(url)
        self.store: Redis = Redis.from_url(self.store_url)
        self.keys = Keys(NAMESPACE)
        self.app = Celery("claims", broker=url, set_as_current=False)
        self.log = tmp_path / "log"
        self.log.touch()

    def close(self) -> None:
        self.broker.close()
        self.store.close()
        self.app.close()

    # -- the ledger --------------------------------------------------------------------------

    def record(
        self,
        task: str = "work",
        *,
        entry: str = "hourly-etl",
        hour: int = 0,
        state: str = "queued",
        kwargs: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> str:
        """Write a run into the ledger as a commit does; its id."""
        run_id = str(uuid.uuid4())
        slot = SLOT + hour * HOUR
        run = {
            "entry": entry,
            "schedule": 0,
            "slot": slot,
            "previous": slot - HOUR,
            "trigger": "catchup",
            "task": f"{PROJECT}.{task}",
            "template": self._template(task, entry, dict(kwargs or {})),
            "state": state,
            "attempt": 1,
            "sends": 1 if state == "queued" else 0,
            "created": slot,
            **fields,
        }
        self.store.hset(self.keys.ledger, run_id, json.dumps(run))
        place = self.keys.chain(entry) if state == "waiting" else self.keys.active(entry)
        self.store.zadd(place, {run_id: slot})
        return run_id

    def run(self, run_id: str) -> dict[str, Any]:
        """The run as the ledger has it."""
        stored: Any = self.store.hget(self.keys.ledger, run_id)
        return json.loads(stored)  # type: ignore[no-any-return]

    def letter(self, run_id: str) -> dict[str, Any]:
        """What is known of its failure."""
        stored: Any = self.store.hget(self.keys.letters, run_id)
        return json.loads(stored)  # type: ignore[no-any-return]

    def lease(self, run_id: str) -> float | None:
        found: Any = self.store.zscore(self.keys.leases, run_id)
        return found  # type: ignore[no-any-return]

    def states(self, *run_ids: str) -> list[str]:
        return [self.run(run_id)["state"] for run_id in run_ids]

    def ended(self, *run_ids: str, timeout: float = 20.0) -> list[str]:
        """Wait until the runs have ended; their states."""

        def all_ended() -> list[str] | None:
            states = self.states(*run_ids)
            return None if {"waiting", "queued", "running"} & set(states) else states

        found: list[str] = until(all_ended, timeout=timeout, what="the runs to end")
        return found

    def _template(self, task: str, entry: str, kwargs: dict[str, Any]) -> str:
        message = self.message(
            "@catchup:task_id@", task, kwargs=kwargs, headers=headers("@catchup:run_id@", entry)
        )
        message["properties"]["delivery_tag"] = "@catchup:delivery_tag@"
        name = f"{task}:{entry}:{json.dumps(kwargs)}"
        template = {"message": json.dumps(message), "queue": QUEUE, "db": 0}
        self.store.hset(self.keys.templates, name, json.dumps(template))
        return name

    # -- messages ----------------------------------------------------------------------------

    def send(self, run_id: str, task: str = "work", *, copies: int = 1, **options: Any) -> None:
        """Send a message of a run."""
        options = {"headers": headers(run_id), "queue": QUEUE, "task_id": run_id} | options
        with self.app.connection_for_write() as connection, self.app.amqp.Producer(connection) as producer:
            for _ in range(copies):
                self.app.send_task(f"{PROJECT}.{task}", producer=producer, retry=False, **options)

    def send_run(self, task: str = "work", *, kwargs: Mapping[str, Any] | None = None, **fields: Any) -> str:
        """Record a run and send its message."""
        run_id = self.record(task, kwargs=kwargs, **fields)
        entry = self.run(run_id)["entry"]
        self.send(run_id, task, kwargs=dict(kwargs or {}), headers=headers(run_id, entry))
        return run_id

    def message(self, run_id: str, task: str = "work", **options: Any) -> dict[str, Any]:
        """A message of a run as it stands on the broker, to be changed and pushed."""
        self.send(run_id, task, **{"queue": "scratch"} | options)
        found: Any = self.broker.rpop("scratch")
        message: dict[str, Any] = json.loads(found)
        message["properties"]["delivery_info"]["routing_key"] = QUEUE
        return message

    def push(self, message: Mapping[str, Any]) -> None:
        """Put a message on the queue as it is."""
        self.broker.lpush(QUEUE, json.dumps(message))

    # -- what happened -----------------------------------------------------------------------

    def lines(self, what: str | None = None, run_id: str | None = None) -> list[dict[str, Any]]:
        """What tasks wrote, in order."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [
            line for line in lines if what in (None, line["what"]) and run_id in (None, line.get("run_id"))
        ]

    def wait_for(self, what: str, count: int = 1, timeout: float = 20.0) -> list[dict[str, Any]]:
        """Wait until tasks have written so many lines of a kind."""
        found: list[dict[str, Any]] = until(
            lambda: lines if len(lines := self.lines(what)) >= count else None,
            timeout=timeout,
            what=f"{count} × {what!r}",
        )
        return found


def headers(run_id: Any, entry: Any = "hourly-etl") -> dict[str, Any]:
    """The headers of a run's message."""
    return {
        "catchup_run_id": run_id,
        "catchup_entry": entry,
        "scheduled_time": to_rfc3339(SLOT),
        "data_interval_start": to_rfc3339(SLOT - HOUR),
        "data_interval_end": to_rfc3339(SLOT),
        "trigger_type": "catchup",
        "is_catchup": True,
    }


class Worker:
    """A worker process, ready to work; gone at the end of the block."""

    def __init__(
        self,
        site: Site,
        *,
        pool: str = "solo",
        concurrency: int = 1,
        name: str = "w1",
        project: str = PROJECT,
        env: Mapping[str, str] | None = None,
        **conf: Any,
    ) -> None:
        self.site, self.name = site, f"{name}@localhost"
        self._output = site.tmp_path / f"{name}.log"
        self._conf = {"broker_url": site.url, "catchup_redis_url": site.store_url, **conf}
        command = f"-m celery -A {project} worker -P {pool} -c {concurrency} -n {self.name} -l INFO"
        self._command = [sys.executable, *command.split(), "--without-gossip", "--without-mingle"]
        self._env = {
            **os.environ,
            "CLAIMS_LOG": str(site.log),
            "CLAIMS_CONF": json.dumps(self._conf),
            "PYTHONPATH": str(ROOT),
            **(env or {}),
        }

    def __enter__(self) -> Worker:
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(
                self._command, cwd=ROOT, env=self._env, stdout=output, stderr=output, start_new_session=True
            )
        try:
            until(lambda: " ready." in self.output or self.process.poll() is not None, what="the worker")
            assert self.process.poll() is None, self.output
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End it and its children the hard way."""
        self.signal(signal.SIGKILL)
        self.process.wait()

    def signal(self, number: int) -> None:
        """Send a signal to it and its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def said(self, message: str) -> list[str]:
        """Log lines of ours with this message."""
        return [line for line in self.output.splitlines() if f'msg="{message}"' in line]
