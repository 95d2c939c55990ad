"""Status: whether a beat leads, what it is doing, and what waits for somebody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from celery_catchup.error_text import listed, shown
from celery_catchup.model import Instant, SkipReason, to_datetime, to_rfc3339
from celery_catchup.operations.entries import Failing, failing, pauses
from celery_catchup.operations.operator import Operator
from celery_catchup.store.leadership import standbys
from celery_catchup.store.workers import LATELY as SEEN_LATELY

FRESH = timedelta(seconds=60)
"""How old the last tick of a beat that is alive may be, unless somebody says otherwise."""

PROMPT = timedelta(minutes=5)
"""How long a due slot may stay undecided, unless somebody says otherwise."""

LATELY = 24 * 3600 * 1000
"""Milliseconds: what was lost in the last day is worth a line."""

_WORKERS = 10 * 60 * 1000
"""Milliseconds in which a worker must have been seen to count; it says so each minute."""

_STANDBYS = 2 * 60 * 1000
"""Milliseconds in which a standby must have been seen to count; it says so every 20 seconds."""

_ROLLOUT = 5 * 60 * 1000
"""Milliseconds in which two versions of a schedule may run beside each other."""

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
class Conflict:
    """Beats that stand by in this namespace with other entries than the leader's: their slots do not run.

    While a new version is rolled out that is so for a moment; one that is ``lasting`` is an error.
    """

    beats: tuple[str, ...]
    since: datetime
    lasting: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Status:
    """The state of things. ``lag`` is how far the watermark is behind the present. ``undecided`` is for how
    long the oldest due slot has been undecided, null when every due slot is decided; while missed slots
    are being caught up, it counts from the last decision. ``failing`` are entries and backfills that fail,
    ``stopped`` entries whose chain waits for a failed run (`on_failure: stop`), ``without_plugin`` workers
    without the plugin that consume a queue of workers with it."""

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
    stopped: tuple[str, ...]
    backfills: int
    workers: int
    standbys: int
    conflict: Conflict | None
    without_plugin: tuple[str, ...]
    undecided: timedelta | None
    failing: tuple[Failing, ...]


def status(operator: Operator, *, max_age: timedelta = FRESH, max_delay: timedelta = PROMPT) -> Status:
    """How the scheduler is; it is healthy when its last tick is younger than ``max_age``, and no due slot
    has been undecided for longer than ``max_delay``.

    In a lasting conflict it is not, for the app whose entries do not run. For the leader's app it is: a probe
    that ended its beat would only let the other one begin.
    """
    now = operator.now()
    leader, scheduler = operator.listing.leader()
    counts = operator.listing.counts()
    stored = operator.look(())
    tick, watermark = _instant(scheduler, "last_tick"), _instant(scheduler, "watermark")
    age = None if tick is None else timedelta(milliseconds=max(0, now - tick))
    health = _health(age, max_age, leads=bool(leader))
    tally = operator.history.tally(since=now - LATELY)
    others = {
        beat: since
        for beat, (seen, since) in standbys(operator.store.client, operator.store.keys).items()
        if seen >= now - _STANDBYS and beat != leader.get("owner")
    }
    conflict = _conflict(others, now, operator.store.namespace)
    server_now = server_time(operator)
    mixed = operator.workers.presence().mixed_since(server_now - SEEN_LATELY)
    due = _instant(scheduler, "undecided")
    undecided = None if due is None else timedelta(milliseconds=max(0, now - due))
    prompt = undecided is None or undecided <= max_delay
    alone = not _lasts(conflict) or operator.declares_as_leader()
    return Status(
        scheduler=health,
        healthy=health is Health.RUNNING and prompt and alone,
        namespace=operator.store.namespace,
        leader=leader.get("owner"),
        epoch=int(leader["epoch"]) if leader.get("epoch", "").isdecimal() else None,
        last_tick=None if tick is None else to_datetime(tick),
        last_tick_age=age,
        watermark=None if watermark is None else to_datetime(watermark),
        lag=None if watermark is None else timedelta(milliseconds=max(0, now - watermark)),
        catchup=_progress(scheduler),
        in_flight=counts["leases"] + counts["outbox"],
        waiting_for_retry=counts["retries"],
        to_be_published=counts["outbox"],
        dead_letters=counts["dead"],
        not_recovered=tally.skipped(*LOST),
        paused=tuple(name for name, pause in pauses(stored).items() if pause.paused),
        stopped=tuple(stored.stopped),
        backfills=sum(one.state == "running" for one in operator.backfills.all()),
        standbys=len(others),
        conflict=conflict,
        workers=len(operator.workers.seen_since(server_now - _WORKERS)),
        without_plugin=tuple(sorted({name for names in mixed.values() for name in names})),
        undecided=undecided,
        failing=tuple(failing(operator)),
    )


def _lasts(conflict: Conflict | None) -> bool:
    return conflict is not None and conflict.lasting


def _conflict(standbys: Mapping[str, Instant | None], now: Instant, namespace: str) -> Conflict | None:
    since = {beat: at for beat, at in standbys.items() if at is not None}
    if not since:
        return None
    first = min(since.values())
    beats = tuple(sorted(since))
    detail = (
        f"another beat with other entries uses namespace {shown(namespace)} since {to_rfc3339(first)}, and "
        f"none of its slots run: {listed(beats)}"
    )
    return Conflict(beats, to_datetime(first), lasting=now - first >= _ROLLOUT, detail=detail)


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


def server_time(operator: Operator) -> Instant:
    """The present by the server's clock."""
    answer: Any = operator.store.client.time()
    seconds, micros = answer
    return int(seconds) * 1000 + int(micros) // 1000
