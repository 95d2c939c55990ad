"""Merge the slots of several schedules in one order; count and cut them without listing them.

A policy is applied to positions in this order, so five years of minutely slots cost no more than the few
that run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import merge
from itertools import chain, islice

from celery_catchup.model import Instant, Skip, SkipReason, Slot
from celery_catchup.timetables.timetable import Timetable

_STEPS = 4
"""Slots from the start that are found one by one."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The slots of one schedule in ``(after, until]``."""

    schedule: int
    timetable: Timetable
    after: Instant
    until: Instant

    def slots(self, *, newest_first: bool = False) -> Iterator[Slot]:
        """Yield its slots."""
        instants = self.timetable.slots(self.after, self.until, newest_first=newest_first)
        return (Slot(at, self.schedule) for at in instants)

    def last(self) -> Slot | None:
        """Return its newest slot."""
        at = self.timetable.previous_before(self.until + 1)
        return Slot(at, self.schedule) if at is not None and at > self.after else None

    def contains(self, slot: Slot) -> bool:
        """Tell whether the schedule has this slot in the range."""
        inside = slot.schedule == self.schedule and self.after < slot.at <= self.until
        return inside and self.timetable.next_after(slot.at - 1) == slot.at

    def clipped(self, after: Instant, until: Instant) -> Stretch:
        """Return the part inside ``(after, until]``."""
        return Stretch(self.schedule, self.timetable, max(self.after, after), min(self.until, until))

    def skip(self, reason: SkipReason) -> Skip | None:
        """Return all of its slots as one skip; None when it has none."""
        count = self.timetable.count(self.after, self.until) if self.after < self.until else 0
        if not count:
            return None
        first, last = self.timetable.next_after(self.after), self.timetable.previous_before(self.until + 1)
        assert first is not None
        assert last is not None
        return Skip(self.schedule, first, last, count, reason)


class Candidates:
    """The slots of the stretches in order, without the ``excluded`` ones."""

    def __init__(self, stretches: Iterable[Stretch], excluded: Mapping[Slot, SkipReason]) -> None:
        self.stretches = tuple(stretch for stretch in stretches if stretch.after < stretch.until)
        self.excluded = {
            slot: reason
            for slot, reason in excluded.items()
            if any(stretch.contains(slot) for stretch in self.stretches)
        }

    @cached_property
    def count(self) -> int:
        """The number of candidates."""
        listed = sum(s.timetable.count(s.after, s.until) for s in self.stretches)
        return listed - len(self.excluded)

    def slots(self, *, newest_first: bool = False) -> Iterator[Slot]:
        """Yield all candidates by time, ties in the order of declaration."""
        streams = [_joined(stretches, newest_first=newest_first) for stretches in self._by_schedule.values()]
        merged = streams[0] if len(streams) == 1 else merge(*streams, reverse=newest_first)
        return (slot for slot in merged if slot not in self.excluded) if self.excluded else merged

    @cached_property
    def _by_schedule(self) -> Mapping[int, Sequence[Stretch]]:
        """The stretches of each schedule, ascending; those of one schedule do not overlap."""
        found: dict[int, list[Stretch]] = {}
        for stretch in self.stretches:
            found.setdefault(stretch.schedule, []).append(stretch)
        return found

    def at(self, position: int) -> Slot:
        """Find the slot at a position, from the nearer end."""
        if len(self.stretches) == 1 and not self.excluded and position < _STEPS:
            return self._by_steps(position)
        from_end = position >= self.count // 2
        steps = self.count - 1 - position if from_end else position
        return next(islice(self.slots(newest_first=from_end), steps, None))

    def _by_steps(self, position: int) -> Slot:
        """Take a few steps, which the timetable caches, instead of starting a walk."""
        (stretch,) = self.stretches
        at = stretch.after
        for _ in range(position + 1):
            following = stretch.timetable.next_after(at)
            assert following is not None
            at = following
        return Slot(at, stretch.schedule)

    def between(self, first: Slot | None, last: Slot | None) -> Iterator[Stretch]:
        """Yield one stretch per schedule from ``first`` to ``last``, both included; None is the end."""
        for stretch in self.stretches:
            after, until = stretch.after, stretch.until
            if first is not None:
                after = first.at - 1 if stretch.schedule >= first.schedule else first.at
            if last is not None:
                until = last.at if stretch.schedule <= last.schedule else last.at - 1
            yield stretch.clipped(after, until)


def _joined(stretches: Sequence[Stretch], *, newest_first: bool) -> Iterator[Slot]:
    """Yield the slots of one schedule's stretches, which a long range with exclusions has many of."""
    ordered = reversed(stretches) if newest_first else stretches
    return chain.from_iterable(stretch.slots(newest_first=newest_first) for stretch in ordered)


def skips_of(stretch: Stretch, reason: SkipReason, excluded: Iterable[Slot]) -> Iterator[Skip]:
    """Yield the stretch as skips, split at the slots that have another decision."""
    after = stretch.after
    holes = sorted(s.at for s in excluded if s.schedule == stretch.schedule and stretch.after < s.at)
    for hole in (*(at for at in holes if at <= stretch.until), None):
        part = stretch.clipped(after, stretch.until if hole is None else hole - 1)
        if (skip := part.skip(reason)) is not None:
            yield skip
        after = after if hole is None else hole
