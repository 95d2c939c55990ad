"""Cron tables: which minutes of which days, in a zone, as a timetable.

A table is walked, not searched: the times of a day are one tuple, the days of a month
one bit mask, and the zone matters only where its offset changes. What happens there is the
table's `DaylightSaving`. The mask of a month depends only on its shape: which month it is, on
which weekday it begins, how long it is. There are 91 shapes, so each mask is computed once.
"""

from __future__ import annotations

from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, tzinfo
from enum import Enum
from functools import cached_property, lru_cache
from itertools import chain, pairwise, product

from celery_catchup.model import Instant
from celery_catchup.timetables.zones import DAY, FIRST_INSTANT, LAST_INSTANT, OffsetPeriod, offset_period_at

_MINUTE = 60_000
# Answers of each kind that a table caches: a tick asks for a handful of them.
_ANSWERS = 64
# A wall time and its instant are never farther apart than the offset, which is below a day.
_SAFE = 2 * DAY
# The changes of offset that the minimum distance considers: all that zone data lists, and enough of
# those that follow from its rules.
_KNOWN_CHANGES = (0, 130 * 365 * DAY)

_EPOCH = date(1970, 1, 1).toordinal()
_LAST_YEAR = 9999
LAST_OF_MONTH = -1
"""In `Days.nth`: the last such weekday of the month."""


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


@dataclass(frozen=True)
class Days:
    """Which days match; a day is a number, 0 is 1970-01-01.

    ``either`` is cron's rule for two restricted day fields: one of them is enough.
    ``last_day``, ``nearest_weekday`` and ``nth`` are cron's ``L``, ``15W`` and ``5#2``.
    """

    days_of_month: frozenset[int]
    months: frozenset[int]
    days_of_week: frozenset[int]
    either: bool = False
    last_day: bool = False
    nearest_weekday: int | None = None
    nth: frozenset[tuple[int, int]] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "_mask_of_shape", lru_cache(maxsize=None)(self._mask_of_shape))

    def matches(self, day: int) -> bool:
        """Return whether the day matches."""
        year, month, number = _civil(day)
        return bool(self._mask(year, month) >> (number - 1) & 1)

    def between(self, first: int, last: int, *, newest_first: bool = False) -> Iterator[int]:
        """Yield the matching days from ``first`` to ``last``, both included."""
        months = _months(first, last)
        ordered = reversed(list(months)) if newest_first else months
        return chain.from_iterable(
            self._of_month(month, first, last, newest_first=newest_first) for month in ordered
        )

    def count(self, first: int, last: int) -> int:
        """Count the matching days from ``first`` to ``last``."""
        return sum(self._clipped(*month, first, last).bit_count() for month in _months(first, last))

    def next_after(self, day: int) -> int | None:
        """Return the first matching day later than this one."""
        if not self.possible:
            return None
        year, month, number = _civil(day)
        mask = self._mask(year, month) >> number << number
        while not mask:
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
            if year > _LAST_YEAR:
                return None
            mask = self._mask(year, month)
        return _number(year, month, (mask & -mask).bit_length())

    def previous_before(self, day: int) -> int | None:
        """Return the last matching day earlier than this one."""
        if not self.possible:
            return None
        year, month, number = _civil(day)
        mask = self._mask(year, month) & ((1 << (number - 1)) - 1)
        while not mask:
            year, month = (year, month - 1) if month > 1 else (year - 1, 12)
            if year < 2:
                return None
            mask = self._mask(year, month)
        return _number(year, month, mask.bit_length())

    @cached_property
    def possible(self) -> bool:
        """Whether any day ever matches; 31 February does not."""
        shapes = product(range(1, 13), range(7), (28, 29, 30, 31))
        return any(
            self._mask_of_shape(month, weekday, length)
            for month, weekday, length in shapes
            if length in _LENGTHS[month - 1]
        )

    def minimum_distance(self) -> int | None:
        """Return the fewest days between two that match: exact, over the calendar's whole cycle."""
        return _minimum_distance(self)

    # -- masks ---------------------------------------------------------------------------

    def _of_month(
        self, month: tuple[int, int], first: int, last: int, *, newest_first: bool
    ) -> Iterator[int]:
        numbers = _bits(self._clipped(*month, first, last))
        start = _number(*month, 1)
        return map(start.__add__, reversed(numbers) if newest_first else numbers)

    def _clipped(self, year: int, month: int, first: int, last: int) -> int:
        """Return the mask of a month without the days before ``first`` and after ``last``."""
        mask, start = self._mask(year, month), _number(year, month, 1)
        if first > start:
            mask = mask >> (first - start) << (first - start)
        return mask & ((1 << max(last - start + 1, 0)) - 1) if last < start + 30 else mask

    def _mask(self, year: int, month: int) -> int:
        """Return the mask of a month; bit 0 is its first day."""
        if month not in self.months:
            return 0
        return self._mask_of_shape(month, *_shape(year, month))

    def _mask_of_shape(self, month: int, weekday: int, length: int) -> int:
        """Return the mask of a month of this length that begins on this weekday (0 is Sunday)."""
        if month not in self.months:
            return 0
        by_month = self._month_days(weekday, length)
        by_week = self._week_days(weekday, length)
        return _mask_of(by_month | by_week if self.either else by_month & by_week)

    def _month_days(self, weekday: int, length: int) -> set[int]:
        days = {day for day in self.days_of_month if day <= length}
        if self.last_day:
            days.add(length)
        if self.nearest_weekday is not None:
            days.add(_nearest_weekday(min(self.nearest_weekday, length), weekday, length))
        return days

    def _week_days(self, weekday: int, length: int) -> set[int]:
        if self.nth is None:
            return {day for day in range(1, length + 1) if (weekday + day - 1) % 7 in self.days_of_week}
        return set(chain.from_iterable(_nth_days(dow, n, weekday, length) for dow, n in self.nth))


