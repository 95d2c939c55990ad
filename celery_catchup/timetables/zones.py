"""Time zones as periods of constant UTC offset, in integer milliseconds.

A cron expression is in wall-clock time. Between two changes of a zone's offset the wall clock is UTC
plus a constant, so a walk over slots needs the zone once per period, not once per slot.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from celery_catchup.errors import ScheduleError
from celery_catchup.model import Instant

DAY = 86_400_000
"""Milliseconds of a day on the wall clock."""

# Offsets are looked up in blocks of days, so that a zone costs about half a millisecond
# per block once per process, and unused years cost nothing.
_BLOCK_DAYS = 400
_BLOCK = _BLOCK_DAYS * DAY
# datetime ends with the year 9999; two days of margin keep every conversion inside.
FIRST_INSTANT: Instant = int(datetime(2, 1, 1, tzinfo=UTC).timestamp()) * 1000
LAST_INSTANT: Instant = int(datetime(9999, 12, 30, tzinfo=UTC).timestamp()) * 1000


@dataclass(frozen=True, slots=True)
class OffsetPeriod:
    """A period ``[begin, end)`` of constant offset. ``shift`` is the change of the wall clock at ``begin``:
    positive over a gap, negative into a repeated hour."""

    begin: Instant
    end: Instant
    offset: int
    shift: int


def zone_named(name: str) -> ZoneInfo:
    """Return the zone of an IANA name, spelt exactly; raise `ScheduleError` for any other name."""
    if name not in _names():
        hint = get_close_matches(name, _names(), n=1) or [n for n in _names() if n.lower() == name.lower()]
        advice = f"did you mean {hint[0]!r}?" if hint else "use an IANA name such as 'Europe/Berlin'"
        if not _names():
            advice = "no time zone data is installed; run: pip install tzdata"
        raise ScheduleError(f"unknown time zone {name[:60]!r}; {advice}")
    return ZoneInfo(name)


def usable_zone(zone: tzinfo) -> tzinfo:
    """Return a zone that is hashable and right for every wall-clock time.

    A pytz zone gives wrong offsets until a time is localised, and a dateutil zone cannot be hashed.
    If such a zone has an IANA name, the zone of that name replaces it; if not, it is wrapped.
    """
    hashable = zone.__hash__ is not None
    if hashable and not hasattr(zone, "zone"):
        return zone
    name = _iana_name(zone)
    if name is not None:
        return ZoneInfo(name)
    return zone if hashable else _Hashable(zone)


def _iana_name(zone: tzinfo) -> str | None:
    """Return the IANA name of a pytz or dateutil zone; dateutil keeps the name of its file."""
    if type(zone).__name__ == "tzutc":
        return "UTC"
    written = str(getattr(zone, "zone", None) or getattr(zone, "_filename", None) or "")
    for name in (written, written.partition("zoneinfo/")[2]):
        if name in _names():
            return name
    return None


class _Hashable(tzinfo):
    """Wraps an unhashable zone, so that it can be a cache key; equality is identity."""

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return self._zone.utcoffset(self._theirs(moment))

    def dst(self, moment: datetime | None) -> timedelta | None:
        return self._zone.dst(self._theirs(moment))

    def tzname(self, moment: datetime | None) -> str | None:
        return self._zone.tzname(self._theirs(moment))

    def fromutc(self, moment: datetime) -> datetime:
        return self._zone.fromutc(moment.replace(tzinfo=self._zone)).replace(tzinfo=self)

    def _theirs(self, moment: datetime | None) -> datetime | None:
        return None if moment is None else moment.replace(tzinfo=self._zone)

    def __repr__(self) -> str:
        return repr(self._zone)


@lru_cache(maxsize=1)
def _names() -> dict[str, None]:
    return dict.fromkeys(sorted(available_timezones()))


def offset_period_at(zone: tzinfo, instant: Instant) -> OffsetPeriod:
    """Return the period that contains the instant.

    Its ends are exact if they lie within a year of the instant. Farther away the period is cut, with
    a shift of 0, which no schedule can distinguish from a longer period.
    """
    begins, periods = _periods(zone, instant // _BLOCK)
    return periods[bisect_right(begins, instant) - 1]


@lru_cache(maxsize=8192)
def _periods(zone: tzinfo, block: int) -> tuple[tuple[Instant, ...], tuple[OffsetPeriod, ...]]:
    """Return the periods of a block and its two neighbours, so that the ends near the block are exact."""
    begins, offsets = [(block - 1) * _BLOCK], [_offset(zone, (block - 1) * _BLOCK)]
    for number in (block - 1, block, block + 1):
        for change, offset in _changes(zone, number):
            begins.append(change)
            offsets.append(offset)
    ends = [*begins[1:], (block + 2) * _BLOCK]
    before = [offsets[0], *offsets[:-1]]
    periods = tuple(
        OffsetPeriod(begin, end, offset, offset - previous)
        for begin, end, offset, previous in zip(begins, ends, offsets, before, strict=True)
    )
    return tuple(begins), periods


@lru_cache(maxsize=8192)
def _changes(zone: tzinfo, block: int) -> tuple[tuple[Instant, int], ...]:
    """Return when the offset changes inside a block, and its new values.

    One probe per day finds them all: no zone has ever changed twice within a week.
    """
    changes = []
    begin = block * _BLOCK
    known = _offset(zone, begin)
    for day in range(begin + DAY, begin + _BLOCK + DAY, DAY):
        offset = _offset(zone, day)
        if offset != known:
            changes.append((_change_between(zone, day - DAY, day), offset))
            known = offset
    return tuple(changes)


def _change_between(zone: tzinfo, low: Instant, high: Instant) -> Instant:
    """Find the first second of the new offset by bisection."""
    before = _offset(zone, low)
    while high - low > 1000:
        middle = (low + high) // 2000 * 1000
        if _offset(zone, middle) == before:
            low = middle
        else:
            high = middle
    return high


def _offset(zone: tzinfo, instant: Instant) -> int:
    """Return the milliseconds to add to UTC for the wall clock; constant beyond the years 2 and 9999."""
    seconds = min(max(instant, FIRST_INSTANT), LAST_INSTANT) // 1000
    offset = datetime.fromtimestamp(seconds, zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds()) * 1000
