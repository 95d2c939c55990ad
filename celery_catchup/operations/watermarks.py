"""Show and move watermarks; let an entry continue under another name."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from celery_catchup.error_text import shown
from celery_catchup.events.log_lines import logfmt
from celery_catchup.model import Instant, to_datetime, to_instant, to_rfc3339
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.previews import Preview, preview
from celery_catchup.operations.refusals import RefusedError, UnknownEntryError
from celery_catchup.planning.entry import EntryState
from celery_catchup.store import AuditAction
from celery_catchup.store.controls import with_moved_watermarks
from celery_catchup.store.store import read_json, stored_instant, stored_time

logger = logging.getLogger(__name__)

_ADVICE = "it has no watermark; set it to False in catchup_entries to have one"


@dataclass(frozen=True, slots=True)
class Watermark:
    """Up to which time an entry is decided, and from which it would be caught up now."""

    entry: str
    watermark: datetime | None
    first_seen_at: datetime | None
    manual_start: datetime | None
    paused_at: datetime | None
    replay_from: datetime


@dataclass(frozen=True, slots=True)
class WatermarkReport:
    """The scheduler's own watermark, and those of the entries."""

    scheduler: datetime | None
    entries: tuple[Watermark, ...]


@dataclass(frozen=True, slots=True)
class WatermarkMove:
    """Watermarks that were, or would be, moved to ``watermark``.

    ``before`` is what the next catch-up would have done, ``after`` what it will do; ``limits`` is why it
    begins later than ``watermark``, by entry.
    """

    entries: tuple[str, ...]
    watermark: datetime
    scheduler: bool
    before: tuple[Preview, ...]
    after: tuple[Preview, ...]
    limits: dict[str, str]


def names_with_watermark(operator: Operator, names: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the entries of these names and patterns, or all that have a watermark."""
    return operator.with_policy(names, advice=_ADVICE) or tuple(operator.declared)


def show_watermarks(operator: Operator, names: Sequence[str] = ()) -> WatermarkReport:
    """Show the watermarks of the scheduler and of these entries, or of all with a policy."""
    wanted = names_with_watermark(operator, names)
    stored, now = operator.read_stored(wanted), operator.now()
    tracked = operator.tracked(stored, now, set(wanted))  # without entries whose schedule fails
    scheduler = stored_instant(stored.watermark)
    found = []
    for name in wanted:
        one = tracked.get(name)
        scope = None if one is None else one.scope(now if scheduler is None else scheduler, now)
        found.append(
            Watermark(
                entry=name,
                watermark=stored_time(stored.decided.get(name)),
                first_seen_at=stored_time(stored.first_seen.get(name)),
                manual_start=None if one is None else stored_time(one.state.manual_start),
                paused_at=stored_time((read_json(stored.paused.get(name)) or {}).get("at")),
                replay_from=to_datetime(now if scope is None else scope.begin),
            )
        )
    return WatermarkReport(stored_time(scheduler), tuple(found))


def set_watermark(operator: Operator, name: str, at: datetime, *, dry_run: bool = False) -> WatermarkMove:
    """Move the watermark of an entry, or of those that match a pattern: earlier slots are dropped, later
    ones caught up as the policy says."""
    instant, now = to_instant(at), operator.now()
    if instant > now:
        raise RefusedError(
            f"{to_rfc3339(instant)} is in the future; slots until then would be lost: pause the entry instead"
        )
    names = operator.with_policy([name], advice=_ADVICE)
    return _move(operator, names, instant, action=AuditAction.WATERMARK_SET, dry_run=dry_run)


def reset_watermarks(
    operator: Operator, names: Sequence[str] = (), *, everything: bool = False, dry_run: bool = False
) -> WatermarkMove:
    """Move the watermarks of these entries to now: what they missed is dropped. With ``everything`` it is
    all entries, and the scheduler's own watermark."""
    wanted = tuple(operator.declared) if everything else operator.with_policy(names, advice=_ADVICE)
    action = AuditAction.WATERMARK_RESET
    return _move(operator, wanted, operator.now(), action=action, scheduler=everything, dry_run=dry_run)


def list_orphans(operator: Operator) -> list[str]:
    """List entries that are stored and not declared any more: removed, or renamed."""
    return sorted(set(operator.read_stored().first_seen) - set(operator.schedule))


def rename_entry(operator: Operator, old: str, new: str) -> None:
    """Let ``new`` continue where ``old``, which is not declared any more, stopped."""
    if old in operator.schedule:
        raise RefusedError(f"entry {shown(old)} is still declared; rename it in beat_schedule first")
    operator.with_policy([operator.one(new)], advice=_ADVICE)
    stored = operator.read_for_change()
    change = operator.change(AuditAction.WATERMARK_RENAME, [old, new])
    if old not in stored.first_seen or not operator.controls.rename_entry(old, new, change=change):
        known = ", ".join(map(shown, list_orphans(operator))) or "none"
        raise UnknownEntryError(f"nothing is stored of {shown(old)}; entries without a declaration: {known}")
    logger.info(logfmt("Entry renamed", entry=new, was=old, by=operator.by))


def _move(
    operator: Operator,
    names: Sequence[str],
    at: Instant,
    *,
    action: AuditAction,
    scheduler: bool = False,
    dry_run: bool,
) -> WatermarkMove:
    stored, now = operator.read_for_change(), operator.now()
    before = preview(operator, names, stored=stored)
    moved = with_moved_watermarks(stored, names, at, scheduler=scheduler)
    after = preview(operator, names, stored=moved)
    tracked = operator.tracked(moved, now, set(names))
    limits = {
        one.entry: _limit(tracked[one.entry].state, to_instant(one.since))
        for one in after
        if to_instant(one.since) > at and one.entry in tracked
    }
    if not dry_run:
        change = operator.change(action, names, watermark=to_rfc3339(at), scheduler=scheduler)
        operator.controls.move_watermarks(names, at, change=change, scheduler=scheduler)
        for name in names:
            logger.info(logfmt("Watermark moved", entry=name, watermark=to_rfc3339(at), by=operator.by))
    return WatermarkMove(tuple(names), to_datetime(at), scheduler, tuple(before), tuple(after), limits)


def _limit(state: EntryState, since: Instant) -> str:
    """Explain why nothing before this instant is caught up."""
    match since:
        case state.first_seen_at:
            return "the entry was first seen then"
        case state.changed_at:
            return "its schedule changed then (on_schedule_change: from_now)"
        case _:
            return "the window reaches no further"
