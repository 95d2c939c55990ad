"""Parse the fields of the user's configuration with pydantic, strictly, with readable errors.

Nothing is guessed: ``"5"`` is not a number, ``1`` is not True, and a bare number is not a duration.
`FieldParser` reads one value; `UserModel` reads a mapping and reports mistakes at the names the user wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, tzinfo
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import core_schema

from celery_catchup.config.durations import FINE_UNITS, WINDOW_UNITS, parse_duration
from celery_catchup.error_text import did_you_mean, listed, nearest, path, shown
from celery_catchup.errors import ConfigurationError, Mistake
from celery_catchup.timetables.zones import usable_zone, zone_named

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler

MOST = 10**9
"""The largest count anywhere; a larger one is a typing error."""

MOST_PROBLEMS = 20
"""Mistakes in one value that are reported; more would hide the others."""

MOST_GROWTH = 100
"""The largest factor by which a delay grows."""

LONGEST_TEXT = 200
"""Characters; names become parts of keys and log lines."""

_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII)
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)

Word = TypeVar("Word", bound=StrEnum)


class SeveralProblemsError(ValueError):
    """Several mistakes in one value; each text begins with its place in the value, such as ``[0].url: ``."""

    def __init__(self, problems: Sequence[str]) -> None:
        more = len(problems) - MOST_PROBLEMS
        self.problems = [*problems[:MOST_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]
        super().__init__("; ".join(self.problems))


def problems_of(error: ValueError) -> list[str]:
    """Return the mistakes that a parser found in one value."""
    return error.problems if isinstance(error, SeveralProblemsError) else [str(error)]


@dataclass(frozen=True, slots=True)
class FieldParser:
    """How a field is parsed; ``says`` describes its values on the reference page."""

    parse: Callable[[object], Any]
    says: str
    optional: bool = False

    def __get_pydantic_core_schema__(self, _: Any, __: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def read(self, value: object) -> Any:
        """Return the parsed value, or None for an optional field; raise ValueError with the reason."""
        return None if value is None and self.optional else self.parse(value)

    def or_none(self) -> FieldParser:
        """Return the same parser for an optional field."""
        return replace(self, optional=True)


def counts_to(most: int) -> Callable[[object], int]:
    """Return a parser of whole numbers from 1 to ``most``."""

    def count(value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most:
            return value
        raise ValueError(f"expected a whole number from 1 to {most}, got {shown(value)}")

    return count


def factor(value: object) -> float:
    """Parse a growth factor; 1 means no growth."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= MOST_GROWTH:
        return value
    raise ValueError(f"expected a number from 1 to {MOST_GROWTH}, got {shown(value)}")


def error_classes(value: object) -> tuple[str | type[BaseException], ...]:
    """Parse exception classes or their dotted names; a name without a dot is a built-in."""
    if not isinstance(value, list | tuple):
        raise ValueError(
            f"expected a list of exception classes such as ['proj.DownError'], got {shown(value)}"
        )
    for one in value:
        named = isinstance(one, str) and _DOTTED.fullmatch(one)
        if not named and not (isinstance(one, type) and issubclass(one, BaseException)):
            raise ValueError(f"expected an exception class or its dotted name, got {shown(one)}")
    return tuple(value)


def globs(value: object) -> tuple[str, ...]:
    """Parse a list of patterns of names."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected a list of patterns such as ['proj.reports.*'], got {shown(value)}")
    return tuple(map(text, value))


def flag(value: object) -> bool:
    """Parse True or False, and nothing else."""
    if isinstance(value, bool):
        return value
    raise ValueError(f"expected True or False, got {shown(value)}")


def text(value: object) -> str:
    """Parse a short printable text."""
    if not isinstance(value, str):
        advice = "; put it in quotes" if isinstance(value, int | float) else ""
        raise ValueError(f"expected text, got {shown(value)}{advice}")
    if len(value) > LONGEST_TEXT:
        raise ValueError(f"{shown(value)} is {len(value)} characters long; use at most {LONGEST_TEXT}")
    if not value.isprintable():
        raise ValueError(f"{shown(value)} has unprintable characters; remove them")
    return value


def zone(value: object) -> str:
    """Parse the name of a time zone that exists on this machine; accept a `ZoneInfo` as its name."""
    if isinstance(value, ZoneInfo) and value.key is not None:
        value = value.key
    if not isinstance(value, str):
        raise ValueError(f"expected the name of a time zone such as 'Europe/Berlin', got {shown(value)}")
    zone_named(value[:LONGEST_TEXT])
    return value


def one_of(choices: type[Word]) -> Callable[[object], Word]:
    """Return a parser of the values of an enumeration."""
    words = [str(choice) for choice in choices]

    def choice(value: object) -> Word:
        if isinstance(value, str) and value in words:
            return choices(value)
        raise ValueError(f"expected {listed(words)}, got {shown(value)}{did_you_mean(value, words)}")

    return choice


def moment(value: object) -> datetime:
    """Parse a date, a datetime, or either as ISO 8601; without an offset it stays naive, for `to_utc`."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime.combine(value, time())
    expected = "expected a time such as 2026-02-07 or 2026-02-07T06:00+01:00"
    if not isinstance(value, str) or not _ISO.fullmatch(value):
        raise ValueError(f"{expected}, got {shown(value)}")
    try:
        return datetime.fromisoformat(value)
    except ValueError as error:
        raise ValueError(f"{expected}, got {shown(value)}: {error}") from None


