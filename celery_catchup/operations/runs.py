"""List and show runs, with their attempts, inputs and retry decisions; list skipped slots."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from celery_catchup.config.durations import format_duration
from celery_catchup.error_text import shown
from celery_catchup.events.redaction import redacted_value
from celery_catchup.model import RunState, Trigger, to_datetime, to_instant
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.refusals import UnknownRunError, check_unique
from celery_catchup.operations.run_inputs import RunInputs, read_inputs
from celery_catchup.store import Backfill
from celery_catchup.store.listing import OverdueSlot, Position, Record, RunFilter
from celery_catchup.store.store import (
    NUMBER_ERRORS,
    stored_instant,
    stored_length,
    stored_time,
    time_between,
)

SHORTEST_ID = 4
"""Characters of an id that identify a run, if no other id begins with them."""

_CURSOR = re.compile(r"(\d{1,15})-([0-9a-zA-Z-]{1,60})")
_LANE = Backfill.lane_of("")
_DECIDED = (RunState.WAITING, RunState.FAILED, RunState.DEAD)


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it is recorded: ``lag`` is how late it started, ``duration`` what its last attempt took.
    ``tenant`` and ``logic_version`` are those of its policy when it was decided, null when empty.
    ``deadline`` is the one that it has missed (`expect_within`), null if it is not overdue. ``slots`` is how
    many slots it stands for (`select: span`, a backfill with `--span`)."""

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
    deadline: datetime | None = None
    slots: int = 1


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution. ``task_id`` is its id in Celery. ``outcome`` is ``lost`` when its worker stopped
    renewing the lease, ``retried`` when its task asked for another try, else the run's state after it."""

    attempt: int
    task_id: str
    started_at: datetime | None
    ended_at: datetime | None
    worker: str | None
    outcome: str
    error: str | None


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision after a run failed or was lost, and the policy in force at that time.

    ``failures`` and ``losses`` are attempts that failed and workers that were lost since the last
    replay. ``reason`` is why there is no next attempt: ``permanent``, ``max_attempts`` or ``lost``.
    """

    decided_at: datetime
    failures: int
    losses: int
    next_attempt_at: datetime | None
    reason: str | None
    max_attempts: int
    retry_delay: timedelta
    retry_backoff: float
    retry_max_delay: timedelta | None
    on_failure: str

    @property
    def policy(self) -> str:
        """The policy on one line, in the words of the settings."""
        parts = [f"max_attempts {self.max_attempts}"]
        if self.max_attempts > 1:
            parts.append(f"retry_delay {_format(self.retry_delay)}")
        if self.retry_backoff != 1:
            longest = "" if self.retry_max_delay is None else f" up to {_format(self.retry_max_delay)}"
            parts.append(f"retry_backoff {self.retry_backoff:g}{longest}")
        return ", ".join([*parts, f"on_failure {self.on_failure}"])

    @property
    def why(self) -> str:
        """Why there is no next attempt, as a sentence; empty when there is one."""
        match self.reason:
            case "permanent":
                return "the failure is permanent: another attempt would fail too"
            case "max_attempts":
                return f"{self.failures} of {self.max_attempts} attempts have failed"
            case "lost":
                lost = f"its worker or its message was lost {self.losses} times"
                return lost if self.losses else "no attempt is left"
            case _:
                return self.reason or ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The last checkpoint that a task noted."""

    name: str
    value: Any
    noted_at: datetime


@dataclass(frozen=True, slots=True)
class RunDetails:
    """A run, and what its task noted: checkpoints, snapshots, outputs, progress, by name.

    ``attempts`` are the last ones, the oldest first; ``inputs`` is null when its message is not kept.
    ``last_heartbeat`` is when its worker last renewed the lease, or claimed the run; ``decision`` is
    there when the run has failed: its next attempt, or why there is none.
    """

    run: Run
    last_heartbeat: datetime | None
    last_checkpoint: Checkpoint | None
    decision: Decision | None
    notes: dict[str, dict[str, Any]]
    attempts: tuple[Attempt, ...]
    inputs: RunInputs | None

    @property
    def progress(self) -> tuple[float, float | None] | None:
        """The amount of work done and the total that the task reported; None without a report."""
        return _progress(self.notes)


@dataclass(frozen=True, slots=True)
class Runs:
    """A page of runs, the newest slot first; ``cursor`` asks for the next page, when there may be one."""

    runs: tuple[Run, ...]
    cursor: str | None = None


