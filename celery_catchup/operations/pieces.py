"""Pieces: a stretch of runs, cut where something else lies in between."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from celery_catchup.model import Instant
from celery_catchup.operations.gaps import Span


def pieces(slots: Sequence[Instant], *, others: Sequence[Instant], near: int) -> Iterator[Span]:
    """The slots as spans, each of them once, in order.

    No piece has one of the ``others`` (in order) between its slots, nor neighbours that are more than
    ``near`` milliseconds apart: it is as good as evenly spread.
    """
    if len(slots) == 1:
        yield Span(slots[0], slots[0], 1)
        return
    between = others[bisect_right(others, slots[0]) : bisect_left(others, slots[-1])]
    cuts = {bisect_left(slots, other) for other in between}
    cuts |= {place for place, (one, two) in enumerate(pairwise(slots), 1) if two - one > near}
    for begin, end in pairwise((0, *sorted(cuts), len(slots))):
        yield Span(slots[begin], slots[end - 1], end - begin)
