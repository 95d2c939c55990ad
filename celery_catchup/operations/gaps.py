"""Gaps: the slots of a timetable that nothing is recorded of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from celery_catchup.model import Instant
from celery_catchup.timetables.timetable import Timetable

_LISTED = 20_000
"""Slots of a stretch that are looked at one by one; of more, the ones between two records are counted."""


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Neighbouring slots of one schedule; a recorded one has its reason."""

    first: Instant
    last: Instant
    count: int
    reason: str | None = None


def clipped(
    table: Timetable, span: Span, after: Instant, until: Instant, *, runs: Sequence[Instant]
) -> Iterator[Span]:
    """What of a recorded span lies in ``(after, until]`` and has got no run since, as `gaps` tells it.

    A span that the timetable knows nothing of, because the schedule was another one then, stays
    one.
    """
    low, high = max(span.first - 1, after), min(span.last, until)
    if low >= high:
        return
    if not table.count(low, high):
        yield Span(low + 1, high, span.count, span.reason)
    for part in gaps(table, low, high, runs=runs, spans=(), cuts=()):
        yield replace(part, reason=span.reason)


def gaps(
    table: Timetable,
    after: Instant,
    until: Instant,
    *,
    runs: Sequence[Instant],
    spans: Sequence[Span],
    cuts: Iterable[Instant],
) -> Iterator[Span]:
    """The slots in ``(after, until]`` that are neither among the runs nor inside a span, in order.

    They come one by one, or, where they are very many, as spans that no record and no cut divides.
    """
    ends = sorted({cut for cut in cuts if after < cut < until} | {after, until})
    for low, high in pairwise(ends):
        if table.count(low, high) <= _LISTED:
            free = set(table.slots(low, high)).difference(runs)
            yield from _outside(sorted(free), _taken((), spans, low, high))
        else:
            yield from _between(table, _taken(runs, spans, low, high), low, high)


def _taken(
    runs: Sequence[Instant], spans: Sequence[Span], low: Instant, high: Instant
) -> list[tuple[Instant, Instant]]:
    """What is recorded of ``(low, high]``, in order."""
    found = [(at, at) for at in runs if low < at <= high]
    found += [(span.first, span.last) for span in spans if span.last > low and span.first <= high]
    return sorted(found)


def _outside(slots: Iterable[Instant], taken: Iterable[tuple[Instant, Instant]]) -> Iterator[Span]:
    records = iter(taken)
    begin, end = next(records, (None, None))
    for at in slots:
        while end is not None and end < at:
            begin, end = next(records, (None, None))
        if begin is None or at < begin:
            yield Span(at, at, 1)


def _between(
    table: Timetable, taken: Sequence[tuple[Instant, Instant]], low: Instant, high: Instant
) -> Iterator[Span]:
    for begin, end in taken:
        yield from _counted(table, low, begin - 1)
        low = max(low, end)
    yield from _counted(table, low, high)


def _counted(table: Timetable, low: Instant, high: Instant) -> Iterator[Span]:
    count = table.count(low, high) if low < high else 0
    first, last = table.next_after(low), table.previous_before(high + 1)
    if count and first is not None and last is not None:
        yield Span(first, last, count)
