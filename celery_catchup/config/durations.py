"""Parse and format durations: ``2d12h`` is sixty hours.

A sum of ``<positive integer><unit>`` without separators, in any order, with repetition:
``1d30m``, ``1h1h``. Leading zeros are ignored: ``01h`` is one hour. A bare
number is refused, because it could mean seconds or minutes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import TypeAlias

from celery_catchup.error_text import listed, shown
from celery_catchup.errors import DurationError

Units: TypeAlias = Mapping[str, timedelta]

WINDOW_UNITS: Units = MappingProxyType(
    {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1)}
)
"""Units of a window; cron has no slots closer than a minute."""

FINE_UNITS: Units = MappingProxyType(
    {**WINDOW_UNITS, "s": timedelta(seconds=1), "ms": timedelta(milliseconds=1)}
)
"""Units of pauses and leases."""

LONGEST = timedelta(days=36_500)
"""100 years: a longer duration is a typing error."""

_TOKEN = re.compile(r"([0-9]*)([^0-9]*)")
_MOST_DIGITS = 15  # 100 years are 3.2e12 milliseconds; more digits need no arithmetic to be too long
_MILLISECOND = timedelta(milliseconds=1)


def parse_duration(value: object, *, units: Units = WINDOW_UNITS) -> timedelta:
    """Parse ``2d12h``, or accept a positive `timedelta`; raise `DurationError` for anything else.

    The result is positive, at most 100 years, and a whole number of milliseconds.
    """
    if isinstance(value, timedelta):
        return _bounded(value, text=str(value))
    if not isinstance(value, str):
        raise DurationError(f"expected a duration such as '2d12h', got {shown(value)}{_advice(value)}")
    _check_characters(value)
    return _total(value, units)


def format_duration(duration: timedelta) -> str:
    """Return the shortest text for a duration, largest unit first: ``1h30m``, never ``90m``."""
    rest = duration // _MILLISECOND
    tokens = []
    for unit, length in FINE_UNITS.items():
        count, rest = divmod(rest, length // _MILLISECOND)
        tokens += [f"{count}{unit}"] if count else []
    return "".join(tokens) or "0ms"


def _advice(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "; a bare number has no unit, write it with one"
    return ""


def _check_characters(text: str) -> None:
    """Refuse common errors with a better reason than the token grammar could give."""
    if not text:
        raise DurationError("the duration is empty; write one such as '2d12h'")
    for wrong, reason in _WRONG_CHARACTERS:
        if wrong.search(text):
            raise DurationError(f"{shown(text)} {reason}")


_WRONG_CHARACTERS = (
    (re.compile(r"\s"), "has a blank or a line break in it; write the parts together, such as '2d12h'"),
    (re.compile(r"[-+\u2212]"), "has a sign; durations are positive, leave it out"),
    (re.compile(r"^\d+(\.\d*)?[eE]\d+"), "is in scientific notation; write the number out"),
    (re.compile(r"\."), "has a fraction; use a smaller unit, such as '1h30m' for one and a half hours"),
    (re.compile(r"[,;:_/]"), "has a separator; write the parts together, such as '2d12h'"),
    (re.compile(r"^PT?\d", re.IGNORECASE), "is an ISO 8601 duration; write it such as '2d12h'"),
    (re.compile(r"(?![0-9])\d"), "has digits other than 0 to 9; write those"),
)


def _total(text: str, units: Units) -> timedelta:
    # Summed as integers, so that a long text of long tokens does not overflow.
    total = sum(_length(number, unit, text, units) for number, unit in _TOKEN.findall(text) if number or unit)
    if total > LONGEST // _MILLISECOND:
        raise DurationError(_too_long(shown(text)))
    return total * _MILLISECOND


def _length(number: str, unit: str, text: str, units: Units) -> int:
    """Return the length of one token in milliseconds."""
    if not number:
        raise DurationError(f"{shown(text)} has no number before {shown(unit)}; write one such as '2d12h'")
    if unit not in units:
        raise DurationError(f"{shown(text)} {_wrong_unit(number, unit, units)}")
    if not number.strip("0"):
        part = f"has a part of zero, {shown(number + unit)}; leave it out"
        raise DurationError(
            f"{shown(text)} {'is zero; write a longer duration' if text == number + unit else part}"
        )
    if len(number.lstrip("0")) > _MOST_DIGITS:
        raise DurationError(_too_long(shown(text)))
    return int(number.lstrip("0")) * (units[unit] // _MILLISECOND)


def _wrong_unit(number: str, unit: str, units: Units) -> str:
    known = listed(units)
    if not unit:
        return f"has no unit after {number[-_MOST_DIGITS:]}; add {known}"
    if unit in FINE_UNITS:
        return f"is too fine, the unit {unit!r} is not known here; use {known}"
    if unit.lower() in units:
        return f"has the unit {unit!r} in capitals; write {unit.lower()!r}"
    return f"has an unknown unit {shown(unit)}; use {known}"


def _bounded(duration: timedelta, *, text: str) -> timedelta:
    if duration <= timedelta():
        raise DurationError(f"{text} is not longer than zero; write a positive duration")
    if duration > LONGEST:
        raise DurationError(_too_long(text))
    if duration % _MILLISECOND:
        raise DurationError(f"{text} has a fraction of a millisecond; round it")
    return duration


def _too_long(text: str) -> str:
    return f"{text} is longer than 100 years; the longest duration is {LONGEST.days}d"
