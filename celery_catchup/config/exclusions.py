"""Parse what must not run: dates, ranges, cron strings and calendars, as ``exclude`` has them.

A policy keeps its exclusions as texts, which can be compared and stored; `compile_exclusions` makes the
ranges of an entry's zone from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, tzinfo
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from celery_catchup.config.fields import FieldParser, SeveralProblemsError, moment, problems_of, to_utc
from celery_catchup.error_text import did_you_mean, shown
from celery_catchup.model import Instant, to_datetime, to_instant
from celery_catchup.timetables.cron_dialects import Dialect, parse_cron
from celery_catchup.timetables.cron_table import CronTable, DaylightSaving, cron_table
from celery_catchup.timetables.exclusions import (
    Exclusions,
    FixedRanges,
    MatchingMinutes,
    Range,
    RangeSource,
    YearlyDates,
    days_range,
)

CALENDAR = "calendar:"
MOST_EXCLUSIONS = 10_000
"""Items of one list; a file or a country is better for more."""
MOST_TIMES_A_DAY = 48
"""Separate times of a day that a cron string may exclude: each is a range of its own."""

_EXPECTED = (
    "expected a date such as '2026-12-25', a range such as '2026-12-24..2026-12-31', a cron string or "
    "'calendar:NAME'"
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def exclusion(value: object) -> str:
    """Check one exclusion and return it as text; raise ValueError with the reason."""
    if isinstance(value, datetime | date):
        value = value.isoformat()
    if not isinstance(value, str):
        raise ValueError(f"{_EXPECTED}, got {shown(value)}")
    text = value.strip()
    if text.startswith(CALENDAR):
        return text
    if _cron_like(text):
        _minutes(text)
    else:
        _check_range(text)
    return text


def exclusions(value: object) -> tuple[str, ...]:
    """Check a list of exclusions; one that stands alone is a list of one."""
    items = value if isinstance(value, list | tuple) else [value]
    if len(items) > MOST_EXCLUSIONS:
        raise ValueError(
            f"{len(items)} exclusions are too many; write at most {MOST_EXCLUSIONS}, or use a calendar"
        )
    found, problems = [], []
    for index, item in enumerate(items):
        try:
            found.append(exclusion(item))
        except ValueError as error:
            problems.append(f"[{index}]: {error}" if len(items) > 1 else str(error))
    if problems:
        raise SeveralProblemsError(problems)
    return tuple(found)


EXCLUDE = FieldParser(exclusions, "list of dates, ranges with `..`, cron strings, `calendar:NAME`")


def named_calendars(exclude: tuple[str, ...]) -> Iterator[str]:
    """Yield the names of the calendars among exclusions."""
    return (text.removeprefix(CALENDAR) for text in exclude if text.startswith(CALENDAR))


def dialect_problems(exclude: tuple[str, ...], dialect: Dialect) -> Iterator[str]:
    """Yield why cron strings among exclusions are not of the dialect."""
    for text in filter(_cron_like, exclude):
        try:
            parse_cron(text, dialect=dialect)
        except ValueError as error:
            yield str(error)


# -- calendars ------------------------------------------------------------------------------


@dataclass(frozen=True)
class ListedCalendar:
    """A calendar written as a list of exclusions."""

    exclude: tuple[str, ...]

    def source(self, zone: tzinfo) -> Iterator[RangeSource]:
        """Yield its ranges in a zone."""
        return _sources(self.exclude, zone, {})


@dataclass(frozen=True)
class HolidayCalendar:
    """The public holidays of a country, from the ``holidays`` package."""

    country: str
    subdivision: str | None = None

    def source(self, zone: tzinfo) -> Iterator[RangeSource]:
        """Yield its days in a zone."""
        yield YearlyDates(self.dates, zone)

    def dates(self, year: int) -> list[date]:
        """Return the holidays of a year."""
        found: Mapping[date, str] = _holidays().country_holidays(
            self.country, subdiv=self.subdivision, years=year
        )
        return list(found)


@dataclass(frozen=True)
class FileCalendar:
    """The events of an ``.ics`` file, as it was when the configuration was loaded."""

    path: str
    content: bytes
    events: Any = field(compare=False, repr=False)

    def source(self, zone: tzinfo) -> Iterator[RangeSource]:
        """Yield its events in a zone; times without a zone are of this one."""
        yield _Events(self.events, zone)


Calendar: TypeAlias = ListedCalendar | HolidayCalendar | FileCalendar


@dataclass(frozen=True)
class _Events:
    """The events of a calendar file, recurring ones included."""

    events: Any
    zone: tzinfo

    def ranges(self, after: Instant, until: Instant) -> Iterator[Range]:
        for event in self.events.between(to_datetime(after), to_datetime(until)):
            start, end = event.start, event.end
            if isinstance(start, datetime):
                yield (
                    to_instant(to_utc(start, zone=self.zone)) - 1,
                    to_instant(to_utc(end, zone=self.zone)) - 1,
                )
            else:  # the end of a whole day is the day after
                yield days_range(start, start, self.zone)[0], days_range(end, end, self.zone)[0]


def calendars(value: object) -> dict[str, Calendar]:
    """Check ``catchup_calendars``: names with lists, countries or files; all mistakes at once."""
    if not isinstance(value, Mapping):
        raise ValueError(f"expected a mapping of names to calendars, got {shown(value)}")
    found, problems = {}, []
    for name, written in value.items():
        try:
            found[str(name)] = _calendar(written)
        except ValueError as error:
            problems += [f"[{shown(name)}]: {problem}" for problem in problems_of(error)]
    if problems:
        raise SeveralProblemsError(problems)
    return found


CALENDARS = FieldParser(calendars, "mapping of names to lists, `{'country': …}`, or paths of `.ics` files")


def _calendar(written: object) -> Calendar:
    if isinstance(written, list | tuple):
        listed = exclusions(written)
        for name in named_calendars(listed):
            raise ValueError(f"a calendar cannot contain another, got {shown(CALENDAR + name)}; name both")
        return ListedCalendar(listed)
    if isinstance(written, Mapping):
        return _holiday_calendar(written)
    if isinstance(written, str | Path) and str(written).endswith(".ics"):
        return _file_calendar(str(written))
    raise ValueError(
        f"expected a list of dates, {{'country': 'DE'}} or the path of an .ics file, got {shown(written)}"
    )


def _holiday_calendar(written: Mapping[Any, object]) -> HolidayCalendar:
    if unknown := [key for key in written if key not in ("country", "subdivision")]:
        raise ValueError(f"unknown field {shown(unknown[0])}; use country and subdivision")
    country, subdivision = written.get("country"), written.get("subdivision")
    supported: Mapping[str, list[str]] = _holidays().list_supported_countries(include_aliases=True)
    if not isinstance(country, str) or country not in supported:
        raise ValueError(
            f"unknown country {shown(country)}{did_you_mean(country, supported) or '; use a code such as DE'}"
        )
    if subdivision is not None and subdivision not in supported[country]:
        known = ", ".join(supported[country]) or "none"
        raise ValueError(f"{country} has no subdivision {shown(subdivision)}; use one of: {known}")
    return HolidayCalendar(country, subdivision)


def _file_calendar(path: str) -> FileCalendar:
    icalendar, recurring = _extra("icalendar"), _extra("recurring_ical_events")
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {shown(path)}: {error.strerror}; correct the path") from None
    try:
        parsed = icalendar.Calendar.from_ical(content)
    except (ValueError, KeyError, IndexError) as error:
        raise ValueError(f"{shown(path)} is not an iCalendar file: {error}; export it again") from None
    return FileCalendar(path, content, recurring.of(parsed))


def _holidays() -> Any:
    return _extra("holidays")


def _extra(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        package = module.replace("_", "-")
        raise ValueError(f"needs the package {package}; run: pip install {package}") from None


# -- texts to ranges ------------------------------------------------------------------------


@lru_cache(maxsize=1024)  # thousands of entries may share one list
def compile_exclusions(
    exclude: tuple[str, ...], zone: tzinfo, calendars: tuple[tuple[str, Calendar], ...]
) -> Exclusions:
    """Return the excluded ranges of a checked list, in an entry's zone."""
    return Exclusions(_sources(exclude, zone, dict(calendars)))