def to_utc(value: datetime, *, zone: tzinfo) -> datetime:
    """Return the time in UTC; one without an offset is a wall-clock time of ``zone``."""
    aware = value if value.utcoffset() is not None else value.replace(tzinfo=usable_zone(zone))
    # datetime ends with the year 9999, before and after the conversion.
    if not _EARLIEST <= aware <= _LATEST:
        raise ValueError(f"expected a time in the years 1970 to 9999, got {shown(value)}")
    return aware.astimezone(UTC)


WINDOW = FieldParser(partial(parse_duration, units=WINDOW_UNITS), "duration of `d`, `h`, `m`")
PAUSE = FieldParser(partial(parse_duration, units=FINE_UNITS), "duration of `d`, `h`, `m`, `s`, `ms`")
COUNT = FieldParser(counts_to(MOST), "whole number from 1")
FACTOR = FieldParser(factor, f"number from 1 to {MOST_GROWTH}")
ERRORS = FieldParser(error_classes, "list of exception classes or their dotted names")
GLOBS = FieldParser(globs, "list of globs")
FLAG = FieldParser(flag, "`True`, `False`")
TEXT = FieldParser(text, "text")
ZONE = FieldParser(zone, "IANA name, such as `Europe/Berlin`, or a `ZoneInfo`")
MOMENT = FieldParser(moment, "`datetime`, `date` or ISO 8601 text")


def word(choices: type[StrEnum]) -> FieldParser:
    """Return the parser and description of an enumeration's values."""
    return FieldParser(one_of(choices), ", ".join(f"`{choice}`" for choice in choices))


class UserModel(BaseModel):
    """The base of every model that is parsed from the user's settings."""

    # Inputs may contain passwords, so pydantic's own errors must not repeat them.
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,  # they are the meanings on the reference page
    )

    @classmethod
    def read(cls, raw: Mapping[str, object], *, where: str = "", timezone: tzinfo = UTC) -> Self:
        """Parse a mapping; raise all its mistakes at once as a `ConfigurationError`.

        Times without an offset are wall-clock times of ``timezone``.
        """
        try:
            return cls.model_validate(dict(raw), context={"timezone": timezone})
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
            raise ConfigurationError(_mistakes(cls, found, raw=raw, where=where)) from None

    @classmethod
    def spellings(cls) -> dict[str, str]:
        """Return a mapping of every accepted name to the field's own."""
        names = {name: name for name in cls.model_fields}
        for name, field in cls.model_fields.items():
            choices = getattr(field.validation_alias, "choices", (field.validation_alias,))
            names |= {choice: name for choice in choices if isinstance(choice, str)}
        return names

    @classmethod
    def unknown(cls, name: object) -> str:
        """Describe an unknown name, with the nearest known one."""
        names = cls.spellings()
        meant = nearest(str(name), names)
        return f"unknown field; did you mean {names[meant]!r}?" if meant else "unknown field"


def _mistakes(
    model: type[UserModel], found: Sequence[Any], *, raw: Mapping[str, object], where: str
) -> Iterator[Mistake]:
    names = model.spellings()
    misspelt = {names.get(nearest(str(key), names) or "") for key in raw if key not in names}
    for item in found:
        key = item["loc"][0]
        # A field that is missing because its name was misspelt is one mistake, not two.
        if key in raw or names.get(key) not in misspelt:
            for problem in _problems(item, key=key, model=model):
                yield Mistake(path(where, key), problem)


def _problems(item: Any, *, key: object, model: type[UserModel]) -> list[str]:
    names = model.spellings()
    match item["type"]:
        case "extra_forbidden" if key in names:
            return [f"{names[str(key)]!r} is given under two names; keep one of them"]
        case "extra_forbidden" | "invalid_key":
            return [model.unknown(key)]
        case "missing":
            return [f"missing; add {key!r}"]
        case _:
            return problems_of(item["ctx"]["error"])
