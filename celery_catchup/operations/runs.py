"""Runs: listed, followed and looked at one by one; and the slots that became none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from celery_catchup.error_text import shown
from celery_catchup.model import Instant, RunState, SkipReason, Trigger, to_datetime, to_instant
from celery_catchup.operations.attempts import Attempt, attempts_of
from celery_catchup.operations.decisions import Decision, decision_of
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.refusals import UnknownRunError
from celery_catchup.operations.run_inputs import Inputs, inputs_of
from celery_catchup.store import Backfill
from celery_catchup.store.listing import Position, Record, Wanted

SHORTEST_ID = 4
"""Characters of an id that are enough to ask for it, when no other begins so."""

_CURSOR = re.compile(r"(\d{1,15})-([0-9a-zA-Z-]{1,60})")
_LANE = Backfill.lane_of("")


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it is recorded: ``lag`` is how late it started, ``duration`` what its last attempt took.
    ``tenant`` and ``logic_version`` are those of its policy when it was decided, null when empty."""

    run_id: str
    entry: str
    task: str
    state: RunState
    trigger_type: Trigger
    is_catchup: bool
    scheduled_time: datetime
    data_interval_start: datetime | None
    created_at: datetime | None
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    lag: timedelta | None
    duration: timedelta | None
    attempt: int
    worker: str | None
    error: str | None
    backfill: str | None
    replays: int
    requested_by: str | None
    tenant: str | None
    logic_version: str | None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint that a task has noted last."""

    name: str
    value: Any
    noted_at: datetime


@dataclass(frozen=True, slots=True)
class RunDetails:
    """A run, and what its task has noted: checkpoints, snapshots, outputs, progress, by name.

    ``attempts`` are the last ones, the oldest first; ``inputs`` is null when its message is not kept.
    ``last_heartbeat`` is when its worker renewed the lease last, or claimed the run; ``decision`` is
    there when the run has failed: its next attempt, or why there is none.
    """

    run: Run
    last_heartbeat: datetime | None
    last_checkpoint: Checkpoint | None
    decision: Decision | None
    notes: dict[str, dict[str, Any]]
    attempts: tuple[Attempt, ...]
    inputs: Inputs | None

    @property
    def progress(self) -> tuple[float, float | None] | None:
        """How much of the work the task said is done, and of how much; None when it said nothing."""
        match self.notes.get("progress", {}).get("work"):
            case [int() | float() as done, int() | float() | None as total]:
                return done, total
            case _:
                return None


@dataclass(frozen=True, slots=True)
class Runs:
    """A page of runs, the newest slot first; ``cursor`` asks for the next page, when there may be one."""

    runs: tuple[Run, ...]
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """Neighbouring slots of an entry that were decided not to run."""

    entry: str
    first: datetime
    last: datetime
    count: int
    reason: SkipReason | str


def list_runs(
    operator: Operator,
    entries: Sequence[str] = (),
    *,
    triggers: Iterable[Trigger] = (),
    states: Iterable[RunState] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Runs:
    """Runs whose slots lie between ``since`` and ``until``, both included, the newest first."""
    wanted = Wanted(
        entries=operator.known(entries),
        triggers=frozenset(triggers),
        states=frozenset(states),
        since=None if since is None else to_instant(since),
        until=None if until is None else to_instant(until),
        after=None if cursor is None else _position(cursor),
        limit=limit,
    )
    lanes = _lanes(operator) if RunState.WAITING in wanted.states else ()
    page = operator.listing.runs(wanted, lanes=lanes)
    runs = tuple(run_of(record) for record in page.records)
    following = page.following
    return Runs(runs, None if following is None else f"{following[0]}-{following[1]}")


def list_skips(
    operator: Operator, entries: Sequence[str] = (), *, since: datetime | None = None, limit: int = 50
) -> list[Skipped]:
    """Slots that were decided not to run, as spans, the newest first."""
    names = operator.known(entries) or tuple(operator.look().first_seen)
    spans = operator.listing.skips(names, since=None if since is None else to_instant(since))
    found = [_skipped(name, span) for name, some in spans.items() for span in some]
    return sorted(found, key=lambda one: (one.last, one.entry), reverse=True)[:limit]


def show_run(operator: Operator, beginning: str) -> RunDetails:
    """The run with this id, or the only one whose id begins so."""
    record = record_like(operator, beginning)
    run = run_of(record)
    template = operator.ledger.template(str(record.get("template", "")))
    notes = operator.notes.read(run.run_id)
    return RunDetails(
        run=run,
        last_heartbeat=_heartbeat(operator, record),
        last_checkpoint=last_checkpoint(record, notes),
        decision=decision_of(record),
        notes=notes,
        attempts=attempts_of(record),
        inputs=inputs_of(template),
    )


def last_checkpoint(record: Record, notes: Mapping[str, Mapping[str, Any]]) -> Checkpoint | None:
    """The checkpoint that the run's task has noted last, with its value."""
    noted = record.get("checkpoint")
    if not isinstance(noted, Mapping):
        return None
    name = str(noted["name"])
    return Checkpoint(name, notes.get("checkpoints", {}).get(name), to_datetime(int(noted["at"])))


