"""A drawing in words: how many slots of each kind it shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Protocol

from celery_catchup.flower.drawing.glyphs import MARKS, mark_of
from celery_catchup.operations.timeline import WORST_FIRST


class Slots(Protocol):
    """Neighbouring slots of one kind; one, or a number of them."""

    @property
    def first(self) -> datetime:
        """The first of them."""

    @property
    def last(self) -> datetime:
        """The last of them."""

    @property
    def count(self) -> int:
        """How many there are."""

    @property
    def mark(self) -> str:
        """What became of them: the name of a mark."""

    @property
    def reason(self) -> str | None:
        """Why, when that is to be told."""

    @property
    def run_id(self) -> str | None:
        """The run, when they are one slot that has one."""

    @property
    def started_at(self) -> datetime | None:
        """When that run started."""

    @property
    def counts(self) -> Mapping[str, int] | None:
        """How many there are of each mark, when they have several."""


def tally(slots: Iterable[Slots]) -> str:
    """``24 slots: 20 on time, 4 caught up late``."""
    counts = Counter[str]()
    for one in slots:
        for mark, count in (one.counts or {one.mark: one.count}).items():
            counts[mark_of(mark).name] += count
    total = sum(counts.values())
    return f"{total} slot{'s' if total > 1 else ''}: {_listed(counts)}" if total else "no slots"


def _listed(counts: Mapping[str, int]) -> str:
    told = ((counts.get(name), MARKS[name].words) for name in reversed(WORST_FIRST))
    return ", ".join(f"{count} {words}" for count, words in told if count)


def title(one: Slots) -> str:
    """What a pointer over the slot is told."""
    reason = f" ({one.reason})" if one.reason else ""
    words = _listed(one.counts) if one.counts else f"{mark_of(one.mark).words}{reason}"
    if one.count > 1:
        return f"{one.count} slots {stamp(one.first)} – {stamp(one.last)}: {words}"
    started = "" if one.started_at is None else f", started {stamp(one.started_at)}"
    return f"{stamp(one.first)}: {words}{started}"


def stamp(moment: datetime) -> str:
    """``2026-02-07 10:00Z``; seconds only when there are any."""
    return f"{moment:%Y-%m-%d %H:%M:%SZ}" if moment.second else f"{moment:%Y-%m-%d %H:%MZ}"
