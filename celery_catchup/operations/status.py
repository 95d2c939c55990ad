"""Show the state of the scheduler: who leads, what fails, outages, and the last day in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from celery_catchup.error_text import listed, shown
from celery_catchup.model import (
    Instant,
    Severity,
    SkipReason,
    Trigger,
    to_datetime,
    to_instant,
    to_milliseconds,
    to_rfc3339,
)
from celery_catchup.operations.deadlines import count_overdue
from celery_catchup.operations.fleet import Fleet, ask_fleet
from celery_catchup.operations.in_flight import LongRun, QueuedRuns, look_at_runs
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.skipped_slots import recovered_slots
from celery_catchup.store import ActiveCatchup, ActiveLimit, Backfill
from celery_catchup.store.history import last_catchup
from celery_catchup.store.leadership import standbys
from celery_catchup.store.store import read_json, stored_instant, stored_length, stored_time, time_between
from celery_catchup.store.workers import LATELY as SEEN_LATELY

FRESH = timedelta(seconds=60)
"""Default limit for the age of the last tick of a beat that is alive."""

PROMPT = timedelta(minutes=5)
"""Default limit for how long a due slot may stay undecided."""

SLOW_BROKER = timedelta(seconds=5)
"""How long a run waits for a healthy broker at most, before it is published."""

LATELY = 24 * 3600 * 1000
"""Milliseconds that the numbers of an overview cover."""

_BANNER = timedelta(hours=1)  # a finished catch-up is shown for this long
_STANDBYS = 2 * 60 * 1000  # milliseconds; a standby reports every 20 seconds
_ROLLOUT = 5 * 60 * 1000  # milliseconds for which two versions of a schedule may run side by side


_LANE = Backfill.lane_of("")


class Health(StrEnum):
    """The state of the scheduler."""

    RUNNING = "running"
    STANDING_BY = "standing by"
    DOWN = "down"
    NEVER_STARTED = "never started"


@dataclass(frozen=True, slots=True)
class CatchupProgress:
    """The progress of a catch-up: of ``total`` slots, how many are dispatched and how many skipped."""

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
class Failing:
    """An entry, or one of its backfills, that fails at present: why, since when, how often, and when it is
    tried again."""

    entry: str
    reason: str
    since: datetime
    times: int
    next_try: datetime
    backfill: str | None


@dataclass(frozen=True, slots=True)
class Status:
    """The state of the scheduler. ``lag`` is the age of the watermark. ``undecided`` is for how
    long the oldest due slot has been undecided, null when every due slot is decided; while missed slots
    are being caught up, it counts from the last decision. ``failing`` are entries and backfills that fail,
    ``stopped`` entries whose chain waits for a failed run (`on_failure: stop`), ``without_plugin`` workers
    without the plugin that consume a queue of workers with it. ``active_catchup`` is what
    `catchup_max_active` limits, null without a limit. ``held`` are entries whose catch-up waits for an
    approval, with its number of runs; they are not among the ``paused``. ``queues`` are those in which
    runs wait, ``long_running`` runs that take far longer than usual, ``undecided_entries`` entries with a
    slot that is undecided for too long; ``unpublished_for`` is since when the oldest run waits for the
    broker. ``overdue`` are entries with slots that have missed their deadline (`expect_within`), with their
    number; ``beat_healthy`` is ``healthy`` without them: another beat would not help. ``fleet`` is what the
    workers answered, null if they were not asked."""

    scheduler: Health
    healthy: bool
    beat_healthy: bool
    namespace: str
    leader: str | None
    epoch: int | None
    last_tick: datetime | None
    last_tick_age: timedelta | None
    watermark: datetime | None
    lag: timedelta | None
    catchup: CatchupProgress | None
    in_flight: int
    queued: int
    running: int
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
    active_catchup: ActiveCatchup | None
    held: Mapping[str, int]
    overdue: Mapping[str, int]
    undecided_entries: tuple[str, ...]
    queues: tuple[QueuedRuns, ...]
    long_running: tuple[LongRun, ...]
    unpublished_for: timedelta | None
    fleet: Fleet | None


@dataclass(frozen=True, slots=True)
class Outage:
    """No beat ticked between these times, for longer than a take-over lasts."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Banner:
    """A finished catch-up: how many catch-up runs it dispatched, and the range of its slots."""

    dispatched: int
    skipped: int
    first: datetime
    last: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class Overview:
    """The status, and the last 24 hours (counted in whole hours) in numbers.

    ``last_catchup`` is the one that ended last, ``banner`` the same for an hour after its end.
    """

    status: Status
    banner: Banner | None
    last_catchup: Banner | None
    caught_up: int
    skipped_by_policy: int
    not_recovered: int
    largest_lag: timedelta | None
    failed_attempts: int
    dead_letters: int


