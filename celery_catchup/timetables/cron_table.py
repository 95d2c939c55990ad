"""Cron tables: which minutes of which days, in a zone, as a timetable.

A table is walked, not searched: the times of a day are one tuple, the days of a month
one bit mask that depends only on the month's shape, and the zone matters only where its
offset changes. What happens there is the table's `DaylightSaving`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import tzinfo
from enum import Enum
from functools import cached_property, lru_cache
from itertools import chain, pairwise

from celery_catchup.model import Instant
from celery_catchup.timetables.days import DAY, Days
from celery_catchup.timetables.zones import FIRST_INSTANT, LAST_INSTANT, OffsetPeriod, offset_period_at

_MINUTE = 60_000
# Answers of each kind that a table caches: a tick asks for a handful of them.
_ANSWERS = 64
# A wall time and its instant are never farther apart than the offset, which is below a day.
_SAFE = 2 * DAY
# The changes of offset that the minimum distance considers: all that zone data lists, and enough of
# those that follow from its rules.
_KNOWN_CHANGES = (0, 130 * 365 * DAY)


class DaylightSaving(Enum):
    """The rule for slots at a change of the clock: a gap (spring) or a repeated hour (autumn).

    REAL_TIME  Debian's cron for wildcard minutes or hours: no extra slot at a gap; both passes
               of a repeated hour run.
    FIXED      Debian's cron for fixed times: a time that does not exist runs once, at the
               instant the gap ends; a time that occurs twice runs at its first occurrence.
    CELERY     Celery's beat: the first slot in a gap is shifted by the gap and hides the slots
               before it; of a repeated hour only the first pass runs.
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

    def __post_init__(self) -> None:
        # Thousands of entries may share one table, and ask the same question in the same tick.
        for question in ("count", "next_after", "previous_before"):
            object.__setattr__(self, question, lru_cache(_ANSWERS)(getattr(self, question)))

    @cached_property
    def _times(self) -> tuple[int, ...]:
        """The times of a day, in milliseconds, ascending."""
        return tuple(sorted((hour * 60 + minute) * _MINUTE for hour in self.hours for minute in self.minutes))

    # -- the timetable ---------------------------------------------------------------

    def slots(self, after: Instant, until: Instant, *, newest_first: bool = False) -> Iterator[Instant]:
        """Yield the slots in ``(after, until]``."""
        low, high = max(after + 1, FIRST_INSTANT), min(until, LAST_INSTANT) + 1
        periods = self._periods(low, high)
        ordered = reversed(list(periods)) if newest_first else periods
        return chain.from_iterable(
            self._period_slots(*period, high, newest_first=newest_first) for period in ordered
        )

    def count(self, after: Instant, until: Instant) -> int:
        """Count the slots in ``(after, until]`` by arithmetic over whole days."""
        low, high = max(after + 1, FIRST_INSTANT), min(until, LAST_INSTANT) + 1
        total = 0
        for period, begin in self._periods(low, high):
            extra, start = self._clock_change(period)
            total += extra is not None and begin <= extra < high
            first = max(start, begin + period.offset)
            total += self._count_walls(first, min(period.end, high) + period.offset)
        return total

    def next_after(self, instant: Instant) -> Instant | None:
        """Return the first slot later than the instant, or None if there is none before the year 10000."""
        low = max(instant + 1, FIRST_INSTANT)
        while low <= LAST_INSTANT:
            period = offset_period_at(self.zone, low)
            extra, start = self._clock_change(period)
            if extra is not None and extra >= low:
                return extra
            wall = self._first_wall(max(start, low + period.offset))
            if wall is not None and wall - period.offset < period.end:
                return wall - period.offset
            # After a change the wall clock may repeat up to a day; before that there is no slot.
            later = self._first_wall(period.end + period.offset - DAY)
            if later is None:
                return None
            low = max(period.end, later - _SAFE)
        return None

    def previous_before(self, instant: Instant) -> Instant | None:
        """Return the last slot earlier than the instant."""
        high = min(instant, LAST_INSTANT + 1)
        while high > FIRST_INSTANT:
            period = offset_period_at(self.zone, high - 1)
            extra, start = self._clock_change(period)
            wall = self._last_wall(high + period.offset)
            if wall is not None and wall >= start:
                return wall - period.offset
            if extra is not None and extra < high:
                return extra
            earlier = self._last_wall(period.begin + period.offset + DAY)
            if earlier is None:
                return None
            high = min(period.begin, earlier + _SAFE)
        return None

    def minimum_distance(self) -> int | None:
        """Return the shortest time between neighbouring slots: exact, over all shapes of the calendar
        and every change of the zone's offset from 1970 on. It takes some ms the first time."""
        return self._minimum_distance

    @cached_property
    def _minimum_distance(self) -> int | None:
        wall = self.wall_distance()
        if wall is None:
            return None
        return min(chain([wall], self._distances_at_clock_changes()))

    # -- on the wall clock -------------------------------------------------------------

    def _walk(self, start: int, stop: int, offset: int, *, newest_first: bool) -> Iterator[Instant]:
        """Yield the wall times in ``[start, stop)`` as instants, day by day over one tuple."""
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
        """Return the first wall time at or after ``start``."""
        day, time = divmod(start, DAY)
        if self.days.matches(day):
            index = bisect_left(self._times, time)
            if index < len(self._times):
                return day * DAY + self._times[index]
        following = self.days.next_after(day)
        return None if following is None else following * DAY + self._times[0]

    def _last_wall(self, stop: int) -> int | None:
        """Return the last wall time before ``stop``."""
        day, time = divmod(stop, DAY)
        if self.days.matches(day):
            index = bisect_left(self._times, time)
            if index:
                return day * DAY + self._times[index - 1]
        preceding = self.days.previous_before(day)
        return None if preceding is None else preceding * DAY + self._times[-1]

    def wall_distance(self) -> int | None:
        """Return the shortest time between neighbouring slots on a wall clock that never changes."""
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

    # -- daylight saving ---------------------------------------------------------------

    def _clock_change(self, period: OffsetPeriod) -> tuple[Instant | None, int]:
        """Apply the daylight-saving rule at the beginning of a period.

        Returns the slot that the change of the clock adds, if any, and the wall time from which the
        period's own slots count. The added slot is before all of them.
        """
        start = period.begin + period.offset
        if not period.shift or self.daylight_saving is DaylightSaving.REAL_TIME:
            return None, start
        if period.shift < 0:  # a repeated hour: the first pass has run
            return None, start - period.shift
        missing = self._first_wall(start - period.shift)
        if missing is None or missing >= start:
            return None, start
        if self.daylight_saving is DaylightSaving.CELERY:
            shifted = missing + period.shift
            return shifted - period.offset, shifted + 1
        return (None if self._first_wall(start) == start else period.begin), start

    def _periods(self, low: Instant, high: Instant) -> Iterator[tuple[OffsetPeriod, Instant]]:
        """Yield the periods of constant offset in ``[low, high)``, and the instant each is entered."""
        while low < high:
            period = offset_period_at(self.zone, low)
            yield period, low
            low = period.end

    def _period_slots(
        self, period: OffsetPeriod, low: Instant, high: Instant, *, newest_first: bool
    ) -> Iterator[Instant]:
        """Yield the slots of one period that lie in ``[low, high)``."""
        extra, start = self._clock_change(period)
        start = max(start, low + period.offset)
        stop = min(period.end, high) + period.offset
        walls = (
            self._walk(start, stop, period.offset, newest_first=newest_first) if start < stop else iter(())
        )
        if extra is None or not low <= extra < high:
            return walls
        return chain(walls, [extra]) if newest_first else chain([extra], walls)

    def _distances_at_clock_changes(self) -> Iterator[int]:
        for period, entered in self._periods(*_KNOWN_CHANGES):
            if not period.shift or entered > period.begin:
                continue
            first = self.previous_before(period.begin)
            last = self.next_after(period.begin + abs(period.shift))
            if first is not None and last is not None:
                yield from (b - a for a, b in pairwise(self.slots(first - 1, last)))


@lru_cache(maxsize=4096)
def cron_table(
    minutes: frozenset[int], hours: frozenset[int], days: Days, zone: tzinfo, daylight_saving: DaylightSaving
) -> CronTable:
    """Return the one table of these values, so that entries with the same schedule share its caches."""
    return CronTable(minutes, hours, days, zone, daylight_saving)
