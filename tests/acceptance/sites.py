"""A place where beats and workers of one project run: their server, their clock, their files."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import redis

from celery_catchup.model import Instant, Slot, run_id, to_instant
from celery_catchup.store import Keys
from tests.acceptance.messages import Message, on_redis
from tests.acceptance.nursery import Nursery
from tests.acceptance.processes import ROOT, Forked, Process, Started, celery, until

DAY = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
"""Yesterday: what beats do lies in the past, but not so far that the ledger would forget it."""
NAMESPACE = "project"
LEADING = 'msg="Leading"'
SHIFTED = "tests.projects.declared:Scheduler"
"""The scheduler under test with the clock of the site; nothing else differs."""


class Site:
    """Declares a project, starts its processes and looks at what they leave behind.

    The state and, unless told otherwise, the broker are on the server at ``url``. Nothing of
    what it reads goes through the package, except the names of keys.
    """

    def __init__(self, folder: Path, url: str, nursery: Nursery) -> None:
        self.folder, self.url, self.broker, self.nursery = folder, url, url, nursery
        self.keys = Keys(NAMESPACE)
        self.redis: redis.Redis = redis.Redis.from_url(url, decode_responses=True)
        self._binary: redis.Redis = redis.Redis.from_url(url)
        self.project: dict[str, Any] = {}
        self.offset = timedelta()
        self.processes: list[Process] = []

    # -- declaring -------------------------------------------------------------------------

    def declare(self, schedule: dict[str, Any], *, periodic: Any = (), **settings: Any) -> None:
        """What the project of the processes started from now on looks like.

        An entry that is no mapping of an entry's fields is only a schedule. Unless the settings say
        otherwise beats look five times a second, so that tests need not wait, and Celery's own
        entry, which cleans up results, is not there.
        """
        settings = {"catchup_poll_interval": "200ms", "result_expires": 0, **settings}
        entries = {
            name: entry if isinstance(entry, dict) and "schedule" in entry else {"schedule": entry}
            for name, entry in schedule.items()
        }
        self.project = {
            "schedule": {name: {"task": "tests.projects.declared.work", **e} for name, e in entries.items()},
            "periodic": list(periodic),
            "settings": {name: value for name, value in settings.items() if value is not None},
        }

    def set_clock(self, time_of_day: str) -> None:
        """The time that processes started from now on have."""
        self.offset = datetime.fromisoformat(at(time_of_day)) - datetime.now(UTC)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.offset

    @property
    def diary(self) -> Path:
        """Where executed tasks leave a line."""
        return self.folder / "diary"

    def environ(self, **more: str) -> dict[str, str]:
        """What a process of the project needs to find in its environment."""
        return {
            "CATCHUP_TEST_PROJECT": json.dumps({"broker": self.broker, **self.project}),
            "CATCHUP_TEST_OFFSET": str(self.offset.total_seconds()),
            "CATCHUP_TEST_DIARY": str(self.diary),
            "PYTHONPATH": str(ROOT),
            **more,
        }

    # -- starting --------------------------------------------------------------------------

    def start(self, *command: str, name: str = "process", **environ: str) -> Process:
        """Start any program anew in the project's environment."""
        process = Started(command, log=self._log(name), cwd=self.folder, environ=self.environ(**environ))
        self.processes.append(process)
        return process

    def start_celery(self, *arguments: str, **environ: str) -> Process:
        """Start a Celery program anew, as a user does from a shell."""
        return self.start(sys.executable, "-m", *celery(*arguments), name="celery", **environ)

    def fork_celery(self, *arguments: str, **environ: str) -> Process:
        """Start a Celery program from the nursery, which is much faster."""
        log, environment = self._log(arguments[0]), self.environ(**environ)
        process = Forked(self.nursery, celery(*arguments), log=log, cwd=self.folder, environ=environment)
        self.processes.append(process)
        return process

    def _log(self, name: str) -> Path:
        return self.folder / f"{len(self.processes)}-{name}.log"

    def beat(self, *arguments: str, scheduler: str | None = SHIFTED, **environ: str) -> Process:
        """Start a beat; one that is only there, not yet leading."""
        chosen = ("-S", scheduler) if scheduler else ()
        return self.fork_celery("beat", *chosen, *arguments, **environ)

    def leader(self, *arguments: str, **options: Any) -> Process:
        """Start a beat and wait until it leads."""
        beat = self.beat(*arguments, **options)
        beat.until_it_says(LEADING)
        return beat

    def worker(self, *arguments: str, **environ: str) -> Process:
        """Start a worker with two processes and wait until it is ready."""
        quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
        worker = self.start_celery("worker", "-c", "2", "-l", "INFO", *quiet, *arguments, **environ)
        worker.until_it_says(" ready.")
        return worker

    def close(self) -> None:
        """End everything that was started here."""
        for process in self.processes:
            process.end()
        self.redis.close()
        self._binary.close()

    # -- looking ---------------------------------------------------------------------------

    def messages(self, entry: str | None = None, *, queue: str = "celery") -> list[Message]:
        """What a worker would receive, oldest first; of one entry with a policy, or all."""
        return [m for m in on_redis(self.redis, queue) if entry in (None, m.entry)]

    def slots(self, entry: str | None = None) -> list[str]:
        return [message.slot for message in self.messages(entry)]

    def until_sent(self, count: int, **options: Any) -> list[Message]:
        """Wait until the queue holds so many messages."""
        until(lambda: self.redis.llen("celery") >= count, what=f"{count} messages", **options)
        return self.messages()

    def ledger(self, entry: str) -> list[dict[str, Any]]:
        """The entry's runs as they are recorded, in slot order."""
        ids: Any = self.redis.zrange(self.keys.runs_of(entry), 0, -1)
        stored: Any = self.redis.hmget(self.keys.ledger, ids) if ids else []
        return [{"id": run, **json.loads(text)} for run, text in zip(ids, stored, strict=True)]

    def states(self, entry: str) -> list[str]:
        return [run["state"] for run in self.ledger(entry)]

    def until_states(self, entry: str, states: list[str]) -> None:
        """Wait until the entry's runs are in these states."""
        until(lambda: self.states(entry) == states, what=f"{entry} in {states}")

    def until_noted(self, count: int, **options: Any) -> list[list[Any]]:
        """Wait until executed tasks have left so many lines, and read them all."""
        until(lambda: len(self._notes()) >= count, what=f"{count} lines in the diary", **options)
        return [json.loads(line) for line in self._notes()]

    def _notes(self) -> list[str]:
        text = self.diary.read_text(encoding="utf-8") if self.diary.exists() else ""
        return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def identity(self, entry: str, slot: str) -> str:
        """The id that the run of a slot must have."""
        return run_id(NAMESPACE, entry, Slot(instant(slot)))

    def watermark(self) -> Instant | None:
        stored: Any = self.redis.hget(self.keys.scheduler, "watermark")
        return None if stored is None else int(stored)

    def until_a_tick_later(self) -> None:
        """Wait until the leader has done one whole tick more."""

        def beats() -> int:
            found: Any = self.redis.hget(self.keys.leader, "beat")
            return int(found or 0)

        before = beats()
        # Two renewals: the tick after the first of them is over when the second begins.
        until(lambda: beats() >= before + 2, what="another tick")

    def snapshot(self) -> dict[str, Any]:
        """Everything on the server, to be put back as often as one likes."""
        return {key: self._binary.dump(key) for key in self._binary.scan_iter()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Make the server look as it did."""
        with self._binary.pipeline() as pipe:
            pipe.flushall()
            for key, value in snapshot.items():
                pipe.restore(key, 0, value)
            pipe.execute()

    def forget_leader(self) -> None:
        """Spare the next beat the wait for a dead one's lease."""
        self.redis.delete(self.keys.leader)


def at(time_of_day: str) -> str:
    """That time of the day on which these tests play, as beats write it: ``at("10:00:00")``."""
    return f"{DAY}T{time_of_day}Z"


def instant(text: str) -> Instant:
    return to_instant(datetime.fromisoformat(text))


def seconds_since(moment: float) -> float:
    return time.monotonic() - moment
