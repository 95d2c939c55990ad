"""A project whose beat lives through some hours in seconds; Celery's scheduler and ours, each in its process.

``CATCHUP_TEST_CASE`` is JSON: ``{"seed", "entries", "hours", "url", "file"}``. Beat's sleep moves the clock
instead of waiting, the changes of the case are made while it sleeps, and when the hours are over it ends.
Every message that a tick has sent becomes a line of the file, with the simulated time.
"""

from __future__ import annotations

import json
import math
import os
import time
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import celery.beat
import redis
from celery import Celery

from celery_catchup import beat
from celery_catchup.testing import FakeClock
from tests.projects.random_entries import QUEUES, Case

GIVEN = json.loads(os.environ["CATCHUP_TEST_CASE"])
DURATION = timedelta(hours=GIVEN["hours"])
CLOCK = FakeClock()
TOKYO, BERLIN, NEW_YORK = ZoneInfo("Asia/Tokyo"), ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")


def told(kind: str) -> datetime:
    """The time by an entry's own clock; a function of the module, because Celery's file pickles it."""
    now = CLOCK.now()
    return {
        "tokyo": now.astimezone(TOKYO),
        "new-york": now.astimezone(NEW_YORK),
        "naive-local": now.astimezone().replace(tzinfo=None),
        "naive-tokyo": now.astimezone(TOKYO).replace(tzinfo=None),
        "naive-utc": now.replace(tzinfo=None),
        "hours-ahead": now + timedelta(hours=3, minutes=7),
        "hours-behind": now.astimezone(BERLIN) - timedelta(hours=5),
        "seconds-ahead": now + timedelta(seconds=90),
    }[kind]


def today() -> str:
    """An argument that is made for each message."""
    return f"{CLOCK.now():%Y-%m-%d}"


class SimulatedApp(Celery):
    """An app whose time is simulated; schedules ask it."""

    def now(self) -> datetime:
        return CLOCK.now().astimezone(self.timezone)


CASE = Case(
    GIVEN["seed"],
    entries=GIVEN["entries"],
    duration=DURATION,
    clocks=lambda kind: partial(told, kind),
    today=today,
)
CLOCK.set(CASE.start)

app = SimulatedApp("project", broker=GIVEN["url"])
app.conf.update(
    beat_schedule=CASE.beat_schedule,
    result_expires=None,
    # Ours looks no more often than Celery's, with a lease to match.
    catchup_poll_interval="5m",
    catchup_lease_ttl="1h",
    **CASE.settings,
)


@app.task(name="proj.known", ignore_result=True)
def known(*args: Any, **kwargs: Any) -> None:
    """A task that the app knows."""


@app.task(name="proj.other", priority=4)
def other(*args: Any, **kwargs: Any) -> None:
    """One with an option of its own."""


# -- the clock -----------------------------------------------------------------------------------


class Sleeper:
    """Moves the clock on, and makes the changes whose time comes meanwhile. The sleep ends at a change: how
    soon it is seen is not what is compared."""

    def __init__(self) -> None:
        self.scheduler: Any = None
        self._left = list(CASE.changes)

    def sleep(self, seconds: float) -> None:
        until = CLOCK.now() + timedelta(milliseconds=max(1, math.ceil(seconds * 1000)))
        while self._left and CASE.start + self._left[0].after <= until:
            change = self._left.pop(0)
            until = max(CLOCK.now(), CASE.start + change.after)
            self._move(until)
            change.make(self.scheduler)
        self._move(until)
        if until >= CASE.start + DURATION:
            raise SystemExit

    @staticmethod
    def _move(until: datetime) -> None:
        CLOCK.advance(seconds=(until - CLOCK.now()).total_seconds())


SLEEPER = Sleeper()
celery.beat.time = SimpleNamespace(sleep=SLEEPER.sleep, monotonic=CLOCK.monotonic, time=time.time)


# -- the schedulers ------------------------------------------------------------------------------


class Recorder:
    """Takes the messages from the queues and writes them down."""

    LISTS = tuple(f"{queue}{sep}" for queue in QUEUES for sep in ("", "\x06\x163", "\x06\x166", "\x06\x169"))
    POP = """
        local found = {}
        for _, key in ipairs(KEYS) do
            for _, text in ipairs(redis.call('LRANGE', key, 0, -1)) do table.insert(found, {key, text}) end
            redis.call('DEL', key)
        end
        return found
    """

    def __init__(self) -> None:
        self._pop = redis.Redis.from_url(GIVEN["url"]).register_script(self.POP)
        self._file = Path(GIVEN["file"])
        self._file.touch()

    def record(self) -> int:
        """Write what has come since the last time; the number of messages."""
        found: Any = self._pop(keys=self.LISTS)
        with self._file.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(self._line(key, json.loads(text))) + "\n" for key, text in found)
        return len(found)

    @staticmethod
    def _line(key: bytes, message: dict[str, Any]) -> dict[str, Any]:
        body = json.loads(b64decode(message.pop("body")))
        return {"at": CLOCK.now().astimezone(UTC).isoformat(), "key": key.decode(), "body": body, **message}


class Recorded:
    """A scheduler whose messages are recorded; time passes only when a tick has nothing to do."""

    def setup_schedule(self) -> None:
        SLEEPER.scheduler = self
        super().setup_schedule()  # type: ignore[misc]

    def tick(self, *args: Any, **options: Any) -> float:
        if not hasattr(self, "recorder"):
            self.recorder = Recorder()
        wait: float | None = super().tick(*args, **options)  # type: ignore[misc]
        sent = self.recorder.record()
        return wait or 0.0 if sent else max(wait or 0.0, 0.001)


class AsStock(Recorded):
    """Celery's; without the ten milliseconds that it wakes up too early and asks in a loop."""

    def adjust(self, n: float | None, drift: float = 0.0) -> float | None:
        return n


class InMemory(AsStock, celery.beat.Scheduler):  # type: ignore[misc]
    pass


class WithFile(AsStock, celery.beat.PersistentScheduler):  # type: ignore[misc]
    pass


class Ours(Recorded, beat.Scheduler):
    clock = CLOCK


Stock = InMemory if CASE.forgetful else WithFile
