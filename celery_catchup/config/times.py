"""Parse times and durations that people type: one parser for commands, the HTTP API and pages.

``2026-02-07T10:00Z``, ``2026-02-07``, ``6h ago``, ``yesterday``; durations such as ``2d12h``.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, tzinfo

from celery_catchup.config.durations import FINE_UNITS, WINDOW_UNITS, parse_duration
from celery_catchup.config.fields import moment, to_utc
from celery_catchup.error_text import shown
from celery_catchup.errors import DurationError

__all__ = ["FINE_UNITS", "WINDOW_UNITS", "parse_duration", "parse_time"]

_EXPECTED = "expected a time such as 2026-02-07T10:00Z, 2026-02-07, '6h ago' or now"
_DAYS = {"yesterday": -1, "today": 0}
_DAY = timedelta(days=1)
_LAST = timedelta(milliseconds=1)  # instants are milliseconds


def parse_time(
    text: str, *, now: datetime, zone: tzinfo, whole_day: bool = False, since: bool = False
) -> datetime:
    """Return the time in UTC; raise `ValueError` with the reason if the text is not a time.

    A time without an offset, and a date, are in ``zone``. A date means its first millisecond, or with
    ``whole_day``, for the end of a range, its last. With ``since`` a bare duration means that long ago.
    """
    written = text.strip()
    if written == "now":
        return now.astimezone(UTC)
    if written.endswith(" ago"):
        return _ago(written.removesuffix(" ago").strip(), now)
    if since and written[-1:] in tuple("dhms"):
        return _ago(written, now)
    if written in _DAYS:
        written = f"{now.astimezone(zone) + _DAYS[written] * _DAY:%Y-%m-%d}"
    try:
        found = moment(written)
    except ValueError as error:
        _, mark, reason = str(error).partition(f"got {shown(written)}: ")
        raise ValueError(f"{_EXPECTED}, got {shown(written)}{f': {reason}' if mark else ''}") from None
    if whole_day and len(written) == len("2026-02-07") and found.date() < date.max:
        return to_utc(datetime.combine(found.date() + _DAY, time()), zone=zone) - _LAST
    return to_utc(found, zone=zone)


def _ago(text: str, now: datetime) -> datetime:
    try:
        return to_utc(now - parse_duration(text, units=FINE_UNITS), zone=UTC)
    except DurationError as error:
        raise ValueError(f"{_EXPECTED}: {error}") from None
