"""Create, list, pause, resume and cancel backfills: ranges of slots that the scheduler runs on request."""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Any

from celery_catchup.config.durations import format_duration
from celery_catchup.config.policy import OnFailure
from celery_catchup.error_text import shown
from celery_catchup.errors import TooManySlotsError
from celery_catchup.events.log_lines import logfmt
from celery_catchup.model import RunState, to_datetime, to_instant, to_milliseconds, to_rfc3339
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.previews import Preview, preview_plan
from celery_catchup.operations.refusals import KeyReusedError, RefusedError, check_unique
from celery_catchup.operations.runs import list_runs
from celery_catchup.planning.entry import Entry, EntryState
from celery_catchup.planning.planner import plan, survey
from celery_catchup.planning.scope import Reprocess, Scope
from celery_catchup.planning.scope import backfill as scope_of
from celery_catchup.store import AuditAction, Backfill

logger = logging.getLogger(__name__)

_MOST_COUNTED = 2000
"""Runs of a backfill whose states are counted."""

_MOST_SPANS = 2000
"""Spans of a backfill that begins with the newest: each part counts all spans before it."""

_ADVICE = (
    "backfills need one: set it to False in catchup_entries; live slots then run as before, and a slot "
    "that is missed while beat is down does not run late any more"
)


MOST_SLOTS = 100_000
"""Slots of a backfill, unless the request allows more: a typo in the year asks for millions."""


class BackfillState(StrEnum):
    """The state of a backfill."""

    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    COMPLETED = "completed"