def list_runs(
    operator: Operator,
    entries: Sequence[str] = (),
    *,
    triggers: Iterable[Trigger] = (),
    states: Iterable[RunState] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    backfill: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Runs:
    """List runs whose slots lie between ``since`` and ``until``, both included, the newest first; with
    ``backfill`` only those that it made, or attempted again, last."""
    of = None if backfill is None else operator.backfills.get(backfill.lower())
    wanted = RunFilter(
        entries=operator.known(entries) or (() if of is None else (of.entry,)),
        triggers=frozenset(triggers),
        states=frozenset(states),
        since=None if since is None else to_instant(since),
        until=None if until is None else to_instant(until),
        after=None if cursor is None else position_of(cursor),
        lane=None if backfill is None else Backfill.lane_of(backfill.lower()),
        limit=limit,
    )
    lanes = _lanes(operator) if RunState.WAITING in wanted.states else ()
    page = operator.listing.runs(wanted, lanes=lanes)
    following = page.following
    runs = tuple(_with_deadlines(operator, page.records))
    return Runs(runs, None if following is None else cursor_at(*following))


def _with_deadlines(operator: Operator, records: Sequence[Record]) -> Iterator[Run]:
    """Convert records, with the deadlines that overdue runs have missed."""
    places = {
        one["id"]: OverdueSlot(one["entry"], int(one.get("schedule", 0)), int(one["slot"]), 0)
        for one in records
        if one["state"] != RunState.SUCCEEDED
    }
    missed = operator.listing.deadlines_of(places.values()) if places else {}
    for one in records:
        found = missed.get(places[one["id"]]) if one["id"] in places else None
        yield replace(run_of(one), deadline=stored_time(found)) if found is not None else run_of(one)


def progress_of(operator: Operator, runs: Iterable[Run]) -> dict[str, tuple[float, float | None]]:
    """Return the progress of those of these runs that are running and have reported one, by ID."""
    running = [run.run_id for run in runs if run.state is RunState.RUNNING]
    notes_of = operator.notes.read_many(running) if running else {}
    found = {run_id: _progress(notes) for run_id, notes in notes_of.items()}
    return {run_id: progress for run_id, progress in found.items() if progress is not None}


def show_run(operator: Operator, beginning: str) -> RunDetails:
    """Show the run with this id, or the only one whose id begins with it."""
    record = find_record(operator, beginning)
    notes = read_notes(operator, record["id"])
    return RunDetails(
        run=next(_with_deadlines(operator, [record])),
        last_heartbeat=_heartbeat(operator, record),
        last_checkpoint=last_checkpoint(record, notes),
        decision=decision_of(record),
        notes=notes,
        attempts=tuple(attempts_of(record)),
        inputs=read_inputs(operator.ledger.template(str(record.get("template", "")))),
    )


def read_notes(operator: Operator, run_id: str) -> dict[str, dict[str, Any]]:
    """Return what the run's task noted, by kind and name, without values that are named like a secret."""
    notes = operator.notes.read(run_id)
    return {kind: redacted_value(page) for kind, page in notes.items()}


def find_record(operator: Operator, beginning: str) -> Record:
    """Find the record of a run by its id, or by a unique beginning of it; else raise `UnknownRunError`."""
    if len(beginning) < SHORTEST_ID:
        raise UnknownRunError(
            f"{shown(beginning)} is too short; give at least {SHORTEST_ID} characters of the id"
        )
    found = operator.listing.records(operator.listing.ids_like(beginning.lower(), most=10))
    check_unique(beginning, [record["id"] for record in found], what="run", command="runs")
    return found[0]


def find_records(operator: Operator, beginnings: Sequence[str]) -> list[Record]:
    """Find the records of several runs, each once, the oldest slot first."""
    found = {record["id"]: record for record in (find_record(operator, one) for one in beginnings)}
    return sorted(found.values(), key=lambda record: (record["slot"], record["id"]))


def run_of(record: Mapping[str, Any]) -> Run:
    """Convert a record of the ledger."""
    lane = str(record.get("lane") or "")
    return Run(
        run_id=record["id"],
        entry=record["entry"],
        task=str(record.get("task", "")),
        state=RunState(record["state"]),
        trigger_type=Trigger(record["trigger"]),
        is_catchup=Trigger(record["trigger"]).is_catchup,
        scheduled_time=to_datetime(int(record["slot"])),
        data_interval_start=stored_time(record.get("previous")),
        created_at=stored_time(record.get("created")),
        queued_at=stored_time(record.get("queued")),
        started_at=stored_time(record.get("started")),
        finished_at=stored_time(record.get("finished")),
        lag=time_between(record["slot"], record.get("started")),
        duration=time_between(record.get("attempt_started"), record.get("finished")),
        attempt=int(record.get("attempt", 1)),
        worker=_text(record.get("worker")),
        error=_text(record.get("error")),
        backfill=lane.removeprefix(_LANE) if lane.startswith(_LANE) else None,
        replays=stored_instant(record.get("replays")) or 0,
        requested_by=_text(record.get("by")),
        tenant=_text(record.get("tenant")),
        logic_version=_text(record.get("logic_version")),
        slots=stored_instant(record.get("slots")) or 1,
    )


def _text(value: object) -> str | None:
    """Return a stored text; None if it is missing, empty, or something else."""
    return value if isinstance(value, str) and value else None


def task_id_of(record: Mapping[str, Any], attempt: int) -> str:
    """Return the Celery id of an attempt's task: the run's own, followed by the attempt from the second on; a
    retry that the task asked for keeps that of its predecessor, which is recorded."""
    return _text(record.get("task_id")) or (record["id"] if attempt < 2 else f"{record['id']}-{attempt}")


def last_checkpoint(record: Record, notes: Mapping[str, Mapping[str, Any]]) -> Checkpoint | None:
    """Return the last checkpoint that the run's task noted, with its value."""
    noted = record.get("checkpoint")
    at = stored_time(noted.get("at")) if isinstance(noted, Mapping) else None
    if noted is None or at is None:
        return None
    name = str(noted.get("name"))
    return Checkpoint(name, notes.get("checkpoints", {}).get(name), at)


def decision_of(record: Mapping[str, Any]) -> Decision | None:
    """Return the decision about a run that waits for its next attempt or has none left; else None."""
    state, decided = RunState(record["state"]), record.get("decided")
    retried = state is RunState.WAITING and not record.get("failures")
    if state not in _DECIDED or retried or not isinstance(decided, Mapping):
        return None
    try:
        return Decision(
            decided_at=to_datetime(int(decided["at"])),
            failures=int(decided.get("failures", 0)),
            losses=int(decided.get("losses", 0)),
            next_attempt_at=stored_time(decided.get("next")),
            reason=_text(decided.get("reason")),
            max_attempts=int(decided.get("max_attempts", 1)),
            retry_delay=timedelta(milliseconds=decided.get("retry_delay_ms", 0)),
            retry_backoff=float(decided.get("retry_backoff", 1)),
            retry_max_delay=stored_length(decided.get("retry_max_delay_ms")),
            on_failure=str(decided.get("on_failure", "continue")),
        )
    except (KeyError, *NUMBER_ERRORS):
        return None


def _progress(notes: Mapping[str, Mapping[str, Any]]) -> tuple[float, float | None] | None:
    match notes.get("progress", {}).get("work"):
        case [int() | float() as done, int() | float() | None as total]:
            return done, total
        case _:
            return None


def _format(value: timedelta) -> str:
    return format_duration(value) if value else "none"


def _heartbeat(operator: Operator, record: Record) -> datetime | None:
    """Return when the worker last renewed the lease; while the run is running, the lease itself says so."""
    if record["state"] != RunState.RUNNING:
        return stored_time(record.get("heartbeat"))
    lease, length = operator.ledger.lease(record["id"]), stored_instant(record.get("lease_ms"))
    return None if lease is None or length is None else stored_time(lease - length)


def attempts_of(record: Mapping[str, Any]) -> Iterator[Attempt]:
    """Yield the last attempts of a run, the oldest first, the present or final one last."""
    past = [one for one in record.get("past", ()) if isinstance(one, Mapping)]
    if record.get("attempt_started") is not None:
        failed = RunState(record["state"]).failed
        past.append(
            {
                "attempt": record.get("attempt", 1),
                "task_id": record.get("task_id"),
                "started": record["attempt_started"],
                "ended": record.get("finished"),
                "worker": record.get("worker"),
                "outcome": record["state"],
                "error": record.get("error") if failed else None,
            }
        )
    for one in past:
        yield Attempt(
            attempt=(number := stored_instant(one.get("attempt")) or 0),
            task_id=task_id_of({"id": record["id"], "task_id": one.get("task_id")}, number),
            started_at=stored_time(one.get("started")),
            ended_at=stored_time(one.get("ended")),
            worker=_text(one.get("worker")),
            outcome=str(one.get("outcome", "unknown")),
            error=_text(one.get("error")),
        )


def cursor_at(instant: int, run_id: str) -> str:
    """Return the cursor of the page after this place of a list."""
    return f"{instant}-{run_id}"


def position_of(cursor: str) -> Position:
    """Return the place in a list that a cursor stands for."""
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise UnknownRunError(f"expected a cursor that came with a page, got {shown(cursor)}")
    return int(match[1]), match[2]


def _lanes(operator: Operator) -> list[str]:
    """List where runs may wait: with their entry, or in the lane of a backfill."""
    backfills = [one.lane for one in operator.backfills.all() if one.state in ("running", "paused")]
    return [*dict.fromkeys((*operator.schedule, *operator.read_stored().first_seen)), *backfills]
