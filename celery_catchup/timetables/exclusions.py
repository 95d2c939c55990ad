"""Exclusions: the times at which no slot runs, as ranges of instants.

Holidays, maintenance windows and cron expressions become ranges ``(after, until]``. A plan divides its range
at them, so its cost depends on the number of exclusions, not on the number of slots.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from itertools import chain
from typing import Protocol, TypeAlias

from celery_catchup.model import Instant, to_datetime, to_instant
from celery_catchup.timetables.cron_table import CronTable
from celery_catchup.timetables.zones import DAY, LAST_INSTANT

Range: TypeAlias = tuple[Instant, Instant]
"""``(after, until]``."""

_MINUTE = 60_000
_DAY = timedelta(days=1)
# Ranges are computed in blocks of about a year and cached.
_BLOCK = 366 * DAY
_BLOCKS = 64


class RangeSource(Protocol):
    """Gives the excluded ranges that touch ``(after, until]``, in any order; they may overlap."""

    def ranges(self, after: Instant, until: Instant) -> Iterable[Range]:
        """Return the ranges."""


@dataclass(frozen=True)
class FixedRanges:
    """Ranges that are known in advance."""

    all: tuple[Range, ...]

    def ranges(self, after: Instant, until: Instant) -> Iterable[Range]:
        """Return those that touch the range."""
        return [one for one in self.all if one[0] < until and one[1] > after]


@dataclass(frozen=True)
class MatchingMinutes:
    """The minutes that a cron expression matches, each as a whole."""

    table: CronTable

    def ranges(self, after: Instant, until: Instant) -> Iterable[Range]:
        """Return one range for each minute."""
        return ((at - 1, at + _MINUTE - 1) for at in self.table.slots(after - _MINUTE, until))


@dataclass(frozen=True)
class YearlyDates:
    """Whole days of a zone, computed year by year, such as a country's holidays."""

    dates: Callable[[int], Iterable[date]]
    zone: tzinfo

    def ranges(self, after: Instant, until: Instant) -> Iterable[Range]:
        """Return one range for each day."""
        for year in range((to_datetime(after) - _DAY).year, (to_datetime(until) + _DAY).year + 1):
            yield from (days_range(day, day, self.zone) for day in self.dates(year))


class Exclusions:
    """The excluded times of an entry: the union of its sources."""

    def __init__(self, sources: Iterable[RangeSource] = ()) -> None:
        self._sources = tuple(sources)
        self._block = lru_cache(_BLOCKS)(self._compute_block)

    def between(self, after: Instant, until: Instant) -> list[Range]:
        """Return the excluded parts of ``(after, until]``, ascending, without overlaps."""
        return list(self._between(after, until))

    def _between(self, after: Instant, until: Instant) -> Iterator[Range]:
        after, until = max(after, 0), min(until, LAST_INSTANT)
        if not self._sources or after >= until:
            return
        blocks = (self._block(number) for number in range(after // _BLOCK, until // _BLOCK + 1))
        for low, high in _merged(chain.from_iterable(_touching(block, after, until) for block in blocks)):
            yield max(low, after), min(high, until)

    def contains(self, instant: Instant) -> bool:
        """Tell whether a slot at the instant is excluded."""
        return bool(self.between(instant - 1, instant))

    def next_allowed(self, at: Instant, *, limit: Instant = LAST_INSTANT) -> Instant:
        """Return the first instant from ``at`` on that is not excluded; the search ends at the limit."""
        while found := next(self._between(at - 1, at + _BLOCK), None):
            if found[0] >= at or found[1] >= LAST_INSTANT or at > limit:
                break
            at = found[1] + 1
        return at

    def _compute_block(self, number: int) -> tuple[Range, ...]:
        low, high = number * _BLOCK - 1, (number + 1) * _BLOCK - 1
        found = chain.from_iterable(source.ranges(low, high) for source in self._sources)
        return tuple((max(a, low), min(b, high)) for a, b in _merged(sorted(found)) if a < high and b > low)


def days_range(first: date, last: date, zone: tzinfo) -> Range:
    """Return the whole days from ``first`` to ``last``, both included, as a range."""
    following = last + _DAY if last < date.max else last
    return _midnight(first, zone) - 1, _midnight(following, zone) - 1


def _midnight(day: date, zone: tzinfo) -> Instant:
    return to_instant(datetime.combine(day, time(), tzinfo=zone).astimezone(UTC))


def _touching(block: tuple[Range, ...], after: Instant, until: Instant) -> Iterator[Range]:
    for index in range(bisect_left(block, after, key=lambda one: one[1] - 1), len(block)):
        if block[index][0] >= until:
            return
        yield block[index]


def _merged(ranges: Iterable[Range]) -> Iterator[Range]:
    """Join ranges that overlap or touch; they come in ascending order."""
    current: Range | None = None
    for low, high in ranges:
        if low >= high:
            continue
        if current is not None and low <= current[1]:
            current = current[0], max(current[1], high)
            continue
        if current is not None:
            yield current
        current = low, high
    if current is not None:
        yield current
