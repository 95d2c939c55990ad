"""Spans: divide slots so that one run stands for many (`select: span`, and a backfill with ``span``)."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import attrgetter

from celery_catchup.model import Instant, Slot
from celery_catchup.planning.candidates import Stretch


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring slots for which the run of the newest one, ``end``, stands.

    ``slots`` counts them without those that have a run of their own; ``newest`` is the stretch of the end,
    ``others`` are those of all other slots.
    """

    first: Instant
    end: Slot
    slots: int
    newest: Stretch
    others: tuple[Stretch, ...]

    @property
    def size(self) -> tuple[Instant | None, int]:
        """The first slot and the number of slots; a span of one slot is an ordinary run."""
        return (None, 1) if self.slots == 1 else (self.first, self.slots)


def find_spans(
    stretches: Iterable[Stretch], taken: Collection[Slot], *, longest: int | None, most: int | None = None
) -> tuple[list[Span], list[Stretch]]:
    """Divide the slots without a run into spans of at most ``longest`` milliseconds, oldest first; find at
    most ``most`` of them.

    ``taken`` slots have a run. Returns also what is left: stretches in which every slot has one, if all spans
    were found.
    """
    rest = deque(sorted((one for one in stretches if one.after < one.until), key=attrgetter("after")))
    low, high = 0, max((one.until for one in rest), default=0)
    spans, having = list[Span](), sorted(taken)
    while len(spans) != most and (first := _first(rest, taken, low)) is not None:
        until = high if longest is None else min(high, first.at - 1 + longest)
        part = [one.clipped(low, until) for one in _beginning_before(rest, until)]
        end = max(slot for one in part if (slot := _free(one, taken, newest_first=True)) is not None)
        newest = next(one for one in part if one.contains(end)).clipped(end.at - 1, end.at)
        spans.append(Span(first.at, end, _count(part, having, low, until), newest, tuple(_others(part, end))))
        low = until
        while rest and rest[0].until <= low:
            rest.popleft()
    return spans, [one.clipped(low, high) for one in rest]


def _beginning_before(stretches: Iterable[Stretch], until: Instant) -> Iterator[Stretch]:
    return takewhile(lambda one: one.after < until, stretches)


def _first(stretches: Iterable[Stretch], taken: Collection[Slot], after: Instant) -> Slot | None:
    """Return the first slot without a run; the stretches are in the order in which they begin."""
    found: Slot | None = None
    for one in stretches:
        if found is not None and one.after >= found.at:
            break
        slot = _free(one.clipped(after, one.until), taken)
        if slot is not None and (found is None or slot < found):
            found = slot
    return found


def _free(stretch: Stretch, taken: Collection[Slot], *, newest_first: bool = False) -> Slot | None:
    if stretch.after >= stretch.until:
        return None
    return next((slot for slot in stretch.slots(newest_first=newest_first) if slot not in taken), None)


def _count(part: Sequence[Stretch], taken: Sequence[Slot], low: Instant, until: Instant) -> int:
    """Count the slots of the stretches in ``(low, until]`` without a run."""
    whole = [one for one in part if one.after < one.until]
    near = taken[
        bisect_right(taken, low, key=attrgetter("at")) : bisect_right(taken, until, key=attrgetter("at"))
    ]
    having = sum(any(one.contains(slot) for one in whole) for slot in near)
    return sum(one.timetable.count(one.after, one.until) for one in whole) - having


def _others(part: Sequence[Stretch], end: Slot) -> Iterator[Stretch]:
    for one in part:
        yield one.clipped(one.after, end.at - 1 if one.schedule == end.schedule else end.at)
        yield one.clipped(end.at, one.until)