def status(
    operator: Operator,
    *,
    max_age: timedelta | None = None,
    max_delay: timedelta = PROMPT,
    ask: bool = False,
    fleet: Fleet | None = None,
) -> Status:
    """Read the status; with ``ask``, ask the workers and the broker, too, which takes a few seconds.
    ``fleet`` is what the workers have answered already.

    It is healthy when the last tick is younger than ``max_age``, by default the length of the leader's
    lease, no due slot has been undecided for longer than ``max_delay``, and no slot is overdue.

    In a lasting conflict it is unhealthy for the app whose entries do not run. For the leader's app it is
    healthy: a probe that ended its beat would only let the other one take over.
    """
    now, server_now = operator.now(), server_time(operator)
    leader, scheduler = operator.listing.leader()
    counts = operator.listing.counts()
    stored = operator.read_stored(())

    def age(name: str) -> timedelta | None:
        found = time_between(scheduler.get(name), now)
        return None if found is None else max(timedelta(), found)

    tick_age, undecided = age("last_tick"), age("undecided")
    limit = lease_of(leader) if max_age is None else max_age
    health = _health(tick_age, limit, leads=bool(leader))
    others = {
        beat: since
        for beat, (seen, since) in standbys(operator.store).items()
        if seen >= now - _STANDBYS and beat != leader.get("owner")
    }
    conflict = _conflict(others, now, operator.store.namespace)
    records = {name: read_json(text) or {} for name, text in stored.paused.items()}
    pauses = {name: one for name, one in records.items() if one.get("paused")}
    mixed = operator.workers.presence().mixed_since(server_now - SEEN_LATELY)
    prompt = undecided is None or undecided <= max_delay
    runs = look_at_runs(operator, ask_broker=ask)
    alone = conflict is None or not conflict.lasting or operator.declares_as_leader()
    beat_healthy, overdue = health is Health.RUNNING and prompt and alone, count_overdue(operator)
    return Status(
        scheduler=health,
        healthy=beat_healthy and not overdue,
        beat_healthy=beat_healthy,
        namespace=operator.store.namespace,
        leader=leader.get("owner"),
        epoch=stored_instant(leader.get("epoch")),
        last_tick=stored_time(scheduler.get("last_tick")),
        last_tick_age=tick_age,
        watermark=stored_time(scheduler.get("watermark")),
        lag=age("watermark"),
        catchup=_progress(scheduler),
        in_flight=counts["leases"] + counts["outbox"],
        queued=runs.queued + counts["outbox"],
        running=runs.running,
        waiting_for_retry=counts["retries"],
        to_be_published=counts["outbox"],
        dead_letters=counts["dead"],
        not_recovered=_not_recovered(operator, now),
        paused=tuple(name for name, one in pauses.items() if not one.get("held")),
        stopped=tuple(stored.stopped),
        backfills=sum(one.state == "running" for one in operator.backfills.all()),
        standbys=len(others),
        conflict=conflict,
        workers=len(operator.workers.seen_since(server_now - operator.leases.ttl_ms)),
        without_plugin=tuple(sorted({name for names in mixed.values() for name in names})),
        undecided=undecided,
        failing=tuple(list_failing(operator)),
        active_catchup=ActiveLimit(operator.store).read(),
        held={name: one["held"] for name, one in pauses.items() if one.get("held")},
        overdue=overdue,
        undecided_entries=() if prompt else tuple(_undecided_entries(operator, now, max_delay)),
        queues=runs.queues,
        long_running=runs.long_running,
        unpublished_for=time_between(operator.listing.oldest_unpublished(), now),
        fleet=ask_fleet(operator) if ask else fleet,
    )


