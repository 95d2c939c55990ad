"""Dead letters: runs that have used up their attempts; replayed or discarded by somebody."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Any

from celery_catchup.error_text import shown
from celery_catchup.events.log_lines import logfmt
from celery_catchup.model import RunState, to_datetime
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.refusals import RefusedError, UnknownRunError
from celery_catchup.operations.runs import (
    Checkpoint,
    Decision,
    Run,
    decision_of,
    find_record,
    last_checkpoint,
    run_of,
)
from celery_catchup.store import Replay
from celery_catchup.store.leases import Finish
from celery_catchup.store.listing import Record

logger = logging.getLogger(__name__)


class Category(StrEnum):
    """Whether trying again may help."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead run, what is known of its failure, and what was decided.

    ``last_checkpoint`` is looked up when one letter is asked for, and null in lists.
    """

    run: Run
    died_at: datetime | None
    category: Category
    decision: Decision | None
    last_checkpoint: Checkpoint | None
    exception: str | None
    traceback: str | None
    details: dict[str, Any]


class Outcome(StrEnum):
    """What became of a request to replay or discard a run."""

    REPLAYED = "replayed"
    DISCARDED = "discarded"
    BURIED = "buried"
    UNDER_WAY = "under way"
    REFUSED = "refused"
    WOULD = "dry run"


@dataclass(frozen=True, slots=True)
class HandledRun:
    """One run, what became of it, and why when it was refused."""

    run_id: str
    entry: str
    scheduled_time: datetime
    outcome: Outcome
    reason: str | None = None


def list_dead(
    operator: Operator,
    entries: Sequence[str] = (),
    *,
    category: Category | None = None,
    search: str = "",
    limit: int | None = None,
) -> list[DeadLetter]:
    """Dead letters, those that died last first; ``search`` is a part of what they say, in any case."""
    wanted, text = operator.known(entries), search.casefold()
    found = (
        letter
        for letter in (_letter(*one) for one in operator.listing.dead())
        if (not wanted or letter.run.entry in wanted)
        and category in (None, letter.category)
        and (not text or text in _said(letter))
    )
    return list(islice(found, limit))


def _said(letter: DeadLetter) -> str:
    """All that a dead letter says, for a search."""
    run = letter.run
    parts = (run.run_id, run.entry, run.task, run.error, run.worker, letter.exception, letter.traceback)
    return "\n".join(part for part in parts if part).casefold()


def show_dead(operator: Operator, beginning: str) -> DeadLetter:
    """The dead letter with this id, or the only run whose id begins so."""
    record = find_record(operator, beginning)
    found = operator.listing.dead_run(record["id"])
    if found is None:
        raise UnknownRunError(f"run {record['id']} is no dead letter, it is {record['state']}")
    checkpoint = last_checkpoint(record, operator.notes.read(record["id"]))
    return replace(_letter(*found), last_checkpoint=checkpoint)


def select_dead(
    operator: Operator,
    beginnings: Sequence[str] = (),
    *,
    entries: Sequence[str] = (),
    category: Category | None = None,
    search: str = "",
) -> list[Record]:
    """The records of these runs, or, when none is named, of all dead letters; the oldest slot first."""
    if beginnings:
        chosen = {record["id"]: record for record in (find_record(operator, one) for one in beginnings)}
    else:
        ids = [letter.run.run_id for letter in list_dead(operator, entries, category=category, search=search)]
        chosen = {record["id"]: record for record in operator.listing.records(ids)}
    return sorted(chosen.values(), key=lambda record: (record["slot"], record["id"]))


def replay(
    operator: Operator,
    records: Sequence[Record],
    *,
    dry_run: bool = False,
    progress: Callable[[], None] | None = None,
) -> list[HandledRun]:
    """Attempt these runs again, with the inputs they had.

    A run that a replay has set under way before is left alone; one that is under way by itself, or
    has succeeded, is refused, and so is one whose task nobody declares any more.
    """
    operator.read_for_change()
    known = {str(entry.task) for entry in operator.schedule.values()} | set(operator.app.tasks)
    handled = []
    for record in records:
        handled.append(_replay(operator, record, known, dry_run=dry_run))
        if progress is not None:
            progress()
    return handled


def discard(
    operator: Operator,
    records: Sequence[Record],
    *,
    dry_run: bool = False,
    progress: Callable[[], None] | None = None,
) -> list[HandledRun]:
    """Take these runs off the dead letters; they stay in the ledger as failed.

    A run whose failure has stopped its entry's chain can be discarded too when it was revoked.
    """
    operator.read_for_change()
    stopping = operator.states.stopping()
    handled = []
    for record in records:
        if record["state"] != RunState.DEAD and record["id"] not in stopping:
            handled.append(
                _handled(record, Outcome.REFUSED, f"it is no dead letter, it is {record['state']}")
            )
        elif dry_run:
            handled.append(_handled(record, Outcome.WOULD))
        else:
            done = operator.controls.discard(record["id"], entry=record["entry"])
            outcome = Outcome.DISCARDED if done else Outcome.REFUSED
            handled.append(_handled(record, outcome, None if done else "somebody else was faster"))
            logger.info(logfmt("Dead letter discarded", run_id=record["id"], by=operator.by))
        if progress is not None:
            progress()
    return handled


def bury(
    operator: Operator,
    records: Sequence[Record],
    *,
    dry_run: bool = False,
    progress: Callable[[], None] | None = None,
) -> list[HandledRun]:
    """Make runs that have not started dead letters: their messages are refused from now on, and their
    chains go on. Beat never does that by itself."""
    operator.read_for_change()
    handled = []
    for record in records:
        handled.append(_bury(operator, record, dry_run=dry_run))
        if progress is not None:
            progress()
    return handled


def _bury(operator: Operator, record: Record, *, dry_run: bool) -> HandledRun:
    state = RunState(record["state"])
    if state not in (RunState.WAITING, RunState.QUEUED):
        return _handled(
            record, Outcome.REFUSED, f"it is {state}; only a run that has not started can be buried"
        )
    if dry_run:
        return _handled(record, Outcome.WOULD)
    error = f"buried by {operator.by}" if operator.by else "buried by hand"
    ending = operator.leases.finish(
        record["id"], entry=record["entry"], owner="", state=RunState.DEAD, error=error
    )
    logger.info(logfmt("Run buried", run_id=record["id"], outcome=ending.outcome, by=operator.by))
    if ending.outcome is not Finish.RECORDED:
        return _handled(record, Outcome.REFUSED, "it has started meanwhile")
    return _handled(record, Outcome.BURIED)


def raise_if_refused(handled: Sequence[HandledRun]) -> None:
    """`RefusedError` that says of each run that was refused, why."""
    reasons = [f"run {one.run_id}: {one.reason}" for one in handled if one.outcome is Outcome.REFUSED]
    if reasons:
        raise RefusedError("\n".join(reasons))


def _replay(operator: Operator, record: Record, known: set[str], *, dry_run: bool) -> HandledRun:
    state, replayed = RunState(record["state"]), bool(record.get("replays"))
    if state.in_flight or state is RunState.SUCCEEDED:
        if replayed:
            return _handled(record, Outcome.UNDER_WAY, f"it was replayed before, and is {state}")
        return _handled(record, Outcome.REFUSED, _why_not(state, record))
    if record.get("task") not in known:
        reason = f"task {shown(record.get('task'))} is neither in the schedule nor registered any more"
        return _handled(record, Outcome.REFUSED, reason)
    if dry_run:
        return _handled(record, Outcome.WOULD)
    answer = operator.controls.replay(record["id"], entry=record["entry"], by=operator.by)
    logger.info(logfmt("Run replayed", run_id=record["id"], outcome=answer, by=operator.by))
    match answer:
        case Replay.REPLAYED:
            operator.sender.sent_events.pushed_runs(operator.ledger, [record["id"]])
            return _handled(record, Outcome.REPLAYED)
        case Replay.IN_FLIGHT:
            return _handled(record, Outcome.UNDER_WAY, "somebody else was faster")
        case Replay.LOST:
            return _handled(record, Outcome.REFUSED, "its message is not kept any more; use a backfill")
        case Replay.UNKNOWN:
            return _handled(record, Outcome.REFUSED, "it is not in the ledger any more")


def _why_not(state: RunState, record: Record) -> str:
    if state.in_flight:
        return f"it is {state}; wait for its end"
    return (
        "it has succeeded; to run it again all the same: "
        f"celery catchup backfill {record['entry']} --reprocess completed --start … --end …"
    )


def _handled(record: Record, outcome: Outcome, reason: str | None = None) -> HandledRun:
    return HandledRun(record["id"], record["entry"], to_datetime(int(record["slot"])), outcome, reason)


def _letter(record: Record, letter: Record, died: int) -> DeadLetter:
    category = str(letter.get("category"))
    known = category in list(Category)
    return DeadLetter(
        run=run_of(record),
        died_at=to_datetime(died),
        category=Category(category) if known else Category.UNKNOWN,
        decision=decision_of(record),
        last_checkpoint=None,
        exception=letter.get("type"),
        traceback=letter.get("traceback"),
        details={
            name: value for name, value in letter.items() if name not in ("category", "type", "traceback")
        },
    )
