"""Stepped timetables: for schedules that only say what comes after a given instant.

Sunrises, relative intervals and users' own schedule classes cannot be counted or walked
backwards. They are walked forwards, and what was seen is remembered within bounds.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from datetime import tzinfo
from itertools import chain, islice, pairwise, takewhile
from typing import TypeAlias

from celery_catchup.errors import ScheduleError
from celery_catchup.model import Instant, to_rfc3339
from celery_catchup.timetables.zones import LAST_INSTANT, offset_period_at

Step: TypeAlias = Callable[[Instant], Instant | None]
"""The slot after an instant, or None when there will be no more; the same answer every time."""

# Steps. A million is 11 days of seconds or two years of minutes, and some minutes of work.
_BUDGET = 1_000_000
# Slots. As many are remembered one by one at the end of the chain; of those before, one in as many.
_RECENT = 1024
# Slots. Marks are thinned out beyond this: four million slots, then two in a row are one.
_MARKS = 4096
# Slots. What the minimum distance is taken from.
_SAMPLE = 100
# Milliseconds. Where a search backwards begins, at least.
_SECOND = 1000


class ForwardOnlyTable:
    """One chain of slots: ``step(anchor)``, ``step(step(anchor))``, and so on.

    The anchor itself is no slot. It may be replaced by any slot of the chain without
    changing what follows, which saves the walk from an anchor of long ago.

    Before the anchor there is no chain; a range is walked from its own ``after``, so
    there the schedule is taken to be memoryless: for one that is not, two ranges that
    begin at different instants need not agree.

    ``steady_in`` is the zone of a step that always takes the same time while the offset of that
    zone stays the same. Long ways of such a chain are added up instead of walked.

    A step that does not move forward, and a call that takes more than ``budget`` steps
    without an answer, raise `ScheduleError` under the given name.
    """

    def __init__(
        self,
        step: Step,
        *,
        anchor: Instant,
        name: str = "the schedule",
        budget: int = _BUDGET,
        steady_in: tzinfo | None = None,
    ) -> None:
        self._step = step
        self._steady_in = steady_in
        self._anchor = anchor
        self._name = name
        self._budget = budget
        # The end of the known chain without a gap, and sparse points of it before that.
        self._recent = [anchor]
        self._marks: list[Instant] = []
        self._ended = False

    # -- the timetable ---------------------------------------------------------------

    def slots(self, after: Instant, until: Instant, *, newest_first: bool = False) -> Iterator[Instant]:
        """The slots in ``(after, until]``, lazily; in reverse they are listed once, at 8 bytes each."""
        if not newest_first:
            yield from self._forward(after, until)
        else:
            yield from reversed(array("q", self._limited(self._forward(after, until))))

    def count(self, after: Instant, until: Instant) -> int:
        """How many slots are in ``(after, until]``; they have to be walked, unless the step is steady."""
        if self._steady_in is None or after < self._anchor:
            early = min(until, self._anchor) if self._steady_in is not None else until
            total = sum(1 for _ in self._limited(self._forward(after, early)))
            return total if early == until else total + self.count(self._anchor, until)
        point = next(self._forward(after, until), None)
        total = 0
        while point is not None and point <= until:
            point, added = self._leap(point, until)
            total += added + 1
            point = self._checked_step(point)
        return total

    def next_after(self, instant: Instant) -> Instant | None:
        """The first slot later than the instant."""
        return next(self._forward(instant, LAST_INSTANT), None)

    def previous_before(self, instant: Instant) -> Instant | None:
        """The last slot earlier than the instant; before the chain it is searched from ever farther back."""
        if instant > self._anchor:
            known = self._reached(instant - 1)
            slot = _last(self._limited(_until(instant - 1, self._chain(known))), default=known)
            if slot > self._anchor:
                return slot
        return self._look_back(min(instant - 1, self._anchor))

    def minimum_distance(self) -> int | None:
        """The shortest distance among the next 100 slots after the anchor.

        That is a sample and no proof: a schedule of this kind can be asked for the next
        slot only, and may come closer together later.
        """
        sample = islice(self._chain(self._anchor), _SAMPLE)
        return min((later - earlier for earlier, later in pairwise(sample)), default=None)

    # -- walking -----------------------------------------------------------------------

    def _forward(self, after: Instant, until: Instant) -> Iterator[Instant]:
        if after < self._anchor:
            yield from _until(min(until, self._anchor), self._loose(max(after, -1)))
            after = self._anchor
        if until <= after:
            return
        points = self._chain(self._reached(after))
        # Only the way to the range is limited: inside it, the caller decides how far to go.
        first = next((point for point in self._limited(points) if point > after), None)
        if first is not None:
            yield from _until(until, chain([first], points))

    def _look_back(self, until: Instant) -> Instant | None:
        first = next(self._chain(self._anchor), self._anchor)
        reach = max(first - self._anchor, _SECOND)
        while until >= 0:
            start = max(until - reach, -1)
            slot = _last(self._limited(_until(until, self._loose(start))), default=start)
            if slot > start:
                return slot
            if start < 0:
                break
            reach *= 2
        return None

    def _limited(self, points: Iterator[Instant]) -> Iterator[Instant]:
        for number, point in enumerate(points):
            if number >= self._budget:
                raise ScheduleError(
                    f"{self._name}: more than {self._budget} slots up to {to_rfc3339(point)} are too many "
                    f"to walk one by one; use a cron expression or an interval, or a shorter range"
                )
            yield point

    def _loose(self, point: Instant) -> Iterator[Instant]:
        """The slots after any instant, off the chain."""
        while (following := self._checked_step(point)) is not None:
            yield following
            point = following

    def _chain(self, point: Instant) -> Iterator[Instant]:
        """The slots after a point of the chain."""
        while (following := self._link(point)) is not None:
            yield following
            point = following

    def _checked_step(self, point: Instant) -> Instant | None:
        following = self._step(point)
        if following is None or following > LAST_INSTANT:
            return None
        if following <= point:
            raise ScheduleError(
                f"{self._name}: the slot after {to_rfc3339(point)} is {point - following} ms before it "
                f"instead of later; mend the schedule's class, its slots must increase"
            )
        return following

    # -- adding up ---------------------------------------------------------------------

    def _reached(self, instant: Instant) -> Instant:
        """A point of the chain at or before the instant, as near as can be had without a walk."""
        point = self._known_at(instant)
        leapt, added = self._leap(point, instant)
        if leapt > self._recent[-1]:
            # What is remembered one by one has no gap, so it begins again there.
            self._marks.append(self._recent[0])
            self._recent = [leapt]
        return leapt if added else point

    def _leap(self, point: Instant, until: Instant) -> tuple[Instant, int]:
        """The last slot up to an instant that follows from a point by addition, and how many slots on."""
        if self._steady_in is None:
            return point, 0
        first = self._checked_step(point)
        second = None if first is None else self._checked_step(first)
        end = min(until, offset_period_at(self._steady_in, point).end - 1)
        if first is None or second is None or second > end or second - first != first - point:
            return point, 0
        steps = (end - point) // (first - point)
        return point + steps * (first - point), steps

    # -- remembering -------------------------------------------------------------------

    def _link(self, point: Instant) -> Instant | None:
        """What follows a point of the chain, from memory where it is known."""
        if point < self._recent[0]:
            return self._checked_step(point)
        if point < self._recent[-1]:
            return self._recent[bisect_right(self._recent, point)]
        following = None if self._ended else self._checked_step(point)
        if following is None:
            self._ended = True
        else:
            self._remember(following)
        return following

    def _remember(self, point: Instant) -> None:
        self._recent.append(point)
        if len(self._recent) > 2 * _RECENT:
            self._marks.append(self._recent[0])
            del self._recent[:_RECENT]
        if len(self._marks) > _MARKS:
            del self._marks[1::2]

    def _known_at(self, instant: Instant) -> Instant:
        """The last known point of the chain at or before an instant that is not before the anchor."""
        known = self._recent if self._recent[0] <= instant else self._marks
        return known[bisect_right(known, instant) - 1]


def _until(instant: Instant, points: Iterator[Instant]) -> Iterator[Instant]:
    return takewhile(instant.__ge__, points)


def _last(points: Iterator[Instant], *, default: Instant) -> Instant:
    for point in points:
        default = point
    return default