_LENGTHS = tuple((28, 29) if m == 2 else (30,) if m in (4, 6, 9, 11) else (31,) for m in range(1, 13))


def _civil(day: int) -> tuple[int, int, int]:
    moment = date.fromordinal(day + _EPOCH)
    return moment.year, moment.month, moment.day


@lru_cache(maxsize=65536)
def _number(year: int, month: int, day: int) -> int:
    return date(year, month, day).toordinal() - _EPOCH


@lru_cache(maxsize=65536)
def _shape(year: int, month: int) -> tuple[int, int]:
    """Return the weekday of the month's first day (0 is Sunday), and its length."""
    first = date(year, month, 1)
    return first.isoweekday() % 7, monthrange(year, month)[1]


def _months(first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the months of the days from ``first`` to ``last``."""
    if first > last:
        return
    year, month, _ = _civil(first)
    until = _civil(last)[:2]
    while (year, month) <= until:
        yield year, month
        year, month = (year, month + 1) if month < 12 else (year + 1, 1)


@lru_cache(maxsize=4096)
def _bits(mask: int) -> tuple[int, ...]:
    return tuple(bit for bit in range(31) if mask >> bit & 1)


def _mask_of(days: set[int]) -> int:
    return sum(1 << (day - 1) for day in days)


def _nearest_weekday(day: int, weekday: int, length: int) -> int:
    """Return the working day nearest to ``day`` in the same month."""
    of_week = (weekday + day - 1) % 7
    if of_week == 6:
        return day - 1 if day > 1 else day + 2
    if of_week == 0:
        return day + 1 if day < length else day - 2
    return day


def _nth_days(of_week: int, n: int, weekday: int, length: int) -> list[int]:
    """Return the n-th such weekday of a month, or its last one."""
    days = range(1 + (of_week - weekday) % 7, length + 1, 7)
    return list(days[-1:]) if n == LAST_OF_MONTH else list(days[n - 1 : n])


@lru_cache(maxsize=1024)
def _minimum_distance(days: Days) -> int | None:
    """Compare neighbours over 401 years: the calendar repeats after 400, and one pair spans the cycles."""
    smallest: int | None = None
    cycle = days.between(_number(1970, 1, 1), _number(2371, 12, 31))
    for before, after in pairwise(cycle):
        if smallest is None or after - before < smallest:
            smallest = after - before
            if smallest == 1:
                break
    return smallest
