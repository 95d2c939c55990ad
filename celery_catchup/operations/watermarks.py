"""Watermarks: shown, and moved by hand."""

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
from celery_catchup.operations.stored_times import stored_instant, stored_time
from celery_catchup.store import Stored
from celery_catchup.store.controls import with_moved_watermarks
from celery_catchup.store.records import read_json

logger = logging.getLogger(__name__)

_ADVICE = "it has no watermark; set it to False in catchup_entries to have one"


@dataclass(frozen=True, slots=True)
class Watermark:
    """Up to where an entry is decided, and from where it would be caught up now."""

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

    ``before`` is what the next catch-up would have done, ``after`` what it will do.
    """

    entries: tuple[str, ...]
    watermark: datetime
    scheduler: bool
    before: tuple[Preview, ...]
    after: tuple[Preview, ...]


def show_watermarks(operator: Operator, names: Sequence[str] = ()) -> WatermarkReport:
    """Where the scheduler and these entries, or all with a policy, are."""
    wanted = operator.with_policy(names, advice=_ADVICE) or tuple(operator.declared)
    stored, now = operator.read_stored(wanted), operator.now()
    lines = operator.tracked(stored, now, set(wanted))
    scheduler = stored_instant(stored.watermark)
    found = []
    for name in wanted:
        line = lines.get(name)  # none while its schedule fails
        from_there = None if line is None else line.scope(now if scheduler is None else scheduler, now)
        found.append(
            Watermark(
                entry=name,
                watermark=stored_time(stored.decided.get(name)),
                first_seen_at=stored_time(stored.first_seen.get(name)),
                manual_start=None if line is None else stored_time(line.state.manual_start),
                paused_at=stored_time((read_json(stored.paused.get(name)) or {}).get("at")),
                replay_from=to_datetime(now if from_there is None else from_there.replay_from),
            )
        )
    return WatermarkReport(stored_time(scheduler), tuple(found))


def set_watermark(operator: Operator, name: str, at: datetime, *, dry_run: bool = False) -> WatermarkMove:
    """Let an entry go on behind ``at``: what lies before it is let go, what lies behind it is
    caught up as the policy says."""
    instant, now = to_instant(at), operator.now()
    if instant > now:
        raise RefusedError(
            f"{to_rfc3339(instant)} is in the future; slots until then would be lost: pause the entry instead"
        )
    wanted = operator.with_policy([name], advice=_ADVICE)
    stored = operator.read_for_change()
    return _move(operator, wanted, instant, stored, dry_run=dry_run)


def reset_watermarks(
    operator: Operator, names: Sequence[str] = (), *, everything: bool = False, dry_run: bool = False
) -> WatermarkMove:
    """Let these entries go on from now: what they missed is let go. With ``everything`` it is all
    entries, and the scheduler's own watermark."""
    wanted = tuple(operator.declared) if everything else operator.with_policy(names, advice=_ADVICE)
    return _move(
        operator, wanted, operator.now(), operator.read_for_change(), scheduler=everything, dry_run=dry_run
    )


def orphans(operator: Operator, stored: Stored | None = None) -> tuple[str, ...]:
    """Entries that are stored and not declared any more: removed, or renamed."""
    found = operator.read_stored() if stored is None else stored
    return tuple(sorted(set(found.first_seen) - set(operator.schedule)))


def rename_entry(operator: Operator, old: str, new: str) -> None:
    """Let ``new`` go on where ``old`` stopped, which is not declared any more."""
    if old in operator.schedule:
        raise RefusedError(f"entry {shown(old)} is still declared; rename it in beat_schedule first")
    operator.with_policy([new], advice=_ADVICE)
    stored = operator.read_for_change()
    if old not in stored.first_seen or not operator.controls.rename_entry(old, new):
        known = ", ".join(map(shown, orphans(operator, stored))) or "none"
        raise UnknownEntryError(f"nothing is stored of {shown(old)}; entries without a declaration: {known}")
    logger.info(logfmt("Entry renamed", entry=new, was=old, by=operator.by))


def _move(
    operator: Operator,
    names: Sequence[str],
    at: Instant,
    stored: Stored,
    *,
    scheduler: bool = False,
    dry_run: bool,
) -> WatermarkMove:
    before = preview(operator, names, stored=stored)
    after = preview(operator, names, stored=with_moved_watermarks(stored, names, at, scheduler=scheduler))
    if not dry_run:
        operator.controls.move_watermarks(names, at, scheduler=scheduler)
        for name in names:
            logger.info(logfmt("Watermark moved", entry=name, watermark=to_rfc3339(at), by=operator.by))
    return WatermarkMove(tuple(names), to_datetime(at), scheduler, tuple(before), tuple(after))
