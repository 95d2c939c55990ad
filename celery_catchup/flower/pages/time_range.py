"""The time that the drawings of a page show: six hours, a day, a week or a date, now or back in time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from celery_catchup.error_text import listed, shown
from celery_catchup.flower.drawing.time_axis import TimeAxis
from celery_catchup.flower.markup import Times, written
from celery_catchup.flower.pages.elements import FilterLink
from celery_catchup.flower.pages.page import Page
from celery_catchup.operations.refusals import RefusedError

_LENGTHS = {"6h": timedelta(hours=6), "24h": timedelta(hours=24), "7d": timedelta(days=7)}
_DEFAULT = "24h"
_DAY = timedelta(days=1)

Href = Callable[..., str]
"""Returns the URL of the same page with other parameters ``range``, ``until`` and ``date``."""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The axis of the drawings in words, and the links to other ranges; "" for one that is not there."""

    axis: TimeAxis
    words: str
    lengths: Sequence[FilterLink]
    earlier: str
    later: str
    date: str


def read_range(page: Page, href: Href) -> TimeRange:
    """Read the range from the query of a page."""
    times, day, length = page.times, page.query("date"), page.query("range") or _DEFAULT
    if length not in _LENGTHS:
        raise RefusedError(f"range: expected {listed(_LENGTHS)}, got {shown(length)}")
    if day:
        return _one_day(day, times, href)
    until = page.moment("until") or times.now
    back = until < times.now
    end = until if back else times.now
    axis = TimeAxis(end - _LENGTHS[length], end, times)
    later = axis.until + _LENGTHS[length]
    first, last = times.stamp(axis.since), times.stamp(axis.until)
    return TimeRange(
        axis,
        f"{first} – {last}" if back else f"last {_spaced(length)}",
        _links(length, href, until=written(axis.until) if back else ""),
        earlier=href(range=length, until=written(axis.since)),
        later=href(range=length, until=written(later) if later < times.now else "") if back else "",
        date="",
    )


def _one_day(text: str, times: Times, href: Href) -> TimeRange:
    try:
        day = date.fromisoformat(text)
        since, until = (_midnight(one, times) for one in (day, day + _DAY))
        axis = TimeAxis(since, until, times)
    except (ValueError, OverflowError):
        raise RefusedError(f"date: expected a date such as 2026-02-07, got {shown(text)}") from None
    return TimeRange(
        axis,
        f"{day:%a %d %B %Y}",
        _links("", href),
        earlier=href(date=str(day - _DAY)),
        later=href(date=str(day + _DAY)) if axis.until < times.now else "",
        date=text,
    )


def _midnight(day: date, times: Times) -> datetime:
    return datetime.combine(day, time(), times.zone).astimezone(UTC)


def _links(chosen: str, href: Href, until: str = "") -> list[FilterLink]:
    return [
        FilterLink(_spaced(one), href(range="" if one == _DEFAULT else one, until=until), one == chosen)
        for one in _LENGTHS
    ]


def _spaced(length: str) -> str:
    return f"{length[:-1]} {length[-1]}"
