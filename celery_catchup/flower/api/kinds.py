"""Kinds of parameters: how each is read from an address or from JSON, and its schema."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Any, Protocol

from celery_catchup.config.times import FINE_UNITS, parse_duration, parse_time
from celery_catchup.error_text import listed, shown

_LONGEST_LENGTH = 20
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Present:
    """What a time is read against: now, and the zone of times without an offset."""

    now: datetime
    zone: tzinfo


class Kind(Protocol):
    """Reads a value, or raises `ValueError` with what was expected."""

    @property
    def schema(self) -> dict[str, Any]:
        """As JSON Schema has it."""

    def of_text(self, text: str, present: Present) -> Any:
        """The value of a part of an address."""

    def of_json(self, value: object, present: Present) -> Any:
        """The value of a member of a JSON body."""


@dataclass(frozen=True)
class Text:
    """Any text, or one that looks like a pattern."""

    longest: int = 500
    pattern: str | None = None
    shortest: int = 0

    @property
    def schema(self) -> dict[str, Any]:
        """A string."""
        bounds: dict[str, Any] = {"type": "string", "maxLength": self.longest}
        bounds |= {"minLength": self.shortest} if self.shortest else {}
        return bounds | ({"pattern": f"^{self.pattern}$"} if self.pattern else {})

    def of_text(self, text: str, present: Present) -> str:
        """The text itself."""
        if not self.shortest <= len(text) <= self.longest:
            raise ValueError(f"expected {self.shortest} to {self.longest} characters, got {len(text)}")
        if self.pattern and not re.fullmatch(self.pattern, text, re.ASCII):
            raise ValueError(f"expected text like {self.pattern}, got {shown(text)}")
        return text

    def of_json(self, value: object, present: Present) -> str:
        """A JSON string."""
        return self.of_text(_string(value), present)


@dataclass(frozen=True)
class Word:
    """One of the words of an enumeration."""

    words: type[StrEnum]

    @property
    def schema(self) -> dict[str, Any]:
        """A string of these."""
        return {"type": "string", "enum": [str(word) for word in self.words]}

    def of_text(self, text: str, present: Present) -> StrEnum:
        """The word."""
        if text not in list(self.words):
            raise ValueError(f"expected {listed([str(word) for word in self.words])}, got {shown(text)}")
        return self.words(text)

    def of_json(self, value: object, present: Present) -> StrEnum:
        """A JSON string."""
        return self.of_text(_string(value), present)


@dataclass(frozen=True)
class Whole:
    """A whole number between two bounds."""

    least: int
    most: int

    @property
    def schema(self) -> dict[str, Any]:
        """An integer."""
        return {"type": "integer", "minimum": self.least, "maximum": self.most}

    def of_text(self, text: str, present: Present) -> int:
        """Written in decimal digits."""
        if not re.fullmatch(r"[0-9]{1,9}", text):
            raise ValueError(f"expected a whole number, got {shown(text)}")
        return self.of_json(int(text), present)

    def of_json(self, value: object, present: Present) -> int:
        """A JSON number without a fraction."""
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not whole:
            raise ValueError(f"expected a whole number, got {shown(value)}")
        assert isinstance(value, int | float)
        if not self.least <= value <= self.most:
            raise ValueError(f"expected {self.least} to {self.most}, got {int(value)}")
        return int(value)


@dataclass(frozen=True)
class Flag:
    """Yes or no."""

    @property
    def schema(self) -> dict[str, Any]:
        """A boolean."""
        return {"type": "boolean"}

    def of_text(self, text: str, present: Present) -> bool:
        """``true`` or ``false``."""
        if text not in ("true", "false"):
            raise ValueError(f"expected true or false, got {shown(text)}")
        return text == "true"

    def of_json(self, value: object, present: Present) -> bool:
        """A JSON boolean."""
        if not isinstance(value, bool):
            raise ValueError(f"expected true or false, got {shown(value)}")
        return value


@dataclass(frozen=True)
class Moment:
    """A time as the commands take it; ``since``: a bare duration is that long ago."""

    since: bool = False
    whole_day: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """A string; the other forms are told in words."""
        return {"type": "string", "format": "date-time"}

    def of_text(self, text: str, present: Present) -> datetime:
        """The moment in UTC; what lies before 1970 counts as 1970, before which nothing is."""
        if re.match(r"[01]\d{3}-", text) and text < _FIRST.isoformat():
            datetime.fromisoformat(text)
            return _FIRST
        return parse_time(
            text, now=present.now, zone=present.zone, whole_day=self.whole_day, since=self.since
        )

    def of_json(self, value: object, present: Present) -> datetime:
        """A JSON string."""
        return self.of_text(_string(value), present)


@dataclass(frozen=True)
class Length:
    """A duration such as ``6h``."""

    @property
    def schema(self) -> dict[str, Any]:
        """A string."""
        return {"type": "string", "pattern": "^([1-9][0-9]{0,3}[dhm])+$", "maxLength": _LONGEST_LENGTH}

    def of_text(self, text: str, present: Present) -> timedelta:
        """The duration."""
        if len(text) > _LONGEST_LENGTH:
            raise ValueError(f"expected a duration such as 6h, got {len(text)} characters")
        return parse_duration(text, units=FINE_UNITS)

    def of_json(self, value: object, present: Present) -> timedelta:
        """A JSON string."""
        return self.of_text(_string(value), present)


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a string, got {shown(value)}")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError("expected Unicode text, got half of a surrogate pair")
    return value
