"""Moments as people write them: ``2026-02-07T10:00Z``, ``2026-02-07``, ``6h ago``, ``yesterday``."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, tzinfo

from celery_catchup.config.durations import FINE_UNITS, parse_duration
from celery_catchup.config.fields import moment, placed
from celery_catchup.error_text import shown
from celery_catchup.errors import DurationError

_EXPECTED = "expected a time such as 2026-02-07T10:00Z, 2026-02-07, '6h ago' or now"
_DAYS = {"yesterday": -1, "today": 0}
_DAY = timedelta(days=1)
_LAST = timedelta(milliseconds=1)  # instants are milliseconds


def parse_time(text: str, *, now: datetime, zone: tzinfo, whole_day: bool = False) -> datetime:
    """The moment in UTC that the text means; ValueError with the reason when it means none.

    A time without an offset, and a date, are those of ``zone``. A date is its first
    moment; with ``whole_day``, for the end of a range, its last.
    """
    written = text.strip()
    if written == "now":
        return now.astimezone(UTC)
    if written.endswith(" ago"):
        return placed(now - _duration(written.removesuffix(" ago").strip()), zone=UTC)
    if written in _DAYS:
        written = f"{now.astimezone(zone) + timedelta(days=_DAYS[written]):%Y-%m-%d}"
    found = _iso(written)
    if whole_day and len(written) == len("2026-02-07") and found.date() < date.max:
        return placed(datetime.combine(found.date() + _DAY, time()), zone=zone) - _LAST
    return placed(found, zone=zone)


def parse_since(text: str, *, now: datetime, zone: tzinfo) -> datetime:
    """As `parse_time`, and a bare duration is that long ago: ``6h``."""
    try:
        return placed(now - parse_duration(text.strip(), units=FINE_UNITS), zone=UTC)
    except DurationError:
        return parse_time(text, now=now, zone=zone)


def _iso(text: str) -> datetime:
    try:
        return moment(text)
    except ValueError as error:
        _, mark, reason = str(error).partition(f"got {shown(text)}: ")
        raise ValueError(f"{_EXPECTED}, got {shown(text)}{f': {reason}' if mark else ''}") from None


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text, units=FINE_UNITS)
    except DurationError as error:
        raise ValueError(f"{_EXPECTED}: {error}") from None
