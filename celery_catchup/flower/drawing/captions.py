"""Drawings in words: the number of slots of each mark, and the tooltip of a slot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from celery_catchup.error_text import counted
from celery_catchup.flower.drawing.glyphs import GLYPHS
from celery_catchup.flower.markup import Times
from celery_catchup.operations.timeline import WORST_FIRST, TimelineSlots


def caption(slots: Iterable[TimelineSlots]) -> str:
    """Count the slots by mark: ``24 slots: 20 on time, 4 caught up late``."""
    counts = Counter[str]()
    for one in slots:
        counts.update(one.counts or {one.mark: one.count})
    total = counts.total()
    return f"{counted(total, 'slot')}: {_by_mark(counts)}" if total else "no slots"


def tooltip(one: TimelineSlots, times: Times) -> str:
    """Describe one slot, or neighbouring slots."""
    reason = f" ({one.reason})" if one.reason else ""
    words = _by_mark(one.counts) if one.counts else f"{GLYPHS[one.mark].words}{reason}"
    if one.count > 1:
        return f"{counted(one.count, 'slot')} {times.stamp(one.first)} – {times.stamp(one.last)}: {words}"
    started = (
        "" if one.started_at is None else f", started {times.stamp(one.started_at.replace(microsecond=0))}"
    )
    return f"{times.stamp(one.first)}: {words}{started}"


def _by_mark(counts: Mapping[str, int]) -> str:
    present = ((counts.get(mark), GLYPHS[mark].words) for mark in reversed(WORST_FIRST))
    return ", ".join(f"{count:,} {words}" for count, words in present if count)
