"""Status: whether a beat leads, what it is doing, and what waits for somebody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from celery_catchup.model import Instant, SkipReason, to_datetime
from celery_catchup.operations.desk import Desk
from celery_catchup.operations.entries import Failing, failing, pauses

FRESH = timedelta(seconds=60)
"""How old the last tick of a beat that is alive may be, unless somebody says otherwise."""

PROMPT = timedelta(minutes=5)
"""How long a due slot may stay undecided, unless somebody says otherwise."""

LATELY = 24 * 3600 * 1000
"""Milliseconds: what was lost in the last day is worth a line."""

_WORKERS = 10 * 60 * 1000
"""Milliseconds in which a worker must have been seen to count; it says so each minute."""

LOST = frozenset({SkipReason.EXPIRED, SkipReason.CATCHUP_OFF, SkipReason.CAP_EXCEEDED, SkipReason.REMOVED})
"""Reasons for which a slot is not recovered; the others are what an overlap policy is for."""


class Health(StrEnum):
    """What the scheduler is doing."""

    RUNNING = "running"
    STANDING_BY = "standing by"
    DOWN = "down"
    NEVER_STARTED = "never started"


@dataclass(frozen=True, slots=True)
class CatchupProgress:
    """How far a catch-up is: of ``total`` slots so many are dispatched, so many skipped."""

    total: int
    dispatched: int
    skipped: int


@dataclass(frozen=True, slots=True)
class Status:
    """The state of things. ``lag`` is how far the watermark is behind the present. ``undecided`` is for how
    long the oldest due slot has been undecided, null when every due slot is decided; while missed slots
    are being caught up, it counts from the last decision. ``failing`` are entries and backfills that fail."""

    scheduler: Health
    healthy: bool
    namespace: str
    leader: str | None
    epoch: int | None
    last_tick: datetime | None
    last_tick_age: timedelta | None
    watermark: datetime | None
    lag: timedelta | None
    catchup: CatchupProgress | None
    in_flight: int
    waiting_for_retry: int
    to_be_published: int
    dead_letters: int
    not_recovered: int
    paused: tuple[str, ...]
    backfills: int
    workers: int
    undecided: timedelta | None
    failing: tuple[Failing, ...]


def status(desk: Desk, *, max_age: timedelta = FRESH, max_delay: timedelta = PROMPT) -> Status:
    """How the scheduler is; it is healthy when its last tick is younger than ``max_age``, and no due slot
    has been undecided for longer than ``max_delay``."""
    now = desk.now()
    leader, scheduler = desk.listing.leader()
    counts = desk.listing.counts()
    stored = desk.look(())
    tick, watermark = _instant(scheduler, "last_tick"), _instant(scheduler, "watermark")
    age = None if tick is None else timedelta(milliseconds=max(0, now - tick))
    health = _health(age, max_age, leads=bool(leader))
    tally = desk.history.tally(since=now - LATELY)
    due = _instant(scheduler, "undecided")
    undecided = None if due is None else timedelta(milliseconds=max(0, now - due))
    return Status(
        scheduler=health,
        healthy=health is Health.RUNNING and (undecided is None or undecided <= max_delay),
        namespace=desk.store.namespace,
        leader=leader.get("owner"),
        epoch=int(leader["epoch"]) if leader.get("epoch", "").isdecimal() else None,
        last_tick=None if tick is None else to_datetime(tick),
        last_tick_age=age,
        watermark=None if watermark is None else to_datetime(watermark),
        lag=None if watermark is None else timedelta(milliseconds=max(0, now - watermark)),
        catchup=_progress(scheduler),
        in_flight=counts["leases"],
        waiting_for_retry=counts["retries"],
        to_be_published=counts["outbox"],
        dead_letters=counts["dead"],
        not_recovered=tally.skipped(*LOST),
        paused=tuple(name for name, pause in pauses(stored).items() if pause.paused),
        backfills=sum(one.state == "running" for one in desk.backfills.all()),
        workers=len(desk.workers.seen_since(server_time(desk) - _WORKERS)),
        undecided=undecided,
        failing=tuple(failing(desk)),
    )


def _health(age: timedelta | None, max_age: timedelta, *, leads: bool) -> Health:
    if age is None:
        return Health.NEVER_STARTED
    if age > max_age:
        return Health.DOWN
    return Health.RUNNING if leads else Health.STANDING_BY


def _progress(scheduler: Mapping[str, str]) -> CatchupProgress | None:
    if scheduler.get("catchup_running") != "1":
        return None
    total, sent, skipped = (
        int(scheduler.get(f"catchup_{name}", "0")) for name in ("total", "dispatched", "skipped")
    )
    return CatchupProgress(total, sent, skipped)


def _instant(scheduler: Mapping[str, str], name: str) -> Instant | None:
    text = scheduler.get(name, "")
    return int(text) if text.isdecimal() else None


def server_time(desk: Desk) -> Instant:
    """The present by the server's clock."""
    answer: Any = desk.store.client.time()
    seconds, micros = answer
    return int(seconds) * 1000 + int(micros) // 1000