def _heartbeat(operator: Operator, record: Record) -> datetime | None:
    """When the worker gave its last sign of life: of a running run its lease tells."""
    if record["state"] != RunState.RUNNING:
        return _moment(record.get("heartbeat"))
    lease, length = operator.ledger.lease(record["id"]), record.get("lease_ms")
    return None if lease is None or length is None else _moment(lease - length)


def record_like(operator: Operator, beginning: str) -> Record:
    """The record of a run by its id, or by a beginning that no other has; else `UnknownRunError`."""
    if len(beginning) < SHORTEST_ID:
        raise UnknownRunError(
            f"{shown(beginning)} is too short; give at least {SHORTEST_ID} characters of the id"
        )
    found = operator.listing.records(operator.listing.ids_like(beginning.lower(), most=10))
    if not found:
        raise UnknownRunError(f"no such run: {shown(beginning)}; list them with: celery catchup runs")
    if len(found) > 1:
        some = ", ".join(record["id"] for record in found[:3])
        raise UnknownRunError(f"{shown(beginning)} is the beginning of several runs: {some}; give more of it")
    return found[0]


def run_of(record: Mapping[str, Any]) -> Run:
    """A record of the ledger as people see it."""
    slot, started = int(record["slot"]), record.get("started")
    ended, begun = record.get("finished"), record.get("attempt_started")
    lane = str(record.get("lane") or "")
    return Run(
        run_id=record["id"],
        entry=record["entry"],
        task=str(record.get("task", "")),
        state=RunState(record["state"]),
        trigger_type=Trigger(record["trigger"]),
        is_catchup=record["trigger"] == Trigger.CATCHUP,
        scheduled_time=to_datetime(slot),
        data_interval_start=_moment(record.get("previous")),
        created_at=_moment(record.get("created")),
        queued_at=_moment(record.get("queued")),
        started_at=_moment(started),
        finished_at=_moment(ended),
        lag=_between(slot, started),
        duration=_between(begun, ended),
        attempt=int(record.get("attempt", 1)),
        worker=record.get("worker"),
        error=record.get("error"),
        backfill=lane.removeprefix(_LANE) if lane.startswith(_LANE) else None,
        replays=int(record.get("replays", 0)),
        requested_by=record.get("by"),
        tenant=record.get("tenant") or None,
        logic_version=record.get("logic_version") or None,
    )


def _skipped(entry: str, span: Mapping[str, Any]) -> Skipped:
    reason = span["reason"]
    known = reason in list(SkipReason)
    return Skipped(
        entry,
        to_datetime(span["first"]),
        to_datetime(span["last"]),
        int(span["count"]),
        SkipReason(reason) if known else str(reason),
    )


def _position(cursor: str) -> Position:
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise UnknownRunError(f"{shown(cursor)} is no cursor; pass the one that came with a page")
    return int(match[1]), match[2]


def _lanes(operator: Operator) -> list[str]:
    """Where runs may wait: with their entry, or in the lane of a backfill."""
    backfills = [one.lane for one in operator.backfills.all() if one.state in ("running", "paused")]
    return [*dict.fromkeys((*operator.schedule, *operator.look().first_seen)), *backfills]


def _moment(instant: Any) -> datetime | None:
    return None if instant is None else to_datetime(int(instant))


def _between(begin: Instant | None, end: Any) -> timedelta | None:
    return None if begin is None or end is None else timedelta(milliseconds=int(end) - int(begin))
