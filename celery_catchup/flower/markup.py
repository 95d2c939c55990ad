"""HTML and SVG as text: elements, times and durations. Everything that is not `Markup` is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from html import escape

from celery_catchup.model import to_instant, to_rfc3339

DASH = "–"
"""Shown in place of an unknown value."""


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(name: str, *content: str, **attributes: object) -> Markup:
    """Write an element: ``element("rect", x=1, class_="cu-slot")``; attributes that are None are left out.

    In names of attributes a trailing underscore is dropped, and other underscores become dashes.
    """
    written = "".join(
        f' {_attribute(key)}="{escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{written}>{join(content)}</{name}>")


def join(parts: Iterable[str]) -> Markup:
    """Concatenate the parts; those that are not markup are escaped."""
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts))


def percent(share: float) -> str:
    """Format a share of the width, so that a drawing fits any width."""
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + "%"


@cache
def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# -- durations, numbers and times -----------------------------------------------------------------


def duration(value: timedelta | None) -> str:
    """Format a duration: ``0.7 s``, ``12m 04s``, ``3h 03m``, ``2d 4h``."""
    if value is None:
        return DASH
    seconds = value.total_seconds()
    if seconds < 0:
        return f"-{duration(-value)}"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours}h"
    return f"{hours}h {minutes:02d}m" if hours else f"{minutes}m {rest:02d}s"


def written(moment: datetime) -> str:
    """Write a time for a query, or a request to the API."""
    return to_rfc3339(to_instant(moment))


@dataclass(frozen=True, slots=True)
class Times:
    """Format times in the zone that the reader chose. Values are aware; ``now`` decides what is today."""

    zone: tzinfo = UTC
    now: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    choice: str = "utc"

    @property
    def name(self) -> str:
        """The zone's name: ``UTC``, ``Europe/Berlin``."""
        return str(self.zone)

    def at(self, value: datetime) -> datetime:
        """Return the time in the zone."""
        return value.astimezone(self.zone)

    def timestamp(self, value: datetime | None, *, form: str = "%Y-%m-%d %H:%M:%S") -> Markup:
        """Write a time; its tooltip has the same in UTC."""
        if value is None:
            return element("span", DASH, class_="cu-none")
        stamp = written(value)
        return element("time", self.at(value).strftime(form), datetime=stamp, title=stamp)

    def slot_time(self, value: datetime | None, *, fold_year: bool = False) -> Markup:
        """Write the time of a slot, with seconds only where it has any; a phone may hide the year."""
        form = "%m-%d %H:%M" + _seconds(value)
        if value is None or not fold_year:
            return self.timestamp(value, form=f"%Y-{form}")
        stamp, local = written(value), self.at(value)
        year = element("span", local.strftime("%Y-"), class_="cu-year")
        return element("time", join([year, local.strftime(form)]), datetime=stamp, title=stamp)

    def short(self, value: datetime | None) -> Markup:
        """Write a time without the parts that it shares with now: ``01:30``, ``11-18 01:30``."""
        if value is None:
            return self.timestamp(None)
        today, then = self.at(self.now).date(), self.at(value).date()
        date = "" if then == today else "%m-%d " if then.year == today.year else "%Y-%m-%d "
        return self.timestamp(value, form=f"{date}%H:%M{_seconds(value)}")

    def stamp(self, value: datetime) -> str:
        """Format a time with its offset, as commands and fields accept it: ``2026-02-07 10:00Z``."""
        precision = "milliseconds" if value.microsecond else "seconds" if value.second else "minutes"
        return self.at(value).isoformat(" ", precision).replace("+00:00", "Z")

    def between(self, first: datetime, last: datetime) -> str:
        """Format two times, with their dates only where these differ from today's."""
        today = self.at(self.now).date()
        form = "%H:%M" if {self.at(first).date(), self.at(last).date()} == {today} else "%Y-%m-%d %H:%M"
        return f"{self.at(first).strftime(form)} and {self.at(last).strftime(form)} {self.name}"


IN_UTC = Times()
"""The times of drawings without a reader."""


def _seconds(value: datetime | None) -> str:
    return ":%S" if value is not None and value.second else ""
