"""Look at the runs in flight: which wait in their queues, and which run far longer than usual."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from celery_catchup.model import Instant, RunState, SkipReason, to_datetime
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.runs import run_of, task_id_of
from celery_catchup.store.listing import Record, RunFilter
from celery_catchup.store.store import stored_instant, time_between

_LOOKED_AT = 2000
"""Runs that are read; those whose lease ends first, so that running ones come first."""
_PATIENCE = 10_000
"""Milliseconds below which nothing is remarkable."""
_FAR = 10
"""Times the usual duration, from which on a run takes far longer."""
_BLOCKED = 3
"""Slots that a run without a usual duration holds up when it is remarkable."""
_HOUR = 3_600_000
_COMPARED = 20
"""Successful runs whose durations are the usual ones."""


@dataclass(frozen=True, slots=True)
class QueuedRuns:
    """Runs that wait in a queue for a worker: how many, and the oldest of them. ``length`` is the number of
    all messages in the queue, null when it was not asked for or the broker does not tell."""

    queue: str
    runs: int
    oldest_run: str
    oldest_entry: str
    waiting: timedelta
    length: int | None


@dataclass(frozen=True, slots=True)
class LongRun:
    """A run that takes far longer than the entry's runs usually do (null if there is nothing to compare), and
    the number of slots that wait for it or were skipped because of it."""

    run_id: str
    entry: str
    task: str
    task_id: str
    worker: str | None
    started_at: datetime
    running: timedelta
    usual: timedelta | None
    blocked: int


@dataclass(frozen=True, slots=True)
class InFlight:
    """The runs in flight. Of very many, only those whose lease ends first are looked at."""

    queued: int
    running: int
    queues: tuple[QueuedRuns, ...]
    long_running: tuple[LongRun, ...]


def look_at_runs(operator: Operator, *, ask_broker: bool = False) -> InFlight:
    """Read the runs in flight, and with ``ask_broker`` the lengths of the queues they wait in."""
    records, total = operator.listing.in_flight(_LOOKED_AT)
    running = [one for one in records if one["state"] == RunState.RUNNING]
    queued = [one for one in records if one["state"] == RunState.QUEUED]
    now = operator.now()
    return InFlight(
        queued=max(total - len(running), 0),
        running=len(running),
        queues=tuple(_queues(operator, queued, now, ask_broker=ask_broker)),
        long_running=tuple(_long_running(operator, running, now)),
    )


def running_by_entry(operator: Operator) -> Counter[str]:
    """Count the running runs of each entry, without those of backfills."""
    records, _ = operator.listing.in_flight(_LOOKED_AT)
    own = (one for one in records if one["state"] == RunState.RUNNING and not one.get("lane"))
    return Counter(str(one["entry"]) for one in own)


def _queues(
    operator: Operator, queued: Sequence[Record], now: Instant, *, ask_broker: bool
) -> Iterator[QueuedRuns]:
    places = operator.recovery.sent_to({str(one.get("template")) for one in queued})
    waiting: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for one in queued:
        place = places.get(str(one.get("template")))
        if place is not None:
            waiting[place.queue, place.routing_key].append(one)
    for (queue, routing_key), runs in sorted(waiting.items()):
        oldest = min(runs, key=_since)
        age = now - _since(oldest)
        if age >= _PATIENCE:
            length = operator.sender.depth(queue, routing_key) if ask_broker else None
            name, entry = queue or routing_key, str(oldest["entry"])
            waited = timedelta(milliseconds=age)
            yield QueuedRuns(name, len(runs), oldest["id"], entry, waited, length)


def _since(record: Record) -> Instant:
    return stored_instant(record.get("queued")) or int(record["slot"])


def _long_running(operator: Operator, running: Sequence[Record], now: Instant) -> Iterator[LongRun]:
    """Yield runs that take far longer than usual, the longest first."""
    old = [one for one in running if now - _started(one) >= _PATIENCE]
    entries = {str(one["entry"]) for one in old}
    usual = {name: _usual(operator, name) for name in entries}
    chains = operator.states.open_runs(entries)
    for one in sorted(old, key=_started):
        name, started = str(one["entry"]), _started(one)
        skips = operator.listing.skips([name], since=started)[name]
        blocked = chains[name].waiting
        blocked += sum(int(s["count"]) for s in skips if s["reason"] == SkipReason.GUARD_BLOCKED)
        length, known = now - started, usual[name]
        far = (blocked >= _BLOCKED or length > _HOUR) if known is None else length > _FAR * known
        if far:
            run = run_of(one)
            yield LongRun(
                run_id=run.run_id,
                entry=name,
                task=run.task,
                task_id=task_id_of(one, run.attempt),
                worker=run.worker,
                started_at=to_datetime(started),
                running=timedelta(milliseconds=length),
                usual=None if known is None else timedelta(milliseconds=known),
                blocked=blocked,
            )


def _started(record: Record) -> Instant:
    return stored_instant(record.get("attempt_started")) or int(record["slot"])


def _usual(operator: Operator, entry: str) -> float | None:
    """Return the median duration of the entry's latest successful runs, in milliseconds."""
    succeeded = RunFilter(entries=(entry,), states=frozenset({RunState.SUCCEEDED}), limit=_COMPARED)
    records = operator.listing.runs(succeeded).records
    lengths = [time_between(one.get("attempt_started"), one.get("finished")) for one in records]
    known = [one / timedelta(milliseconds=1) for one in lengths if one is not None]
    return median(known) if known else None
