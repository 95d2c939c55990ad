"""Timetables that can only walk forwards: schedules that answer nothing but "what comes after this instant?".

Solar events, relative intervals and users' own schedule classes cannot be counted or walked backwards.
The table walks them forwards, and remembers points of the walk within bounds.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from datetime import tzinfo
from functools import lru_cache
from itertools import chain, islice, pairwise, takewhile
from typing import TypeAlias

from celery_catchup.errors import ScheduleError
from celery_catchup.model import Instant, to_rfc3339
from celery_catchup.timetables.zones import LAST_INSTANT, offset_period_at

Step: TypeAlias = Callable[[Instant], Instant | None]
"""Returns the slot after an instant, or None if there are no more; the same answer every time."""

# Steps. A million is 11 days of seconds or two years of minutes, and some minutes of work.
_BUDGET = 1_000_000
# Steps whose answers are cached.
_CACHED = 4096
# Slots between two remembered points of the chain.
_SPACING = 8
# Remembered points; beyond this every second one is dropped.
_MOST_POINTS = 4096
# Slots. The sample for the minimum distance.
_SAMPLE = 100
# Milliseconds. Where a search backwards begins, at least.
_SECOND = 1000


class ForwardOnlyTable:
    """One chain of slots: ``step(anchor)``, ``step(step(anchor))``, and so on.

    The anchor itself is not a slot. Any slot of the chain can replace it without changing what
    follows, which saves the walk from an old anchor.

    Before the anchor there is no chain; a range is walked from its own ``after``. There the
    schedule is assumed to be memoryless: if it is not, two ranges that begin at different
    instants need not agree.

    ``steady_in`` is the zone of a step that always takes the same time while the offset of that
    zone stays the same. Long stretches of such a chain are computed instead of walked.

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
        self._step = lru_cache(_CACHED)(step)
        self._steady_in = steady_in
        self._anchor = anchor
        self._name = name
        self._budget = budget
        self._points = [anchor]  # of the chain, ascending

    # -- the timetable ---------------------------------------------------------------

    def slots(self, after: Instant, until: Instant, *, newest_first: bool = False) -> Iterator[Instant]:
        """Yield the slots in ``(after, until]``; in reverse they are listed first, at 8 bytes each."""
        if not newest_first:
            yield from self._forward(after, until)
        else:
            yield from reversed(array("q", self._limited(self._forward(after, until))))

    def count(self, after: Instant, until: Instant) -> int:
        """Count the slots in ``(after, until]`` by walking them, unless the step is steady."""
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
        """Return the first slot later than the instant."""
        return next(self._forward(instant, LAST_INSTANT), None)

    def previous_before(self, instant: Instant) -> Instant | None:
        """Return the last slot earlier than the instant; before the anchor, search from ever farther back."""
        if instant > self._anchor:
            known = self._point_before(instant - 1)
            slot = _last(self._limited(_until(instant - 1, self._chain(known))), default=known)
            if slot > self._anchor:
                return slot
        return self._look_back(min(instant - 1, self._anchor))

    def minimum_distance(self) -> int | None:
        """Return the shortest distance among the next 100 slots after the anchor.

        That is a sample, not a proof: later slots may be closer together.
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
        points = self._chain(self._point_before(after))
        # Only the walk to the range is limited: inside it, the caller decides how far to go.
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

    def _loose(self, after: Instant) -> Iterator[Instant]:
        """Yield the slots after any instant, outside the chain."""
        while (following := self._checked_step(after)) is not None:
            yield following
            after = following

    def _chain(self, after: Instant) -> Iterator[Instant]:
        """Yield the slots after a point of the chain; remember one point in `_SPACING`."""
        for number, point in enumerate(self._loose(after), start=1):
            if number % _SPACING == 0:
                self._remember(point)
            yield point

    def _checked_step(self, point: Instant) -> Instant | None:
        following = self._step(point)
        if following is None or following > LAST_INSTANT:
            return None
        if following <= point:
            raise ScheduleError(
                f"{self._name}: the slot after {to_rfc3339(point)} is {point - following} ms before it "
                f"instead of later; correct the schedule class, its slots must increase"
            )
        return following

    # -- remembering -------------------------------------------------------------------

    def _point_before(self, instant: Instant) -> Instant:
        """Return a point of the chain at or before an instant, as near as possible without a walk."""
        point = self._points[bisect_right(self._points, instant) - 1]
        reached, _ = self._leap(point, instant)
        self._remember(reached)
        return reached

    def _leap(self, point: Instant, until: Instant) -> tuple[Instant, int]:
        """Return the last slot up to an instant that addition gives, and how many slots it is ahead."""
        if self._steady_in is None:
            return point, 0
        first = self._checked_step(point)
        second = None if first is None else self._checked_step(first)
        end = min(until, offset_period_at(self._steady_in, point).end - 1)
        if first is None or second is None or second > end or second - first != first - point:
            return point, 0
        steps = (end - point) // (first - point)
        return point + steps * (first - point), steps

    def _remember(self, point: Instant) -> None:
        if point > self._points[-1]:
            self._points.append(point)
            if len(self._points) > _MOST_POINTS:
                del self._points[1::2]


def _until(instant: Instant, points: Iterator[Instant]) -> Iterator[Instant]:
    return takewhile(instant.__ge__, points)


def _last(points: Iterator[Instant], *, default: Instant) -> Instant:
    for point in points:
        default = point
    return default
