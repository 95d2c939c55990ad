"""A project whose beat tasks Sentry monitors; what the SDK would send is written to a file instead."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta
from typing import Any

import sentry_sdk
from celery import Celery
from celery.signals import celeryd_init
from sentry_sdk.integrations.celery import CeleryIntegration
from sentry_sdk.transport import Transport

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


class Book(Transport):
    """Writes check-ins down, one a line."""

    def capture_envelope(self, envelope: Any) -> None:
        for item in envelope.items:
            if item.type == "check_in":
                line = json.dumps(json.loads(item.payload.get_bytes()))
                with open(os.environ["CATCHUP_TEST_BOOK"], "a", encoding="utf-8") as pages:
                    pages.write(line + "\n")


def watch(**_: Any) -> None:
    sentry_sdk.init(
        dsn="https://key@sentry.invalid/1",
        transport=Book,
        integrations=[CeleryIntegration(monitor_beat_tasks=True)],
        auto_enabling_integrations=False,
    )


watch()
celeryd_init.connect(watch, weak=False)

app = Celery("watched", broker=os.environ.get("CATCHUP_TEST_URL", "redis://127.0.0.1:1/0"))
app.conf.update(
    imports=["celery_catchup.worker"],
    beat_schedule={
        "minutely": {"task": "watched.work", "schedule": timedelta(minutes=1)},
        "written": {"task": "watched.work", "schedule": "* * * * *"},
    },
    catchup_entries={
        "minutely": {"window": "1h", "overlap_policy": "all"},
        "written": {"window": "1h", "select": "latest"},
    },
    catchup_checkins=os.environ.get("CATCHUP_TEST_CHECKINS", "live"),
    catchup_poll_interval="200ms",
)


@app.task(name="watched.work", bind=True)
def work(self: Any) -> None:
    """Done at once; notes the trace that its message belongs to."""
    with open(os.environ["CATCHUP_TEST_BOOK"] + "-traces", "a", encoding="utf-8") as pages:
        pages.write(f"{self.request.headers['sentry-trace'].partition('-')[0]}\n")