def lease_of(leader: Mapping[str, str]) -> timedelta:
    """Return the length of the leader's lease: a leader that lives renews it, and ticks, more often."""
    return stored_length(stored_instant(leader.get("ttl_ms"))) or FRESH


def _undecided_entries(operator: Operator, now: Instant, max_delay: timedelta) -> Iterator[str]:
    """Yield the entries with a policy whose next slot has been due for longer than that."""
    limit = now - to_milliseconds(max_delay)
    for name, one in operator.tracked(operator.read_stored(), now, operator.declared).items():
        decided = max(one.state.decided or 0, one.state.first_seen_at)
        with suppress(Exception):  # a schedule of the user's own may raise anything; beat reports it
            following = (one.entry.next_after(index, decided) for index in range(len(one.entry.schedules)))
            if not one.state.paused and min(at for at in following if at is not None) <= limit:
                yield name


def overview(operator: Operator, *, fleet: Fleet | None = None) -> Overview:
    """Read the status and the numbers of the last day; the cost does not depend on the ledger's size.
    ``fleet`` is what the workers have answered already."""
    now, found = operator.now(), status(operator, fleet=fleet)
    tally = operator.history.counts(since=now - LATELY)
    banner = _banner(operator)
    recent = banner is not None and banner.dispatched and to_datetime(now) - banner.ended_at <= _BANNER
    return Overview(
        status=found,
        banner=banner if recent else None,
        last_catchup=banner,
        caught_up=tally.dispatched(Trigger.CATCHUP),
        skipped_by_policy=tally.skipped(*SkipReason.of(Severity.BY_POLICY)),
        not_recovered=found.not_recovered,
        largest_lag=stored_length(tally.lag),
        failed_attempts=tally.counts.get("failed", 0),
        dead_letters=found.dead_letters,
    )


def _banner(operator: Operator) -> Banner | None:
    last = last_catchup(operator.states.scheduler())
    if last is None:
        return None
    first, latest, ended = map(to_datetime, (last.first, last.last, last.ended))
    return Banner(last.dispatched, last.skipped, first, latest, ended)


def _not_recovered(operator: Operator, now: Instant) -> int:
    """Count the slots that were lost in the last day and have no run since, such as one of a backfill."""
    reasons = SkipReason.of(Severity.LOST)
    if not operator.history.counts(since=now - LATELY).skipped(*reasons):
        return 0
    spans = operator.listing.skips(operator.schedule, since=now - LATELY)
    lost = {name: [one for one in some if one["reason"] in reasons] for name, some in spans.items()}
    recovered = recovered_slots(operator, lost)
    count = sum(int(one["count"]) for some in lost.values() for one in some)
    return count - sum(map(len, recovered.values()))


def list_failing(operator: Operator) -> list[Failing]:
    """List the entries and backfills that the leading beat reports as failing."""
    reported = operator.states.failing()
    return [one for key, text in sorted(reported.items()) if (one := _failing(key, text)) is not None]


def list_outages(operator: Operator, *, since: datetime) -> list[Outage]:
    """List outages that ended after ``since``, the oldest first."""
    found = operator.history.outages(since=to_instant(since))
    return [Outage(to_datetime(begin), to_datetime(end)) for begin, end in found]


def server_time(operator: Operator) -> Instant:
    """Read the server's clock."""
    seconds, micros = operator.store.client.time()
    return int(seconds) * 1000 + int(micros) // 1000


def _failing(key: str, text: str) -> Failing | None:
    found = read_json(text) or {}
    try:
        return Failing(
            entry=str(found["entry"]),
            reason=str(found["reason"]),
            since=to_datetime(int(found["since"])),
            times=int(found["times"]),
            next_try=to_datetime(int(found["retry_at"])),
            backfill=key.removeprefix(_LANE) if key.startswith(_LANE) else None,
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _conflict(standbys: Mapping[str, Instant | None], now: Instant, namespace: str) -> Conflict | None:
    since = {beat: at for beat, at in standbys.items() if at is not None}
    if not since:
        return None
    first, beats = min(since.values()), tuple(sorted(since))
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
    return CatchupProgress(
        *(
            stored_instant(scheduler.get(f"catchup_{name}")) or 0
            for name in ("total", "dispatched", "skipped")
        )
    )
