"""HTML and SVG as text: elements, times and durations. Everything that is not `Markup` is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
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


# -- times, durations and numbers -----------------------------------------------------------------


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


def timestamp(value: datetime | None, *, form: str = "%Y-%m-%d %H:%M:%S") -> Markup:
    """Format a time in UTC; a tooltip adds the reader's own time zone."""
    if value is None:
        return element("span", DASH, class_="cu-none")
    stamp = to_rfc3339(to_instant(value))
    return element("time", value.strftime(form), datetime=stamp, title=stamp)


def slot_time(value: datetime | None) -> Markup:
    """Format the time of a slot, with seconds only where it has any."""
    return timestamp(value, form="%Y-%m-%d %H:%M" + _seconds(value))


def time_of_day(value: datetime | None) -> Markup:
    """Format a time without its date: ``01:30Z``."""
    return timestamp(value, form=f"%H:%M{_seconds(value)}Z")


def plural(number: int, noun: str) -> str:
    """Format a number with its noun: ``1 run``, ``3 runs``, ``1,440 slots``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _seconds(value: datetime | None) -> str:
    return ":%S" if value is not None and value.second else ""