_ACTIONS = {
    BackfillState.RUNNING: AuditAction.BACKFILL_RESUME,
    BackfillState.PAUSED: AuditAction.BACKFILL_PAUSE,
    BackfillState.CANCELLED: AuditAction.BACKFILL_CANCEL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRequest:
    """The range and options of a backfill; both ends belong to the range. With ``span``, one run stands for
    the slots of up to that time."""

    entry: str
    start: datetime
    end: datetime
    reprocess: Reprocess = Reprocess.NONE
    max_active: int = 1
    newest_first: bool = False
    max_slots: int = MOST_SLOTS
    span: timedelta | None = None

    def changed(self, **changes: Any) -> BackfillRequest:
        """Return the request with other options."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class BackfillProgress:
    """The runs of a backfill by state, counted up to a limit, and when it will be done if it goes on like
    this; null when that cannot be said."""

    states: dict[RunState, int]
    counted_all: bool
    done_at: datetime | None


@dataclass(frozen=True, slots=True)
class BackfillView:
    """A backfill and its progress; ``waiting`` of its runs have not been sent yet. ``requested_by`` is who
    asked for it, null when that is not known. With ``span`` one run stands for the slots of up to that
    time, in seconds; the others are skipped as covered. After a dry run ``id`` is empty."""

    id: str
    entry: str
    state: BackfillState
    start: datetime
    end: datetime
    reprocess: Reprocess
    newest_first: bool
    max_active: int
    created_at: datetime
    total: int
    dispatched: int
    skipped: int
    waiting: int
    requested_by: str | None
    span: timedelta | None = None

    @property
    def decided(self) -> int:
        """Slots that are dispatched or skipped."""
        return self.dispatched + self.skipped

    @property
    def sent(self) -> int:
        """Runs whose message is sent."""
        return self.dispatched - self.waiting

    @property
    def handled(self) -> int:
        """Slots that are skipped, or whose message is sent."""
        return self.decided - self.waiting

    @property
    def ended(self) -> bool:
        """Whether it dispatches nothing more."""
        return self.state in ("cancelled", "completed")


def preview_backfill(operator: Operator, request: BackfillRequest) -> Preview:
    """Preview each slot of the range. Raise `BackfillError` for an impossible range, and `TooManySlotsError`
    for one of more slots than the operator's ``most_planned``, or without that, than the request allows."""
    entry, state, scope = _read(operator, request)
    most = request.max_slots if operator.most_planned is None else operator.most_planned
    if (total := survey(entry, scope)) > most:
        more = f", or allow more: --max-slots {total}" if operator.most_planned is None else ""
        raise TooManySlotsError(
            f"the range has {total:,} slots, and a preview may have {most:,}; ask for a part{more}"
        )
    planned, newest_first = plan(entry, state, scope), request.newest_first
    return preview_plan(operator, entry, planned, scope.now, paused=state.paused, newest_first=newest_first)


def backfill_names(operator: Operator, written: str) -> tuple[str, ...]:
    """Return the entries of a name or pattern that can be backfilled."""
    return operator.with_policy([written], advice=_ADVICE)


def count_slots(operator: Operator, requests: Sequence[BackfillRequest]) -> int:
    """Count the slots of ranges; raise `RefusedError` when one has none, and `TooManySlotsError` when they
    have more than a request allows."""
    total = 0
    for request in requests:
        entry, _, scope = _read(operator, request)
        found = survey(entry, scope)
        if not found:
            raise RefusedError(f"entry {shown(request.entry)} has no slot in that range")
        total += found
    most = min(request.max_slots for request in requests)
    if total > most:
        raise TooManySlotsError(
            f"the range has {total:,} slots, and the backfill may have {most:,}; ask for a "
            f"part, or allow more: --max-slots {total} (maxSlots in the HTTP API)"
        )
    return total


def create_backfill(operator: Operator, request: BackfillRequest) -> BackfillView:
    """Create a backfill; the leading beat begins with its next tick."""
    return create_once(operator, request)[0]


def create_once(
    operator: Operator, request: BackfillRequest, *, key: str | None = None, dry_run: bool = False
) -> tuple[BackfillView, bool]:
    """Create a backfill unless the same person has created one with this key, or it is a dry run; return
    the backfill, and whether it is new."""
    operator.read_for_change()
    # A key's backfill has an id of its own, so that a second request finds it.
    digest = "" if key is None else sha256(f"{operator.by}\0{key}".encode()).hexdigest()[:12]
    wanted = Backfill(
        id=digest or secrets.token_hex(4),
        entry=request.entry,
        start=to_instant(request.start),
        end=to_instant(request.end),
        reprocess=str(request.reprocess),
        newest_first=request.newest_first,
        max_active=request.max_active,
        created=operator.now(),
        total=count_slots(operator, [request]),
        span=_milliseconds(request.span),
        by=operator.by or None,
    )
    if dry_run:
        return replace(_view(operator, wanted), id=""), False
    change = operator.change(
        AuditAction.BACKFILL,
        [request.entry],
        [wanted.id],
        start=to_rfc3339(wanted.start),
        end=to_rfc3339(wanted.end),
        slots=wanted.total,
        reprocess=wanted.reprocess,
        newest_first=wanted.newest_first,
        max_active=wanted.max_active,
        **({} if request.span is None else {"span": format_duration(request.span)}),
    )
    created = operator.backfills.create(wanted, change=change)
    if created is not wanted:
        _check_same(created, wanted)
        return _view(operator, created), False
    logger.info(logfmt("Backfill created", id=created.id, entry=request.entry, by=operator.by))
    return _view(operator, created), True


def _check_same(first: Backfill, second: Backfill) -> None:
    """Raise `KeyReusedError` unless both ask for the same. A relative time moves on between the two."""
    fields = ("entry", "reprocess", "newest_first", "max_active", "span")
    moved = max(abs(second.start - first.start), abs(second.end - first.end))
    same = all(getattr(first, name) == getattr(second, name) for name in fields)
    if not same or moved > second.created - first.created:
        raise KeyReusedError(
            f"the idempotency key belongs to backfill {first.id}, which is another one; send a new key"
        )


def list_backfills(operator: Operator) -> list[BackfillView]:
    """List all stored backfills, the newest first."""
    return [_view(operator, one) for one in operator.backfills.all()]


def show_backfill(operator: Operator, beginning: str) -> BackfillView:
    """Show the backfill with this id, or the only one whose id begins with it."""
    return _view(operator, _find(operator, beginning))


def backfill_progress(operator: Operator, view: BackfillView) -> BackfillProgress:
    """Count the runs of a backfill by state, and estimate its end from the time that they took so far."""
    found = list_runs(
        operator, [view.entry], since=view.start, until=view.end, backfill=view.id, limit=_MOST_COUNTED
    )
    states = Counter(run.state for run in found.runs)
    ended = sum(count for state, count in states.items() if not state.in_flight)
    left = view.total - view.skipped - ended
    now = to_datetime(operator.now())
    known = view.state == "running" and ended and left and found.cursor is None
    return BackfillProgress(
        states={state: states[state] for state in RunState if states[state]},
        counted_all=found.cursor is None,
        done_at=now + (now - view.created_at) / ended * left if known else None,
    )


def set_backfill_state(
    operator: Operator, beginning: str, state: str, *, dry_run: bool = False, whole_id: bool = False
) -> BackfillView:
    """Pause (``paused``), resume (``running``) or cancel (``cancelled``) a backfill that has not ended. With
    ``whole_id``, the beginning of an id is not enough."""
    operator.read_for_change()
    one = _find(operator, beginning, whole_id=whole_id)
    if one.state != state and one.state not in ("running", "paused"):
        raise RefusedError(f"backfill {one.id} is {one.state} already")
    if one.state == state or dry_run:
        return _view(operator, one)
    change = operator.change(_ACTIONS[BackfillState(state)], [one.entry], [one.id])
    answer = operator.backfills.set_state(one.id, state, change=change)
    logger.info(logfmt("Backfill directed", id=one.id, state=answer, by=operator.by))
    if answer != state:
        raise RefusedError(f"backfill {one.id} is {answer or 'gone'} already")
    return _view(operator, operator.backfills.get(one.id) or one)


def _read(operator: Operator, request: BackfillRequest) -> tuple[Entry, EntryState, Scope]:
    """Return the entry, its state with the runs of the range, and the range."""
    (name,) = operator.with_policy([operator.one(request.entry)], advice=_ADVICE)
    now = operator.now()
    tracked = operator.tracked(operator.read_stored([name]), now, {name}).get(name)
    if tracked is None:
        raise RefusedError(f"the schedule of entry {shown(name)} fails at present; try again later")
    entry, newest_first = tracked.entry, request.newest_first
    if newest_first and entry.policy.on_failure is OnFailure.STOP:
        raise RefusedError(
            f"entry {shown(name)} has on_failure: stop, so each run waits for the one before it; "
            "newest first, a run would wait for a later one; leave out newest first"
        )
    start, end, reprocess = to_instant(request.start), to_instant(request.end), request.reprocess
    if (
        newest_first
        and request.span is not None
        and (request.end - request.start) // request.span > _MOST_SPANS
    ):
        raise RefusedError(
            f"newest first, the range may have {_MOST_SPANS:,} spans, which are counted from the oldest; "
            "use a longer span, or leave out newest first"
        )
    scope = scope_of(
        entry,
        start=start,
        end=end,
        now=now,
        reprocess=reprocess,
        newest_first=newest_first,
        span=_milliseconds(request.span),
    )
    recorded = operator.states.recorded(name, start - 1, end)
    existing = entry.slots_of(operator.store.namespace, recorded)
    return entry, replace(tracked.state, existing=existing), scope


def _find(operator: Operator, beginning: str, *, whole_id: bool = False) -> Backfill:
    every = operator.backfills.all() if beginning else []
    found = [one for one in every if one.id == beginning.lower()]
    if not found and not whole_id:
        found = [one for one in every if one.id.startswith(beginning.lower())]
    check_unique(beginning, [one.id for one in found], what="backfill", command="backfill list")
    return found[0]


def _view(operator: Operator, one: Backfill) -> BackfillView:
    return BackfillView(
        id=one.id,
        entry=one.entry,
        state=BackfillState(one.state),
        start=to_datetime(one.start),
        end=to_datetime(one.end),
        reprocess=Reprocess(one.reprocess),
        newest_first=one.newest_first,
        max_active=one.max_active,
        created_at=to_datetime(one.created),
        total=one.total,
        dispatched=one.dispatched,
        skipped=one.skipped,
        waiting=operator.backfills.waiting(one),
        requested_by=one.by,
        span=None if one.span is None else timedelta(milliseconds=one.span),
    )


def _milliseconds(span: timedelta | None) -> int | None:
    return None if span is None else to_milliseconds(span)
