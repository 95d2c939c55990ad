"""Read instants and lengths as the store keeps them: milliseconds, as numbers or as decimal text."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from celery_catchup.model import Instant, to_datetime


def stored_instant(value: Any) -> Instant | None:
    """Return the stored instant; None if it is missing or not a number."""
    return int(value) if isinstance(value, int | float) or (value or "").isdecimal() else None


def stored_time(value: Any) -> datetime | None:
    """Return the stored instant as a datetime in UTC."""
    instant = stored_instant(value)
    return None if instant is None else to_datetime(instant)


def stored_length(milliseconds: float | None) -> timedelta | None:
    """Return the stored length."""
    return None if milliseconds is None else timedelta(milliseconds=milliseconds)


def time_between(begin: Any, end: Any) -> timedelta | None:
    """Return how much time passed between two stored instants; None if one is missing."""
    first, last = stored_instant(begin), stored_instant(end)
    return None if first is None or last is None else timedelta(milliseconds=last - first)
