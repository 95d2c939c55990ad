"""Spans: divide missed slots so that one run stands for many (`select: span`)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from celery_catchup.model import Instant, SkipReason, Slot
from celery_catchup.planning.candidates import Candidates, Stretch


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
    stretches: Sequence[Stretch], existing: Collection[Slot], *, longest: int | None
) -> tuple[list[Span], list[Stretch]]:
    """Divide the slots into spans of at most ``longest`` milliseconds, oldest first.

    Returns also what is left: stretches in which every slot has a run.
    """
    spans = []
    low, high = _ends(stretches)
    while (first := next(_free(stretches, existing, low, high).slots(), None)) is not None:
        until = high if longest is None else min(high, first.at - 1 + longest)
        part = _free(stretches, existing, low, until)
        end = next(part.slots(newest_first=True))
        newest = next(one for one in stretches if one.contains(end)).clipped(end.at - 1, end.at)
        spans.append(Span(first.at, end, part.count, newest, tuple(_others(stretches, low, until, end))))
        low = until
    return spans, [one.clipped(low, high) for one in stretches]


def _ends(stretches: Sequence[Stretch]) -> tuple[Instant, Instant]:
    return (
        min((one.after for one in stretches), default=0),
        max((one.until for one in stretches), default=0),
    )


def _free(
    stretches: Sequence[Stretch], existing: Collection[Slot], low: Instant, high: Instant
) -> Candidates:
    """Return the slots in ``(low, high]`` without a run."""
    inside = [one.clipped(low, high) for one in stretches]
    return Candidates(inside, dict.fromkeys(existing, SkipReason.ALREADY_EXISTS))


def _others(stretches: Sequence[Stretch], low: Instant, until: Instant, end: Slot) -> Iterator[Stretch]:
    for one in stretches:
        yield one.clipped(low, end.at - 1 if one.schedule == end.schedule else end.at)
        yield one.clipped(end.at, until)
