"""A day in the life of a project, played by the real scheduler under a clock of its own, up to now."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from celery.schedules import crontab

from celery_catchup import beat
from celery_catchup.model import RunState, to_instant
from celery_catchup.operations import Desk
from celery_catchup.store import Leases
from celery_catchup.testing import FakeClock
from tests.integration.operating import Project

EVIL = "<script>document.title='taken'</script>"
LONG = "warehouse-snapshot-of-every-customer-order-line-in-the-european-region"
SCHEDULE: dict[str, Any] = {
    "hourly-etl": {"task": "proj.etl", "schedule": crontab(minute=0)},
    "invoice-export": {"task": "proj.invoices", "schedule": crontab(minute=30, hour="*/2")},
    "refresh-dashboard": {"task": "proj.refresh", "schedule": crontab(minute="*/15")},
    "send-digest": {"task": "proj.send_digest", "schedule": crontab(minute=0, hour="*/4")},
    "sync-crm": {"task": "proj.sync_crm", "schedule": crontab(minute="*/30")},
    LONG: {"task": "proj.warehouse.snapshots.every_order_line", "schedule": crontab(minute=10, hour="*/3")},
    EVIL: {"task": "proj.evil", "schedule": crontab(minute=45, hour="*/6"), "kwargs": {"note": EVIL}},
    "legacy-report": {"task": "proj.report", "schedule": crontab(minute=5, hour=3)},
}
POLICIES: dict[str, Any] = {
    "hourly-etl": {"window": "6h", "overlap_policy": "all"},
    "invoice-export": {"window": "3d", "overlap_policy": "all"},
    "refresh-dashboard": {"window": "1d", "select": "latest"},
    "send-digest": False,
    "sync-crm": {"window": "12h", "overlap_policy": "all"},
    LONG: {"window": "2d", "overlap_policy": "all"},
    EVIL: {"window": "1d", "overlap_policy": "all"},
}
TRACEBACK = """Traceback (most recent call last):
  File "proj/invoices.py", line 41, in export
    ledger.push(batch)
ConnectionError: ledger.example.com did not answer"""
_QUICK = timedelta(seconds=1)


class Scene:
    """A project whose last days were played: a healthy time, a beat that was down, a catch-up, an
    entry that fails, one that is paused."""

    def __init__(self, url: str, *, now: datetime, days: float = 1.2, step: timedelta) -> None:
        self.now, self.step = now.replace(second=0, microsecond=0), step
        self.clock = FakeClock(self.now - timedelta(days=days))
        self.project = Project(
            url, self.clock, SCHEDULE, POLICIES, catchup_namespace="proj", catchup_lease_ttl="10m"
        )

    def play(self) -> None:
        """Everything, up to now."""
        down, back = self.now - timedelta(hours=5, minutes=20), self.now - timedelta(minutes=35)
        with self._beat() as scheduler:
            self._until(down, scheduler)
        self.clock.advance(seconds=(back - self.clock.now()).total_seconds())
        with self._beat() as scheduler:
            self._catch_up(scheduler)
            self.project.catchup("pause", "sync-crm", "--reason", "the CRM is being migrated")
            self._until(self.now, scheduler)

    @contextmanager
    def _beat(self) -> Iterator[beat.Scheduler]:
        with self.project.beat() as scheduler:
            yield scheduler

    def _until(self, end: datetime, scheduler: beat.Scheduler) -> None:
        while (now := self.clock.now()) < end:
            # On the full minutes that slots are at, so that each is handled when it is due.
            late = timedelta(seconds=now.timestamp() % self.step.total_seconds())
            self.clock.advance(seconds=min(self.step - late, end - now).total_seconds())
            scheduler.tick()
            self._work()

    def _catch_up(self, scheduler: beat.Scheduler) -> None:
        for _ in range(40):
            scheduler.tick()
            if not self._work():
                break

    def _work(self) -> int:
        """Workers take whatever is active, one after the other; each takes some seconds."""
        done = 0
        with self.project.desk() as desk:
            for name in POLICIES:
                while active := desk.ledger.active(name):
                    for run_id in active:
                        self._execute(desk, name, run_id)
                        done += 1
        return done

    def _execute(self, desk: Desk, entry: str, run_id: str) -> None:
        start = to_instant(self.clock.now() + _QUICK)
        leases = Leases(desk.store.scripts, desk.store.keys, db=desk.store.db, ttl_ms=60_000, now_ms=start)
        record = desk.ledger.run(run_id) or {}
        leases.claim(run_id, owner="w", task=record["task"], worker="celery@worker-1", entry=entry)
        state, error, letter = _end(entry, record)
        leases.now_ms = start + 2_300
        leases.finish(run_id, entry=entry, owner="w", state=state, error=error, letter=letter)


def _end(entry: str, record: dict[str, Any]) -> tuple[RunState, str, str]:
    """Most runs succeed; two entries have a failure."""
    hour = int(record["slot"]) // 3_600_000
    if entry == "invoice-export" and hour % 7 == 3:
        told = {
            "category": "transient",
            "type": "ConnectionError",
            "traceback": TRACEBACK,
        }
        return RunState.DEAD, "ConnectionError: ledger.example.com did not answer", json.dumps(told)
    if entry == EVIL:
        told = {"category": "permanent", "type": "ValueError", "traceback": f"ValueError: {EVIL}"}
        return RunState.DEAD, f"ValueError: {EVIL}", json.dumps(told)
    return RunState.SUCCEEDED, "", ""
