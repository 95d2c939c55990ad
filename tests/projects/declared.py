"""A project whose schedule and settings come from the environment, so that each test has its own.

``CATCHUP_TEST_PROJECT`` is JSON: ``{"broker": url, "schedule": {...}, "settings": {...},
"periodic": [...]}``. A mapping with one key that begins with ``$`` stands for what JSON cannot
say, see `_MADE`. ``CATCHUP_TEST_OFFSET`` is how many seconds the project's clock is off the
system's: an outage of three hours is a second beat with another offset. ``CATCHUP_TEST_JUMPS``
names a file with seconds to be added to that, which a test may change at any time.
"""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from celery import Celery
from celery.beat import BeatLazyFunc
from celery.schedules import crontab, schedule, solar

from celery_catchup.beat import scheduler as beat
from celery_catchup.clock import SystemClock
from tests.projects.mortal import become_mortal

OFFSET = timedelta(seconds=float(os.environ.get("CATCHUP_TEST_OFFSET", "0")))


class ShiftedClock(SystemClock):
    """The system's clock, off by the offset and by what the file says."""

    def now(self) -> datetime:
        return super().now() + OFFSET + _jump()


def _jump() -> timedelta:
    file = os.environ.get("CATCHUP_TEST_JUMPS")
    return timedelta(seconds=float(Path(file).read_text())) if file else timedelta()


class Scheduler(beat.Scheduler):
    """The scheduler under a shifted clock."""

    clock = ShiftedClock()


class Shifted(Celery):
    """An app under a shifted clock; Celery's own schedules ask the app."""

    def now(self) -> datetime:
        return super().now() + OFFSET


class Unaskable(schedule):
    """A schedule of the user's own with a bug."""

    def is_due(self, last_run_at: datetime) -> Any:
        raise ZeroDivisionError("a bug in the user's schedule")


class Halves(schedule):
    """A schedule of the user's own: due at each full multiple of its seconds since 1970."""

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        now, length = self.now().timestamp(), self.run_every.total_seconds()
        return now // length > last_run_at.timestamp() // length, length - now % length


def _stamp() -> str:
    return datetime.now(UTC).isoformat()


_MADE: dict[str, Any] = {
    "$crontab": lambda fields: crontab(**fields),
    "$every": lambda seconds: timedelta(seconds=seconds),
    "$solar": lambda where: solar(*where),
    "$unaskable": lambda seconds: Unaskable(timedelta(seconds=seconds)),
    "$halves": lambda seconds: Halves(timedelta(seconds=seconds)),
    "$now": lambda _: BeatLazyFunc(_stamp),
}


def _made(pairs: dict[str, Any]) -> Any:
    ((name, value),) = pairs.items() if len(pairs) == 1 else (("", None),)
    return _MADE[name](value) if name in _MADE else pairs


become_mortal()
PROJECT = json.loads(os.environ.get("CATCHUP_TEST_PROJECT", "{}"), object_hook=_made)

app = Shifted("project", broker=PROJECT.get("broker", "memory://"))
app.conf.update(beat_schedule=PROJECT.get("schedule", {}), **PROJECT.get("settings", {}))


@app.on_after_configure.connect
def _add_periodic_tasks(sender: Celery, **_: Any) -> None:
    for declared in PROJECT.get("periodic", ()):
        sender.add_periodic_task(declared.pop("schedule"), work.s(), **declared)


@app.task(bind=True)
def work(self: Any, *args: Any, seconds: float = 0.0, **kwargs: Any) -> None:
    """Leave a line where the test looks: begin, slot, task id; and one at the end."""
    _note("begin", self.request)
    time.sleep(seconds)
    _note("end", self.request)


def _note(what: str, request: Any) -> None:
    diary = os.environ.get("CATCHUP_TEST_DIARY")
    if diary:
        # One write to a file opened for appending: lines of several processes never mix.
        line = json.dumps([what, request.get("scheduled_time"), request.id, os.getpid(), time.monotonic()])
        with open(diary, "a", buffering=1, encoding="utf-8") as file:
            file.write(line + "\n")
