"""Debian's cron, one minute after the other: slow, obvious, and sharing no code with the package.

A job whose minute or hour field starts with ``*`` runs at every real minute whose wall time
matches. Any other job runs when the wall clock first reaches, or jumps over, a time that matches:
once at the end of a gap, and never again while a repeated hour passes for the second time.
The day fields must both match when either starts with ``*``; otherwise one of them is enough.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property, lru_cache
from zoneinfo import ZoneInfo

MINUTE_MS = 60_000
DAY_MINUTES = 24 * 60
EPOCH_DAY = date(1970, 1, 1).toordinal()

MONTHS = {
    name: number for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)
}
WEEKDAYS = {name: number for number, name in enumerate("sun mon tue wed thu fri sat".split())}


def debian_fires(text: str, zone: ZoneInfo, after: int, until: int) -> list[int]:
    """The distinct instants in ``(after, until]``, in epoch milliseconds, at which the job starts."""
    job = Job.read(text)
    first_day, last_day = (instant // MINUTE_MS // DAY_MINUTES for instant in (after, until))
    first_day -= 1  # a run-up longer than any repeated stretch, so that ``reached`` is right at ``after``
    reached = _wall(zone, first_day * DAY_MINUTES)
    fires = []
    for utc_day in range(first_day, last_day + 1):
        # The dates that a UTC day shows, or skips, are at most one day off its own. When none of
        # them matches, nothing runs, and ``reached`` needs to be right only up to a date.
        if not any(job.runs_on(EPOCH_DAY + utc_day + off) for off in (-1, 0, 1)):
            reached = max(reached, _wall(zone, (utc_day + 1) * DAY_MINUTES - 1))
            continue
        for minute, wall in enumerate(_walls(zone, utc_day), utc_day * DAY_MINUTES):
            # Fixed times answer for every wall minute that is new: one as a rule, none while the
            # clock repeats itself, and many at once where it jumps ahead.
            passed = (wall,) if job.wildcard or wall == reached + 1 else range(reached + 1, wall + 1)
            if any(map(job.matches, passed)):
                fires.append(minute * MINUTE_MS)
            if wall > reached:
                reached = wall
    return [fire for fire in fires if after < fire <= until]


@dataclass(frozen=True)
class Job:
    """The five fields of a cron line as sets, and the two flags that its stars decide."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days_of_month: frozenset[int]
    months: frozenset[int]
    days_of_week: frozenset[int]
    wildcard: bool
    either_day: bool

    @classmethod
    def read(cls, text: str) -> Job:
        minute, hour, day_of_month, month, day_of_week = text.lower().split()
        return cls(
            minutes=_field(minute, 0, 59),
            hours=_field(hour, 0, 23),
            days_of_month=_field(day_of_month, 1, 31),
            months=_field(month, 1, 12, MONTHS),
            days_of_week=frozenset(day % 7 for day in _field(day_of_week, 0, 7, WEEKDAYS)),
            wildcard=minute.startswith("*") or hour.startswith("*"),
            either_day=not (day_of_month.startswith("*") or day_of_week.startswith("*")),
        )

    def matches(self, wall: int) -> bool:
        """Whether a wall time, in minutes since the calendar began, is one of the job's."""
        day, minute = divmod(wall, DAY_MINUTES)
        return minute in self._minutes_of_day and self.runs_on(day)

    def runs_on(self, ordinal: int) -> bool:
        """Whether the job has a time on that date."""
        if ordinal not in self._dates:
            day = date.fromordinal(ordinal)
            by_month, by_week = day.day in self.days_of_month, day.isoweekday() % 7 in self.days_of_week
            either_or_both = by_month or by_week if self.either_day else by_month and by_week
            self._dates[ordinal] = day.month in self.months and either_or_both
        return self._dates[ordinal]

    @cached_property
    def _minutes_of_day(self) -> frozenset[int]:
        return frozenset(hour * 60 + minute for hour in self.hours for minute in self.minutes)

    @cached_property
    def _dates(self) -> dict[int, bool]:
        return {}


@lru_cache(maxsize=4096)
def _walls(zone: ZoneInfo, utc_day: int) -> array[int]:
    """What the wall clock shows at each minute of a UTC day."""
    minutes = range(utc_day * DAY_MINUTES, (utc_day + 1) * DAY_MINUTES)
    return array("q", (_wall(zone, minute) for minute in minutes))


def _wall(zone: ZoneInfo, minute: int) -> int:
    """What the wall clock shows at a real minute, in minutes since the calendar began."""
    shown = datetime.fromtimestamp(minute * 60, zone)
    return shown.toordinal() * DAY_MINUTES + shown.hour * 60 + shown.minute


def _field(text: str, low: int, high: int, names: dict[str, int] | None = None) -> frozenset[int]:
    return frozenset(value for part in text.split(",") for value in _part(part, low, high, names or {}))


def _part(text: str, low: int, high: int, names: dict[str, int]) -> range:
    bounds, slash, step = text.partition("/")
    if bounds == "*":
        first, last = low, high
    elif "-" in bounds:
        first, last = (_number(bound, low, high, names) for bound in bounds.split("-"))
    else:
        if slash:
            raise ValueError(f"{text!r}: a step needs a range or a star")
        first = last = _number(bounds, low, high, names)
    return range(first, last + 1, int(step) if slash else 1)


def _number(text: str, low: int, high: int, names: dict[str, int]) -> int:
    value = names[text] if text in names else int(text)
    if not low <= value <= high:
        raise ValueError(f"{text!r} is outside {low}-{high}")
    return value
