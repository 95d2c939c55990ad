"""How the pages say a length of time and a moment."""

from __future__ import annotations

from datetime import datetime, timedelta

from celery_catchup.flower.drawing.svg import Markup, element
from celery_catchup.model import to_instant, to_rfc3339

DASH = "–"
"""What stands where nothing is known."""

LATE = timedelta(seconds=60)
"""A slot handled later than this was missed, unless its policy says otherwise."""


def length(value: timedelta | None) -> str:
    """``0.7 s``, ``12m 04s``, ``3h 03m``, ``2d 4h``: as exact as one wants to know."""
    if value is None:
        return DASH
    seconds = value.total_seconds()
    if seconds < 0:
        return f"-{length(-value)}"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours}h"
    return f"{hours}h {minutes:02d}m" if hours else f"{minutes}m {rest:02d}s"


def is_late(lag: timedelta | None) -> bool:
    """Whether a lag is worth a colour."""
    return lag is not None and lag >= LATE


def when(value: datetime | None, *, form: str = "%Y-%m-%d %H:%M:%S") -> Markup:
    """A moment in UTC; the page adds the reader's own zone for the pointer."""
    if value is None:
        return element("span", DASH, class_="cu-none")
    stamp = to_rfc3339(to_instant(value))
    return element("time", value.strftime(form), datetime=stamp, title=stamp)


def slot(value: datetime | None) -> Markup:
    """A slot: to the minute, or as exactly as it is."""
    exact = value is not None and value.second == 0
    return when(value, form="%Y-%m-%d %H:%M" if exact else "%Y-%m-%d %H:%M:%S")


def clock(value: datetime | None) -> Markup:
    """``01:30Z``: the time of day, where the day is clear."""
    exact = value is not None and value.second == 0
    return when(value, form="%H:%MZ" if exact else "%H:%M:%SZ")


def counted(number: int, noun: str) -> str:
    """``1 run``, ``3 runs``, ``1,440 slots``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
