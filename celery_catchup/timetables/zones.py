"""Time zones as pieces of constant UTC offset, in integer milliseconds.

A cron expression speaks in wall-clock time. Between two changes of a zone's offset the
wall clock is UTC plus a constant, so a walk over slots needs the zone only at the
borders of such pieces, and not once per slot.
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
from celery_catchup.timetables.days import DAY

# Offsets are looked up in blocks of days, so that a zone costs about half a millisecond
# per block once per process and nothing for years that nobody asks for.
_BLOCK_DAYS = 400
_BLOCK = _BLOCK_DAYS * DAY
# datetime ends with the year 9999; two days of margin keep every conversion inside.
FIRST_INSTANT: Instant = int(datetime(2, 1, 1, tzinfo=UTC).timestamp()) * 1000
LAST_INSTANT: Instant = int(datetime(9999, 12, 30, tzinfo=UTC).timestamp()) * 1000


@dataclass(frozen=True, slots=True)
class OffsetPeriod:
    """A stretch ``[begin, end)`` of constant offset; ``shift`` is how far the wall clock
    jumped at ``begin``: positive over a gap, negative into a repeated hour."""

    begin: Instant
    end: Instant
    offset: int
    shift: int


def zone_named(name: str) -> ZoneInfo:
    """The zone of an IANA name, spelt exactly; anything else is a `ScheduleError`."""
    if name not in _names():
        hint = get_close_matches(name, _names(), n=1) or [n for n in _names() if n.lower() == name.lower()]
        advice = f"did you mean {hint[0]!r}?" if hint else "use an IANA name such as 'Europe/Berlin'"
        if not _names():
            advice = "no time zone data is installed; run: pip install tzdata"
        raise ScheduleError(f"unknown time zone {name[:60]!r}; {advice}")
    return ZoneInfo(name)


def usable_zone(zone: tzinfo) -> tzinfo:
    """The zone as the rest of the package needs it: hashable, and right for every wall-clock time.

    A pytz zone gives wrong offsets until a time is localised, and a dateutil zone cannot be hashed.
    Where such a zone has an IANA name, the zone of that name takes its place; otherwise it is wrapped.
    """
    hashable = zone.__hash__ is not None
    if hashable and not hasattr(zone, "zone"):
        return zone
    name = _iana_name(zone)
    if name is not None:
        return ZoneInfo(name)
    return zone if hashable else _Hashable(zone)


def _iana_name(zone: tzinfo) -> str | None:
    """The IANA name of a pytz or dateutil zone; dateutil keeps the file that it was read from."""
    if type(zone).__name__ == "tzutc":
        return "UTC"
    written = str(getattr(zone, "zone", None) or getattr(zone, "_filename", None) or "")
    for name in (written, written.partition("zoneinfo/")[2]):
        if name in _names():
            return name
    return None


class _Hashable(tzinfo):
    """A zone that can be a key of a cache; two of them are equal only when they are the same object."""

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
    """The piece that contains the instant.

    Its border is exact when it lies within a year of the instant; farther away the
    piece is cut, with no jump, which no schedule can tell from a longer one.
    """
    begins, pieces = _pieces(zone, instant // _BLOCK)
    return pieces[bisect_right(begins, instant) - 1]


@lru_cache(maxsize=8192)
def _pieces(zone: tzinfo, block: int) -> tuple[tuple[Instant, ...], tuple[OffsetPeriod, ...]]:
    """The pieces of a block and of its two neighbours: so a border is never too near to see."""
    begins, offsets = [(block - 1) * _BLOCK], [_offset(zone, (block - 1) * _BLOCK)]
    for number in (block - 1, block, block + 1):
        for change, offset in _changes(zone, number):
            begins.append(change)
            offsets.append(offset)
    ends = [*begins[1:], (block + 2) * _BLOCK]
    before = [offsets[0], *offsets[:-1]]
    pieces = tuple(
        OffsetPeriod(begin, end, offset, offset - previous)
        for begin, end, offset, previous in zip(begins, ends, offsets, before, strict=True)
    )
    return tuple(begins), pieces


@lru_cache(maxsize=8192)
def _changes(zone: tzinfo, block: int) -> tuple[tuple[Instant, int], ...]:
    """When the offset changes inside a block, and to what.

    A probe a day finds them all: no zone has ever changed twice within a week.
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
    """The first second of the new offset, by bisection."""
    before = _offset(zone, low)
    while high - low > 1000:
        middle = (low + high) // 2000 * 1000
        if _offset(zone, middle) == before:
            low = middle
        else:
            high = middle
    return high


def _offset(zone: tzinfo, instant: Instant) -> int:
    """Milliseconds to add to UTC for the wall clock; constant beyond the years 2 and 9999."""
    seconds = min(max(instant, FIRST_INSTANT), LAST_INSTANT) // 1000
    offset = datetime.fromtimestamp(seconds, zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds()) * 1000