def _sources(exclude: tuple[str, ...], zone: tzinfo, named: Mapping[str, Calendar]) -> Iterator[RangeSource]:
    ranges = []
    for text in exclude:
        if text.startswith(CALENDAR):
            yield from named[text.removeprefix(CALENDAR)].source(zone)
        elif _cron_like(text):
            yield MatchingMinutes(_minutes(text, zone=zone))
        else:
            ranges.append(_range(text, zone))
    if ranges:
        yield FixedRanges(tuple(ranges))


def _cron_like(text: str) -> bool:
    return text.startswith("@") or (" " in text and ".." not in text and not _DATE.match(text))


def _minutes(text: str, **options: Any) -> CronTable:
    """Return the minutes of a cron string; each pass of a repeated hour counts."""
    table = parse_cron(text, **options)
    distinct = len({m for m in table.minutes if m - 1 not in table.minutes}) * len(table.hours)
    if len(table.minutes) < 60 and distinct > MOST_TIMES_A_DAY:
        raise ValueError(
            f"{shown(text)} excludes {distinct} separate times a day; write at most {MOST_TIMES_A_DAY}, or "
            "change the entry's schedule instead"
        )
    return cron_table(table.minutes, table.hours, table.days, table.zone, DaylightSaving.REAL_TIME)


def _check_range(text: str) -> None:
    low, high = _range(text, UTC)
    if low >= high:
        raise ValueError(f"{shown(text)} ends before it starts; swap the two")


def _range(text: str, zone: tzinfo) -> Range:
    """Return a date or time, or a range of them with both ends included."""
    first, dots, last = text.partition("..")
    return _span(first, zone, text)[0], _span(last if dots else first, zone, text)[1]


def _span(part: str, zone: tzinfo, text: str) -> Range:
    """Return a date as a whole day, a time as one instant."""
    try:
        at = moment(part.strip())
        if _DATE.fullmatch(part.strip()):
            return days_range(at.date(), at.date(), zone)
        instant = to_instant(to_utc(at, zone=zone))
    except ValueError:
        raise ValueError(f"{_EXPECTED}, got {shown(text)}") from None
    return instant - 1, instant
