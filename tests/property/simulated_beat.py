"""Celery's own beat under a simulated clock: only the clock, the sleep and the publishing are replaced."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Celery
from celery.beat import Scheduler
from celery.schedules import crontab

# A tick takes a moment in real life; without it a beat that wakes too early would spin for ever.
TICK = timedelta(milliseconds=2)
# More fires than a minute has room for mean that beat fires without end.
SHORTEST_GAP = timedelta(seconds=30)


class RecordingScheduler(Scheduler):
    """Notes the simulated time instead of publishing."""

    def __init__(self, app: SimulatedApp, **options: Any) -> None:
        self.fired: list[datetime] = []
        super().__init__(app, **options)

    def send_task(self, *args: Any, **kwargs: Any) -> None:
        self.fired.append(self.app.clock)

    @property
    def producer(self) -> None:
        """No broker is there."""


class SimulatedApp(Celery):
    """An app in a time zone, whose time stands still until it is moved."""

    def __init__(self, timezone: str, start: datetime) -> None:
        super().__init__("simulated", broker="memory://", set_as_current=False)
        self.conf.update(timezone=timezone, enable_utc=True, result_expires=None)
        self.clock = start

    def now(self) -> datetime:
        return self.clock.astimezone(self.timezone)


def fires(schedule: crontab, timezone: str, start: datetime, stop: datetime) -> list[datetime]:
    """When a beat that starts at ``start`` with this one entry sends it, until ``stop``, in UTC."""
    app = SimulatedApp(timezone, start.astimezone(UTC))
    app.conf.beat_schedule = {"entry": {"task": "simulated.task", "schedule": schedule}}
    beat = RecordingScheduler(app, max_interval=24 * 3600)
    while app.clock <= stop:
        app.clock += timedelta(seconds=max(beat.tick(), 0)) + TICK
        if len(beat.fired) > 2 and beat.fired[-1] - beat.fired[-3] < SHORTEST_GAP:
            raise AssertionError(f"beat fires without end at {beat.fired[-1].astimezone(app.timezone)}")
    return [fired for fired in beat.fired if fired <= stop]
