"""Drawings in words: the number of slots of each mark, and the tooltip of a slot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from celery_catchup.flower.drawing.glyphs import GLYPHS
from celery_catchup.flower.markup import plural
from celery_catchup.operations.timeline import WORST_FIRST, TimelineSlots


def caption(slots: Iterable[TimelineSlots]) -> str:
    """Count the slots by mark: ``24 slots: 20 on time, 4 caught up late``."""
    counts = Counter[str]()
    for one in slots:
        counts.update(one.counts or {one.mark: one.count})
    total = counts.total()
    return f"{plural(total, 'slot')}: {_by_mark(counts)}" if total else "no slots"


def tooltip(one: TimelineSlots) -> str:
    """Describe one slot, or neighbouring slots."""
    reason = f" ({one.reason})" if one.reason else ""
    words = _by_mark(one.counts) if one.counts else f"{GLYPHS[one.mark].words}{reason}"
    if one.count > 1:
        return f"{plural(one.count, 'slot')} {stamp(one.first)} – {stamp(one.last)}: {words}"
    started = "" if one.started_at is None else f", started {stamp(one.started_at)}"
    return f"{stamp(one.first)}: {words}{started}"


def stamp(moment: datetime) -> str:
    """Format a time: ``2026-02-07 10:00Z``; with seconds only where it has any."""
    return f"{moment:%Y-%m-%d %H:%M:%SZ}" if moment.second else f"{moment:%Y-%m-%d %H:%MZ}"


def _by_mark(counts: Mapping[str, int]) -> str:
    present = ((counts.get(mark), GLYPHS[mark].words) for mark in reversed(WORST_FIRST))
    return ", ".join(f"{count:,} {words}" for count, words in present if count)
