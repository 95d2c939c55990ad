"""The days that a cron expression matches, as numbers counted from 1970-01-01.

The days of a month that match depend only on the month's shape: which month it is, on
which weekday it begins, how long it is. There are 91 shapes, so each mask is computed once.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cached_property, lru_cache
from itertools import chain, pairwise, product

DAY = 86_400_000
"""Milliseconds of a day on the wall clock."""

_EPOCH = date(1970, 1, 1).toordinal()
_LAST_YEAR = 9999
LAST_OF_MONTH = -1
"""In `Days.nth`: the last such weekday of the month."""


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
