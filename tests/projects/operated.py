"""A project for the tests of the command line; nothing is asked of its broker before a command is run."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import Any

from celery import Celery
from celery.schedules import crontab

from celery_catchup.beat import scheduler as beat
from celery_catchup.clock import SystemClock

OFFSET = timedelta(seconds=float(os.environ.get("CATCHUP_TEST_OFFSET", "0")))


class ShiftedClock(SystemClock):
    """The system's clock, off by the offset."""

    def now(self) -> datetime:
        return super().now() + OFFSET


class Scheduler(beat.Scheduler):
    """The scheduler under a shifted clock."""

    clock = ShiftedClock()


app = Celery("operated", broker=os.environ.get("CATCHUP_TEST_URL", "redis://127.0.0.1:1/0"))
app.conf.update(
    imports=["celery_catchup.worker"],
    beat_schedule={
        "hourly-etl": {"task": "operated.etl", "schedule": crontab(minute=0)},
        "flaky": {"task": "operated.flaky", "schedule": crontab(minute=0)},
        "digest": {"task": "operated.etl", "schedule": crontab(minute=0)},
        "plain": {"task": "operated.etl", "schedule": crontab(minute=0)},
    },
    catchup_entries={
        "hourly-etl": {"window": "12h", "overlap_policy": "all"},
        "flaky": {"window": "12h", "select": "latest"},
        "digest": False,
    },
    catchup_poll_interval="200ms",
)


@app.task(name="operated.etl")
def etl() -> None:
    """Done at once."""


@app.task(name="operated.flaky", bind=True)
def flaky(self: Any) -> None:
    """Fails until somebody mends it: until the file is there that the environment names."""
    if not os.path.exists(os.environ["CATCHUP_TEST_MENDED"]):
        raise RuntimeError("the other side is down")
