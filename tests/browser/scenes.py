"""A day in the life of a project, played by the real scheduler under a clock of its own, up to now.

From then on a beat ticks by the system's clock, and a worker takes whatever there is to do.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery.schedules import crontab

from celery_catchup.beat import scheduler as beat
from celery_catchup.clock import SystemClock
from celery_catchup.model import RunState, to_instant
from celery_catchup.operations import Operator
from celery_catchup.store import Leases
from celery_catchup.testing import FakeClock
from tests.integration.operating import Project

EVIL = "<script>document.title='taken'</script>"
LONG = "warehouse-snapshot-of-every-customer-order-line-in-the-european-region"
BROKEN = "invoice-export"
SCHEDULE: dict[str, Any] = {
    "hourly-etl": {"task": "proj.etl", "schedule": crontab(minute=0)},
    BROKEN: {"task": "proj.invoices", "schedule": crontab(minute=30, hour="*/2")},
    "refresh-dashboard": {"task": "proj.refresh", "schedule": crontab(minute="*/15")},
    "send-digest": {"task": "proj.send_digest", "schedule": crontab(minute=0, hour="*/4")},
    "sync-crm": {"task": "proj.sync_crm", "schedule": crontab(minute="*/30")},
    LONG: {"task": "proj.warehouse.snapshots.every_order_line", "schedule": crontab(minute=10, hour="*/3")},
    EVIL: {"task": "proj.evil", "schedule": crontab(minute=45, hour="*/6"), "kwargs": {"note": EVIL}},
    "legacy-report": {"task": "proj.report", "schedule": crontab(minute=5, hour=3)},
}
POLICIES: dict[str, Any] = {
    "hourly-etl": {"window": "6h", "overlap_policy": "all"},
    BROKEN: {"window": "3d", "overlap_policy": "all"},
    "refresh-dashboard": {"window": "1d", "select": "latest"},
    "send-digest": False,
    "sync-crm": {"window": "12h", "overlap_policy": "all"},
    LONG: {"window": "2d", "overlap_policy": "all"},
    EVIL: {"window": "1d", "overlap_policy": "all"},
}
DENSE = {"price-feed": {"task": "proj.prices", "schedule": crontab()}}
DENSE_POLICY = {"price-feed": {"window": "1d", "select": "latest"}}
TRACEBACK = """Traceback (most recent call last):
  File "proj/invoices.py", line 41, in export
    ledger.push(batch)
ConnectionError: ledger.example.com did not answer"""
WORKER = "celery@worker-1"
WEEK, DAY = timedelta(days=7, hours=3), timedelta(days=1, hours=2)
DOWN, BACK = timedelta(hours=5, minutes=20), timedelta(minutes=35)
"""How long ago beat went down, and how long ago it came back."""


class Scene:
    """A project whose last days were played: a healthy time, a beat that was down, a catch-up, an
    entry that fails, one that is paused.

    With ``dense`` it is a week, and on its last day there is an entry of every minute too.
    """

    def __init__(self, url: str, *, now: datetime, dense: bool = False) -> None:
        self.url, self.now, self.dense = url, now.replace(second=0, microsecond=0), dense
        self.clock = FakeClock(self.now - (WEEK if dense else DAY))
        self.fixed = False
        self._declare({}, {})

    def _declare(self, more: dict[str, Any], policies: dict[str, Any]) -> None:
        self.step = timedelta(minutes=1 if more else 5)
        self.policies = POLICIES | policies
        # A long lease, because minutes pass between two ticks here.
        settings: dict[str, Any] = {"catchup_lease_ttl": "10m", "catchup_poll_interval": "1s"}
        settings |= {"catchup_allowed_tasks": ["proj.*"]}
        self.project = Project(self.url, self.clock, SCHEDULE | more, self.policies, **settings)

    def play(self) -> None:
        """Everything, up to now."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Operator, "clock", self.clock)
            if self.dense:
                with self.project.beat() as scheduler:
                    self._until(self.now - DAY, scheduler)
                self._declare(DENSE, DENSE_POLICY)
            with self.project.beat() as scheduler:
                self._until(self.now - DOWN, scheduler)
            self.clock.advance(seconds=(self.now - BACK - self.clock.now()).total_seconds())
            with self.project.beat() as scheduler:
                self._catch_up(scheduler)
                self.project.catchup("pause", "sync-crm", "--reason", "the CRM is being migrated")
                self._until(self.now, scheduler)
                self._until(datetime.now(UTC), scheduler)  # to play it took a while

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """From now on a beat ticks by the system's clock, and a worker works."""
        over = threading.Event()
        thread = threading.Thread(target=self._live, args=(over,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(20)

    def _live(self, over: threading.Event) -> None:
        self.clock = SystemClock()  # type: ignore[assignment]
        scheduler = beat.Scheduler(self.project.app)
        try:
            with self.project.operator() as operator:
                while not over.wait(0.2):
                    scheduler.tick()
                    self._work(operator)
        finally:
            scheduler.close()

    def _until(self, end: datetime, scheduler: beat.Scheduler) -> None:
        with self.project.operator() as operator:
            while (now := self.clock.now()) < end:
                # On the full minutes that slots are at, so that each is handled when it is due.
                late = timedelta(seconds=now.timestamp() % self.step.total_seconds())
                self.clock.advance(seconds=min(self.step - late, end - now).total_seconds())
                scheduler.tick()
                self._work(operator)

    def _catch_up(self, scheduler: beat.Scheduler) -> None:
        scheduler.tick()
        with self.project.operator() as operator:
            while self._work(operator):
                scheduler.tick()

    def _work(self, operator: Operator) -> int:
        """Execute all active runs as a worker, one after the other; return their number."""
        done = 0
        operator.workers.record_alive(WORKER)
        lanes = [one.lane for one in operator.backfills.all() if not one.state.startswith("c")]
        for name in [*self.policies, *lanes]:
            while active := operator.ledger.active(name):
                for run_id in active:
                    self._execute(operator, run_id)
                    done += 1
        return done

    def _execute(self, operator: Operator, run_id: str) -> None:
        start = to_instant(self.clock.now()) + 900
        leases = Leases(operator.store, ttl_ms=60_000, now_ms=start)
        record = operator.ledger.run(run_id) or {}
        entry = record["entry"]
        leases.claim(run_id, owner="w", task=record["task"], worker=WORKER, entry=entry)
        state, error, letter = self._end(entry, record)
        leases.now_ms = start + 2_300
        leases.finish(run_id, entry=entry, owner="w", state=state, error=error, letter=letter)

    def _end(self, entry: str, record: dict[str, Any]) -> tuple[RunState, str, str]:
        """Return how a run ends: two entries fail until they are fixed, all others succeed."""
        hour = int(record["slot"]) // 3_600_000
        if entry == BROKEN and hour % 3 == 0 and not self.fixed:
            letter = {"category": "transient", "type": "ConnectionError", "traceback": TRACEBACK}
            return RunState.DEAD, TRACEBACK.splitlines()[-1], json.dumps(letter)
        if entry == EVIL:
            letter = {"category": "permanent", "type": "ValueError", "traceback": f"ValueError: {EVIL}"}
            return RunState.DEAD, f"ValueError: {EVIL}", json.dumps(letter)
        return RunState.SUCCEEDED, "", ""
