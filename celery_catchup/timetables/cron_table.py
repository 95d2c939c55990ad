"""Cron tables: which minutes of which days, in a zone, as a timetable.

A table is walked, not searched: the times of a day are one tuple, the days of a month
one bit mask that depends only on the month's shape, and the zone matters only where its
offset changes. What happens there is the table's `DaylightSaving`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import tzinfo
from enum import Enum
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import Any, TypeVar

from celery_catchup.model import Instant
from celery_catchup.timetables.days import DAY, Days
from celery_catchup.timetables.zones import FIRST_INSTANT, LAST_INSTANT, OffsetPeriod, offset_period_at

Answer = TypeVar("Answer")

_MINUTE = 60_000
# Answers that a table remembers: a tick asks for a handful of them.
_REMEMBERED = 64
# A wall time and its instant are never farther apart than the offset, which is below a day.
_SAFE = 2 * DAY
# The changes of offset that the minimum distance looks at: all that zone data knows by
# name, and enough of the rules behind them.
_KNOWN_CHANGES = (0, 130 * 365 * DAY)


class DaylightSaving(Enum):
    """What becomes of slots where the wall clock jumps.

    REAL_TIME  Debian's cron for wildcard minutes or hours: nothing extra at a gap, both
               passes of a repeated hour.
    FIXED      Debian's cron for fixed times: a time that does not exist runs once, at the
               instant the gap ends; one that occurs twice runs at its first occurrence.
    CELERY     Celery's beat: the first slot in a gap is shifted by the gap and hides what
               lies before it; of a repeated hour only the first pass.
    """

    REAL_TIME = "real time"
    FIXED = "fixed"
    CELERY = "celery"


@dataclass(frozen=True)
class CronTable:
    """Minutes × hours × days in a zone; the slots are whole minutes of the wall clock."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: Days
    zone: tzinfo
    daylight_saving: DaylightSaving

    @cached_property
    def _times(self) -> tuple[int, ...]:
        """The milliseconds of a day at which it runs, ascending."""
        return tuple(sorted((hour * 60 + minute) * _MINUTE for hour in self.hours for minute in self.minutes))

    # -- the timetable ---------------------------------------------------------------

    def slots(self, after: Instant, until: Instant, *, newest_first: bool = False) -> Iterator[Instant]:
        """The slots in ``(after, until]``, lazily."""
        low, high = max(after + 1, FIRST_INSTANT), min(until, LAST_INSTANT) + 1
        pieces = self._pieces(low, high)
        ordered = reversed(list(pieces)) if newest_first else pieces
        return chain.from_iterable(
            self._piece_slots(*piece, high, newest_first=newest_first) for piece in ordered
        )

    def count(self, after: Instant, until: Instant) -> int:
        """How many slots are in ``(after, until]``, by arithmetic over whole days."""
        return self._remembered(self._count, after, until)

    def _count(self, after: Instant, until: Instant) -> int:
        low, high = max(after + 1, FIRST_INSTANT), min(until, LAST_INSTANT) + 1
        total = 0
        for piece, begin in self._pieces(low, high):
            extra, start = self._border(piece)
            total += extra is not None and begin <= extra < high
            first = max(start, begin + piece.offset)
            total += self._count_walls(first, min(piece.end, high) + piece.offset)
        return total

    def next_after(self, instant: Instant) -> Instant | None:
        """The first slot later than the instant, or None before the year 10000."""
        return self._remembered(self._next_after, instant)

    def previous_before(self, instant: Instant) -> Instant | None:
        """The last slot earlier than the instant."""
        return self._remembered(self._previous_before, instant)

    def _remembered(self, ask: Callable[..., Answer], *range_: Instant) -> Answer:
        """The answer to a question that thousands of entries with this table ask in the same tick."""
        question = (ask.__name__, *range_)
        if question not in self._answers:
            if len(self._answers) >= _REMEMBERED:
                self._answers.clear()
            self._answers[question] = ask(*range_)
        answer: Answer = self._answers[question]
        return answer

    @cached_property
    def _answers(self) -> dict[tuple[Any, ...], Any]:
        return {}

    def _next_after(self, instant: Instant) -> Instant | None:
        low = max(instant + 1, FIRST_INSTANT)
        while low <= LAST_INSTANT:
            piece = offset_period_at(self.zone, low)
            extra, start = self._border(piece)
            if extra is not None and extra >= low:
                return extra
            wall = self._first_wall(max(start, low + piece.offset))
            if wall is not None and wall - piece.offset < piece.end:
                return wall - piece.offset
            # Behind the daylight_saving the wall clock may repeat up to a day; before that there is nothing.
            later = self._first_wall(piece.end + piece.offset - DAY)
            if later is None:
                return None
            low = max(piece.end, later - _SAFE)
        return None

    def _previous_before(self, instant: Instant) -> Instant | None:
        high = min(instant, LAST_INSTANT + 1)
        while high > FIRST_INSTANT:
            piece = offset_period_at(self.zone, high - 1)
            extra, start = self._border(piece)
            wall = self._last_wall(high + piece.offset)
            if wall is not None and wall >= start:
                return wall - piece.offset
            if extra is not None and extra < high:
                return extra
            earlier = self._last_wall(piece.begin + piece.offset + DAY)
            if earlier is None:
                return None
            high = min(piece.begin, earlier + _SAFE)
        return None

    def minimum_distance(self) -> int | None:
        """The shortest time between neighbouring slots, exact: over all shapes of the
        calendar, and over every change of the zone's offset from 1970 on. Some ms of work the
        first time; `wall_distance` has none."""
        return self._minimum_distance

    @cached_property
    def _minimum_distance(self) -> int | None:
        wall = self.wall_distance()
        if wall is None:
            return None
        return min(chain([wall], self._distances_at_borders()))

    # -- on the wall clock -------------------------------------------------------------

    def _walk(self, start: int, stop: int, offset: int, *, newest_first: bool) -> Iterator[Instant]:
        """The wall times in ``[start, stop)``, as instants: day by day over one tuple."""
        first, last = start // DAY, (stop - 1) // DAY
        forward, backward = self._times, self._times[::-1]

        def day(number: int) -> Iterator[Instant]:
            times = backward if newest_first else forward
            if number in (first, last):
                base = number * DAY
                times = forward[bisect_left(forward, start - base) : bisect_left(forward, stop - base)]
                times = times[::-1] if newest_first else times
            return map((number * DAY - offset).__add__, times)

        return chain.from_iterable(map(day, self.days.between(first, last, newest_first=newest_first)))

    def _count_walls(self, start: int, stop: int) -> int:
        if start >= stop:
            return 0
        first, last = start // DAY, (stop - 1) // DAY
        total = self.days.count(first, last) * len(self._times)
        if self.days.matches(first):
            total -= bisect_left(self._times, start - first * DAY)
        if self.days.matches(last):
            total -= len(self._times) - bisect_left(self._times, stop - last * DAY)
        return total

    def _first_wall(self, start: int) -> int | None:
        """The first wall time at or after ``start``."""
        day, time = divmod(start, DAY)
        if self.days.matches(day):
            index = bisect_left(self._times, time)
            if index < len(self._times):
                return day * DAY + self._times[index]
        following = self.days.next_after(day)
        return None if following is None else following * DAY + self._times[0]

    def _last_wall(self, stop: int) -> int | None:
        """The last wall time before ``stop``."""
        day, time = divmod(stop, DAY)
        if self.days.matches(day):
            index = bisect_left(self._times, time)
            if index:
                return day * DAY + self._times[index - 1]
        preceding = self.days.previous_before(day)
        return None if preceding is None else preceding * DAY + self._times[-1]

    def wall_distance(self) -> int | None:
        """The shortest time between neighbouring slots on a wall clock that never jumps."""
        times = self._times
        within = min((b - a for a, b in pairwise(times)), default=None)
        over_night = DAY - (times[-1] - times[0])
        if within is not None and within <= over_night and self.days.possible:
            return within
        apart = self.days.minimum_distance()
        if apart is None:
            return within if self.days.possible else None
        across = over_night + (apart - 1) * DAY
        return across if within is None else min(within, across)

    # -- at the borders ----------------------------------------------------------------

    def _pieces(self, low: Instant, high: Instant) -> Iterator[tuple[OffsetPeriod, Instant]]:
        """The pieces of constant offset that ``[low, high)`` touches, and where each is entered."""
        while low < high:
            piece = offset_period_at(self.zone, low)
            yield piece, low
            low = piece.end

    def _piece_slots(
        self, piece: OffsetPeriod, low: Instant, high: Instant, *, newest_first: bool
    ) -> Iterator[Instant]:
        """The slots of one piece that lie in ``[low, high)``."""
        extra, start = self._border(piece)
        start = max(start, low + piece.offset)
        stop = min(piece.end, high) + piece.offset
        walls = self._walk(start, stop, piece.offset, newest_first=newest_first) if start < stop else iter(())
        if extra is None or not low <= extra < high:
            return walls
        return chain(walls, [extra]) if newest_first else chain([extra], walls)

    def _border(self, piece: OffsetPeriod) -> tuple[Instant | None, int]:
        """What the piece's beginning adds (one slot at most), and the wall time from
        which on its own slots count. The added slot is before all of them."""
        start = piece.begin + piece.offset
        if not piece.shift or self.daylight_saving is DaylightSaving.REAL_TIME:
            return None, start
        if piece.shift < 0:
            return None, start - piece.shift
        missing = self._first_wall(start - piece.shift)
        if missing is None or missing >= start:
            return None, start
        if self.daylight_saving is DaylightSaving.CELERY:
            shifted = missing + piece.shift
            return shifted - piece.offset, shifted + 1
        return (None if self._first_wall(start) == start else piece.begin), start

    def _distances_at_borders(self) -> Iterator[int]:
        for piece, entered in self._pieces(*_KNOWN_CHANGES):
            if not piece.shift or entered > piece.begin:
                continue
            first = self.previous_before(piece.begin)
            last = self.next_after(piece.begin + abs(piece.shift))
            if first is not None and last is not None:
                yield from (b - a for a, b in pairwise(self.slots(first - 1, last)))


@lru_cache(maxsize=4096)
def cron_table(
    minutes: frozenset[int], hours: frozenset[int], days: Days, zone: tzinfo, daylight_saving: DaylightSaving
) -> CronTable:
    """The one table of these values: entries that share a schedule share what it has worked out."""
    return CronTable(minutes, hours, days, zone, daylight_saving)
