"""The scheduler of this package, with a clock that can be put forward to the next slot."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import redis
from celery.schedules import crontab

from benchmarks.subjects.trials import TASK, contest, counted, drain, new_app, peak, resident
from celery_catchup.beat.scheduler import Scheduler
from celery_catchup.store import Keys

NAMESPACE = "benchmarks"
POLICY = {"window": "6h"}
"""A policy with everything else at its default, so that overlap is looked at too."""
_JUST_AFTER = timedelta(milliseconds=5)


class ShiftedClock:
    """The machine's clock, put forward or back."""

    def __init__(self, now: datetime) -> None:
        self.set(now)

    def set(self, now: datetime) -> None:
        self._offset = now - datetime.now(UTC)

    def now(self) -> datetime:
        return datetime.now(UTC) + self._offset

    def monotonic(self) -> float:
        return time.monotonic()


def scheduler_of(app: Any, clock: ShiftedClock) -> Any:
    """As ``celery beat`` builds it: once for the banner, then in earnest."""
    kind = type("Scheduler", (Scheduler,), {"clock": clock})
    kind(app, lazy=True)
    return kind(app)


class Ours:
    """It keeps its state in Redis; entries have a policy, so each run is recorded.

    Most entries are due at the full hour; the first few one by one, from half past on.
    """

    sends_all_in_a_tick = True

    def __init__(self, count: int, url: str, folder: str, *, birds: int) -> None:
        self.count, self.birds = count, birds
        self.half_past = datetime.now(UTC).replace(minute=30, second=0, microsecond=0)
        self.clock = ShiftedClock(self.half_past)
        minutes = [31 + i if i < birds else 0 for i in range(count)]
        self.app = new_app(
            url,
            folder,
            beat_schedule={
                f"entry-{i}": {"task": TASK, "schedule": crontab(minute=str(minute))}
                for i, minute in enumerate(minutes)
            },
            catchup_entries={"*": POLICY},
            catchup_namespace=NAMESPACE,
        )
        self.scheduler: Any = None

    def start(self) -> None:
        self.scheduler = scheduler_of(self.app, self.clock)

    def one_due(self, index: int) -> None:
        self.clock.set(self.half_past + timedelta(minutes=1 + index) + _JUST_AFTER)

    def all_due(self) -> int:
        self.clock.set(self.half_past + timedelta(minutes=30) + _JUST_AFTER)
        return self.count - self.birds


def seed(*, url: str, folder: str, count: int, birds: int) -> None:
    """What an earlier beat leaves behind."""
    before = Ours(count, url, folder, birds=birds)
    before.start()
    before.scheduler.tick()
    before.scheduler.close()


def ticks(*, url: str, folder: str, count: int, birds: int, **how: Any) -> dict[str, float]:
    return contest(lambda: Ours(count, url, folder, birds=birds), url=url, birds=birds, **how)


def traffic(*, url: str, folder: str, count: int, birds: int, ticks: int) -> dict[str, float]:
    return counted(lambda there: Ours(count, there, folder, birds=birds), url=url, birds=birds, ticks=ticks)


# -- after an outage -----------------------------------------------------------------------------


def minutely(count: int, policy: dict[str, Any] | None, url: str, folder: str, task: str) -> Any:
    """An app with so many minutely entries; without a policy they are as under Celery's scheduler."""
    settings: dict[str, Any] = {} if policy is None else {"catchup_entries": {"*": policy}}
    return new_app(
        url,
        folder,
        beat_schedule={f"entry-{i}": {"task": task, "schedule": crontab()} for i in range(count)},
        catchup_namespace=NAMESPACE,
        catchup_ledger_ttl="3000d",  # longer than any window here, as it has to be
        **settings,
    )


def go_silent(
    *, url: str, folder: str, count: int, minutes: int, policy: Any, until: float, task: str = TASK
) -> None:
    """A beat whose last tick was so many minutes before ``until``."""
    then = datetime.fromtimestamp(until, UTC) - timedelta(minutes=minutes)
    before = scheduler_of(minutely(count, policy, url, folder, task), ShiftedClock(then))
    before.tick()
    before.close()


def recover(
    *, url: str, folder: str, count: int, policy: Any, until: float, runs: int, task: str = TASK
) -> dict[str, float]:
    """Start at ``until``, and tick until so many runs are on record (with a policy), or so many
    messages in the queue (without)."""
    app = minutely(count, policy, url, folder, task)
    memory = resident()
    begun = time.perf_counter()
    scheduler = scheduler_of(app, ShiftedClock(datetime.fromtimestamp(until, UTC)))
    built = time.perf_counter() - begun
    with redis.Redis.from_url(url) as client:
        found = _until(scheduler, client, runs, recorded=policy is not None)
    return found | {"build": built, "memory": resident() - memory, "peak": peak() - memory}


def _until(scheduler: Any, client: Any, runs: int, *, recorded: bool) -> dict[str, float]:
    if not recorded:
        return drain(scheduler.tick, runs, client, 600.0)
    keys = Keys(NAMESPACE)
    begun, cpu, ticks = time.perf_counter(), time.process_time(), 0
    while client.zcard(keys.runs) < runs or client.hget(keys.scheduler, "catchup_running") == b"1":
        scheduler.tick()
        ticks += 1
    seconds = time.perf_counter() - begun
    return {
        "seconds": seconds,
        "rate": runs / seconds,
        "cpu": (time.process_time() - cpu) / runs,
        "ticks": ticks,
    }
