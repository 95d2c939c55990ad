"""Parse cron strings of two dialects into cron tables.

``extended`` is what croniter accepts in five fields: names, steps, macros, ``L``, ``W`` and ``#``.
``posix`` is what IEEE 1003.1 has: numbers, ranges, lists and ``*``. croniter expands the fields. The
posix dialect is checked first, because croniter accepts more; and a few forms that croniter reads
differently from every cron are rewritten first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, tzinfo
from enum import StrEnum
from functools import lru_cache
from typing import NoReturn

from croniter import CroniterError, croniter

from celery_catchup.error_text import shown
from celery_catchup.errors import CronError
from celery_catchup.timetables.cron_table import LAST_OF_MONTH, CronTable, DaylightSaving, Days, cron_table


class Dialect(StrEnum):
    """The syntax of cron strings."""

    EXTENDED = "extended"
    POSIX = "posix"


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def number(self, text: str) -> int | None:
        """Return the value of a number or a name."""
        if text in self.names:
            return self.low + self.names.index(text)
        return int(text) if re.fullmatch(r"[0-9]{1,4}", text) else None

    @property
    def all(self) -> frozenset[int]:
        return frozenset(range(self.low, self.high + 1))


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, tuple("jan feb mar apr may jun jul aug sep oct nov dec".split())),
    _Field("day of week", 0, 6, tuple("sun mon tue wed thu fri sat".split())),
)
_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
# Longer than any sensible expression (a full list of minutes is 170), short enough to parse at once.
_LONGEST = 1000


def parse_cron(text: object, *, zone: tzinfo = UTC, dialect: Dialect = Dialect.EXTENDED) -> CronTable:
    """Return the table of a cron string in ``zone``; raise `CronError` naming the wrong token.

    Day of month and day of week: either matches if both are restricted; a field that starts with
    ``*`` is not. Minutes or hours that start with ``*`` follow real time at a change of the clock;
    fixed times run once (see `DaylightSaving`).
    """
    if not isinstance(text, str):
        raise CronError(f"expected a cron expression of five fields, got {shown(text)}")
    fields = _posix_fields(text) if dialect is Dialect.POSIX else _extended_fields(text)
    minutes, hours, days = _expand(fields, text)
    follows_real_time = fields[0].startswith("*") or fields[1].startswith("*")
    rule = DaylightSaving.REAL_TIME if follows_real_time else DaylightSaving.FIXED
    return cron_table(minutes, hours, days, zone, rule)


# -- the posix dialect ----------------------------------------------------------------------


def _posix_fields(text: str) -> tuple[str, ...]:
    fields = tuple(re.split(r"[ \t]+", text.strip(" \t")))
    if text.startswith("@"):
        replacement = _MACROS.get(text.lower())
        _refuse(
            text,
            f"macro {shown(text)} is not POSIX",
            f"write {replacement!r}" if replacement else "write five fields",
        )
    _check_count(text, fields)
    for field, value in zip(_FIELDS, fields, strict=True):
        if value != "*":
            for element in value.split(","):
                _check_posix_element(text, field, element)
    return fields


def _check_posix_element(text: str, field: _Field, element: str) -> None:
    named = f"{field.name} {shown(element)}"
    numbers = element.split("-")
    if "/" in element:
        _refuse(text, f"{named} is a step, which POSIX does not have", _step_advice(field, element))
    if not all(re.fullmatch(r"[0-9]+", number) for number in numbers) or len(numbers) > 2:
        _refuse(
            text,
            f"{named} is not a number, a range or '*'",
            f"write numbers from {field.low} to {field.high}",
        )
    values = [int(number) if len(number) < 9 else 10**9 for number in numbers]
    if not all(field.low <= value <= field.high for value in values):
        sunday = "; Sunday is 0" if field.name == "day of week" and 7 in values else ""
        _refuse(text, f"{named} is outside {field.low}-{field.high}", f"write a value inside{sunday}")
    if values[0] > values[-1]:
        wrapped = f"{values[0]}-{field.high},{field.low}-{values[-1]}"
        _refuse(text, f"{named} is a range that wraps around", f"write '{wrapped}'")


def _step_advice(field: _Field, element: str) -> str:
    """Return the list that replaces a step, if it is a valid one."""
    start, _, step = element.partition("/")
    low, high = (
        [*start.split("-"), str(field.high)][:2] if start != "*" else (str(field.low), str(field.high))
    )
    if not all(re.fullmatch(r"[0-9]{1,4}", part) for part in (low, high, step)) or int(step) == 0:
        return "list the values instead"
    return "write '{}'".format(",".join(map(str, range(int(low), min(int(high), field.high) + 1, int(step)))))


# -- the extended dialect --------------------------------------------------------------------


def _extended_fields(text: str) -> tuple[str, ...]:
    stripped = text.strip(" \t")
    if not stripped.isascii() or not stripped.replace("\t", " ").isprintable():
        _refuse(text, "it contains a character that is not plain text", "write ASCII on one line")
    if stripped.startswith("@"):
        if stripped.lower() not in _MACROS:
            _refuse(text, f"unknown macro {shown(stripped)}", f"use one of {', '.join(_MACROS)}")
        stripped = _MACROS[stripped.lower()]
    fields = tuple(stripped.split())
    _check_count(text, fields)
    return tuple(_rewritten(text, field, value.lower()) for field, value in zip(_FIELDS, fields, strict=True))


def _rewritten(text: str, field: _Field, value: str) -> str:
    """Rewrite the forms that croniter reads in its own way."""
    if re.search(r"(?<![a-z])[rh](?![a-z])", value):
        _refuse(
            text,
            f"{field.name} {shown(value)} is random or hashed, so its slots would not be the same twice",
            "write fixed values",
        )
    return ",".join(_rewritten_element(field, element) for element in value.split(","))


def _rewritten_element(field: _Field, element: str) -> str:
    # croniter reads 5-5 and 59/15 as the whole field; every cron reads one value.
    parts = re.fullmatch(r"(\w+)(?:-(\w+))?(/[1-9]\d*)?", element)
    if parts is None:
        return element
    first, last = field.number(parts[1]), field.number(parts[2] or "")
    if first is None:
        return element
    alone = first == last or (parts[2] is None and parts[3] is not None and first == field.high)
    return str(first) if alone else element


# -- both ------------------------------------------------------------------------------------


def _check_count(text: str, fields: tuple[str, ...]) -> None:
    if len(fields) != 5 or not all(fields):
        count = len([field for field in fields if field])
        counted = (
            f"it has {count} field{'s' * (count != 1)} where five are needed" if count else "it is empty"
        )
        _refuse(text, counted, "write minute, hour, day of month, month, day of week")


@lru_cache(maxsize=4096)
def _expand(fields: tuple[str, ...], text: str) -> tuple[frozenset[int], frozenset[int], Days]:
    """Expand a well-formed expression into minutes, hours and days."""
    plain = " ".join(fields)
    if len(plain) > _LONGEST:
        _refuse(text, f"it is {len(plain)} characters long", "split it into a list of schedules")
    try:
        expanded, nth = croniter.expand(plain)
        nearest = croniter(plain).nearest_weekday if "w" in fields[2] else set()
    except (CroniterError, ValueError, KeyError, IndexError):
        _refuse_field(text, fields)
    minutes, hours, dom, months, dow = (
        field.all if "*" in values else frozenset(v for v in values if isinstance(v, int))
        for field, values in zip(_FIELDS, expanded, strict=True)
    )
    days = Days(
        days_of_month=dom - nearest,
        months=months,
        days_of_week=dow,
        either=fields[2][0] not in "*?" and fields[4][0] not in "*?",
        last_day="l" in expanded[2],
        nearest_weekday=next(iter(nearest), None),
        nth=frozenset((int(day), _nth(n)) for day, ns in nth.items() for n in ns) or None,
    )
    return minutes, hours, days


def _nth(number: object) -> int:
    return LAST_OF_MONTH if number == "l" else int(str(number))


def _refuse_field(text: str, fields: tuple[str, ...]) -> NoReturn:
    """Find the field that croniter rejects, and name it."""
    for index, (field, value) in enumerate(zip(_FIELDS, fields, strict=True)):
        alone = ["*"] * 5
        alone[index] = value
        try:
            croniter.expand(" ".join(alone))
        except (CroniterError, ValueError, KeyError, IndexError):
            advice = f"use values from {field.low} to {field.high}, '*', lists, ranges or steps"
            _refuse(text, f"{field.name} {shown(value)} is not understood", advice)
    _refuse(text, "its fields do not go together", "write five plain fields")


def _refuse(text: str, problem: str, advice: str) -> NoReturn:
    raise CronError(f"cron expression {shown(text)}: {problem}; {advice}")
