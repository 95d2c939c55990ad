"""List dead letters: runs that have used up their attempts; replay, discard and bury runs."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Any, TypeAlias

from celery_catchup.error_text import shown
from celery_catchup.events.command_lines import backfill_line
from celery_catchup.events.log_lines import logfmt
from celery_catchup.events.redaction import redacted_value
from celery_catchup.model import RunState, to_datetime, to_instant
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.refusals import RefusedError, UnknownRunError
from celery_catchup.operations.runs import (
    Checkpoint,
    Decision,
    Run,
    cursor_at,
    decision_of,
    find_record,
    last_checkpoint,
    position_of,
    read_notes,
    run_of,
)
from celery_catchup.store import AuditAction, Change, Replay
from celery_catchup.store.leases import ReportOutcome
from celery_catchup.store.listing import UNREADABLE, Record

logger = logging.getLogger(__name__)

_LONGEST_KIND = 200
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|[0-9]+")


class Category(StrEnum):
    """Whether another attempt may help."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead run, its failure, and the retry decision.

    ``last_checkpoint`` is null in lists; it is read for a single letter only.
    """

    run: Run
    died_at: datetime
    category: Category
    decision: Decision | None
    last_checkpoint: Checkpoint | None
    exception: str | None
    traceback: str | None
    details: dict[str, Any]

    @property
    def message(self) -> str:
        """The error, with the class of the exception."""
        error, exception = self.run.error or "", self.exception or ""
        return error if exception.rpartition(".")[2] in error else f"{exception}: {error}"

    @property
    def kind(self) -> str:
        """The first line of the error without its numbers, so that alike errors have the same."""
        line = next(iter(self.message.strip().splitlines()), "")[:_LONGEST_KIND]
        return _NUMBERS.sub("#", line)


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """The dead letters of an entry with the same kind of error: how many, and when the latest died."""

    entry: str
    kind: str
    count: int
    categories: tuple[Category, ...]
    latest: datetime | None


class Outcome(StrEnum):
    """The result of changing a run. One that is ``being ended`` is revoked when its worker has ended it."""

    REPLAYED = "replayed"
    DISCARDED = "discarded"
    BURIED = "buried"
    RESENT = "sent again"
    CANCELLED = "cancelled"
    ENDING = "being ended"
    UNDER_WAY = "under way"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    WOULD = "dry run"


@dataclass(frozen=True, slots=True)
class HandledRun:
    """A run, what was done with it, and the reason if it was refused."""

    run_id: str
    entry: str
    scheduled_time: datetime
    outcome: Outcome
    reason: str | None = None


Progress: TypeAlias = Callable[[], None]
"""Called after each run."""

Result: TypeAlias = tuple[Outcome, str | None]
"""The outcome of one run, and the reason if it was refused."""


def list_dead(
    operator: Operator,
    entries: Sequence[str] = (),
    *,
    category: Category | None = None,
    search: str = "",
    kind: str = "",
    offset: int = 0,
    limit: int | None = None,
    cursor: str | None = None,
) -> list[DeadLetter]:
    """List dead letters, those that died last first; ``search`` matches any part of their text, ``kind`` is
    that of a group."""
    wanted, text = operator.known(entries), search.casefold()
    after = None if cursor is None else position_of(cursor)
    found = (
        letter
        for letter in (_letter(*one) for one in operator.listing.dead(after=after))
        if (not wanted or letter.run.entry in wanted)
        and category in (None, letter.category)
        and (not text or text in _text_of(letter))
        and kind in ("", letter.kind)
    )
    return list(islice(found, offset, None if limit is None else offset + limit))


def group_dead(letters: Iterable[DeadLetter]) -> list[DeadLetterGroup]:
    """Group dead letters by entry and kind of error, the largest group first."""
    groups: dict[tuple[str, str], list[DeadLetter]] = {}
    for letter in letters:
        groups.setdefault((letter.run.entry, letter.kind), []).append(letter)
    found = [
        DeadLetterGroup(
            entry, kind, len(some), tuple(sorted({one.category for one in some})), some[0].died_at
        )
        for (entry, kind), some in groups.items()
    ]
    return sorted(found, key=lambda group: (-group.count, group.entry, group.kind))


def cursor_after(letter: DeadLetter) -> str:
    """Return the cursor of the page after a dead letter."""
    return cursor_at(to_instant(letter.died_at), letter.run.run_id)


def show_dead(operator: Operator, beginning: str) -> DeadLetter:
    """Show the dead letter with this id, or the only run whose id begins with it."""
    record = find_record(operator, beginning)
    found = operator.listing.dead_run(record["id"])
    if found is None:
        raise UnknownRunError(f"run {record['id']} is not a dead letter, it is {record['state']}")
    checkpoint = last_checkpoint(record, read_notes(operator, record["id"]))
    return replace(_letter(*found), last_checkpoint=checkpoint)


def select_dead(
    operator: Operator,
    beginnings: Sequence[str] = (),
    *,
    entries: Sequence[str] = (),
    category: Category | None = None,
    search: str = "",
) -> list[Record]:
    """Return the records of these runs, or of all matching dead letters; the oldest slot first."""
    if beginnings:
        chosen = {record["id"]: record for record in (find_record(operator, one) for one in beginnings)}
    else:
        ids = [letter.run.run_id for letter in list_dead(operator, entries, category=category, search=search)]
        chosen = {record["id"]: record for record in operator.listing.records(ids)}
    return sorted(chosen.values(), key=lambda record: (record["slot"], record["id"]))


def replay(
    operator: Operator, records: Sequence[Record], *, dry_run: bool = False, progress: Progress | None = None
) -> list[HandledRun]:
    """Attempt these runs again, with the inputs they had.

    A run that an earlier replay set under way is left alone. A run that is in flight by itself or has
    succeeded is refused, and so is one whose task is not known any more.
    """
    tasks = {str(entry.task) for entry in operator.schedule.values()} | set(operator.app.tasks)
    return handle_each(
        operator,
        records,
        lambda record, change: _replay(operator, record, tasks, change, dry_run=dry_run),
        progress,
        change=operator.change(AuditAction.DLQ_REPLAY),
    )


def discard(
    operator: Operator, records: Sequence[Record], *, dry_run: bool = False, progress: Progress | None = None
) -> list[HandledRun]:
    """Remove these runs from the dead letters; they stay in the ledger as failed.

    A revoked run that has stopped its entry's chain can be discarded too.
    """
    stopping = operator.states.stopping()
    return handle_each(
        operator,
        records,
        lambda record, change: _discard(operator, record, stopping, change, dry_run=dry_run),
        progress,
        change=operator.change(AuditAction.DLQ_DISCARD),
    )


def bury(
    operator: Operator, records: Sequence[Record], *, dry_run: bool = False, progress: Progress | None = None
) -> list[HandledRun]:
    """Make runs that have not started dead letters: workers refuse their messages from now on, and their
    chains go on. Beat never does that by itself."""
    return handle_each(
        operator,
        records,
        lambda record, change: _bury(operator, record, change, dry_run=dry_run),
        progress,
        change=operator.change(AuditAction.DLQ_BURY),
    )


def raise_if_refused(handled: Sequence[HandledRun]) -> None:
    """Raise `RefusedError` with the reason of each run that was refused."""
    reasons = [f"run {one.run_id}: {one.reason}" for one in handled if one.outcome is Outcome.REFUSED]
    if reasons:
        raise RefusedError("\n".join(reasons))


def handle_each(
    operator: Operator,
    records: Sequence[Record],
    handle: Callable[[Record, Change], Result],
    progress: Progress | None,
    *,
    change: Change,
) -> list[HandledRun]:
    """Change each run in turn; one that is refused does not keep the others back. All leave one record in the
    audit trail, which each of them brings up to date."""
    operator.read_for_change()
    handled, done = [], 0
    change = replace(
        change,
        entries=tuple(dict.fromkeys(record["entry"] for record in records)),
        targets=tuple(record["id"] for record in records),
    )
    for record in records:
        unreadable = (Outcome.REFUSED, "its record cannot be read")
        so_far = change.so_far(done + 1, len(records))
        outcome, reason = unreadable if UNREADABLE in record else handle(record, so_far)
        done += outcome not in (Outcome.REFUSED, Outcome.UNDER_WAY)
        slot = to_datetime(int(record["slot"]))
        handled.append(HandledRun(record["id"], record["entry"], slot, outcome, reason))
        if progress is not None:
            progress()
    return handled


def _replay(operator: Operator, record: Record, tasks: set[str], change: Change, *, dry_run: bool) -> Result:
    state = RunState(record["state"])
    if state.in_flight or state is RunState.SUCCEEDED:
        if record.get("replays"):
            return Outcome.UNDER_WAY, f"it was replayed before, and is {state}"
        if state.in_flight:
            return Outcome.REFUSED, f"it is {state}; wait for its end"
        slot = int(record["slot"])
        again = backfill_line(record["entry"], slot, slot, "--reprocess", "completed")
        return Outcome.REFUSED, f"it has succeeded; to run it again all the same: {again}"
    if record.get("task") not in tasks:
        task = shown(record.get("task"))
        return Outcome.REFUSED, f"task {task} is neither in the schedule nor registered any more"
    if dry_run:
        return Outcome.WOULD, None
    answer = operator.controls.replay(record["id"], change=change, entry=record["entry"])
    logger.info(logfmt("Run replayed", run_id=record["id"], outcome=answer, by=operator.by))
    match answer:
        case Replay.REPLAYED:
            operator.sender.sent_events.pushed_runs(operator.ledger, [record["id"]])
            return Outcome.REPLAYED, None
        case Replay.IN_FLIGHT:
            return Outcome.UNDER_WAY, "another command was faster"
        case Replay.LOST:
            return Outcome.REFUSED, "its message is not kept any more; use a backfill"
        case Replay.UNKNOWN:
            return Outcome.REFUSED, "it is not in the ledger any more"


def _discard(
    operator: Operator, record: Record, stopping: Collection[str], change: Change, *, dry_run: bool
) -> Result:
    if record["state"] != RunState.DEAD and record["id"] not in stopping:
        return Outcome.REFUSED, f"it is not a dead letter, it is {record['state']}"
    if dry_run:
        return Outcome.WOULD, None
    discarded = operator.controls.discard(record["id"], change=change, entry=record["entry"])
    logger.info(logfmt("Dead letter discarded", run_id=record["id"], by=operator.by))
    return (Outcome.DISCARDED, None) if discarded else (Outcome.REFUSED, "another command was faster")


def _bury(operator: Operator, record: Record, change: Change, *, dry_run: bool) -> Result:
    run_id, state = record["id"], RunState(record["state"])
    if state not in (RunState.WAITING, RunState.QUEUED):
        return Outcome.REFUSED, f"it is {state}; only a run that has not started can be buried"
    if dry_run:
        return Outcome.WOULD, None
    error = f"buried by {operator.by}" if operator.by else "buried by hand"
    end = operator.leases.give_up(
        run_id, change=change, entry=record["entry"], state=RunState.DEAD, error=error
    )
    logger.info(logfmt("Run buried", run_id=run_id, outcome=end.outcome, by=operator.by))
    if end.outcome is not ReportOutcome.RECORDED:
        return Outcome.REFUSED, "it has started meanwhile"
    return Outcome.BURIED, None


def _letter(record: Record, letter: Record, died: int) -> DeadLetter:
    category = letter.get("category")
    return DeadLetter(
        run=run_of(record),
        died_at=to_datetime(died),
        category=Category(category) if category in list(Category) else Category.UNKNOWN,
        decision=decision_of(record),
        last_checkpoint=None,
        exception=_text(letter.get("type")),
        traceback=_text(letter.get("traceback")),
        details={
            name: redacted_value(value, name=name)
            for name, value in letter.items()
            if name not in ("category", "type", "traceback")
        },
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _text_of(letter: DeadLetter) -> str:
    run = letter.run
    parts = (run.run_id, run.entry, run.task, run.error, run.worker, letter.exception, letter.traceback)
    return "\n".join(part for part in parts if part).casefold()
