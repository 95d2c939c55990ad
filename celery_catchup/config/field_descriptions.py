"""Describe the fields of the user's configuration: for forms, and for the reference pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, timedelta
from enum import Enum, StrEnum
from types import NoneType
from typing import Any, get_args

from pydantic.fields import FieldInfo

from celery_catchup.config.durations import format_duration
from celery_catchup.config.fields import FieldParser, UserModel


class FieldKind(StrEnum):
    """How a form asks for a field."""

    TEXT = "text"
    NUMBER = "number"
    FLAG = "flag"
    CHOICE = "choice"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class FieldDescription:
    """A field in words: its meaning, the values that it accepts, and its default as text; None without one.

    ``choices`` are the words of a field that is one of several.
    """

    name: str
    meaning: str
    values: str
    default: str | None
    kind: FieldKind
    choices: tuple[str, ...] = ()
    required: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        """The texts that a form offers; none if the user writes the value."""
        return ("true", "false") if self.kind is FieldKind.FLAG else self.choices

    def parse_text(self, text: str) -> object:
        """Return the value that a user has written into a form, for the field's own parser.

        Text that is not of this kind is returned as it is; the parser then says what it expects.
        """
        written = text.strip()
        if self.kind in (FieldKind.TEXT, FieldKind.CHOICE):
            return written
        try:
            return json.loads(written)
        except (ValueError, RecursionError):
            return written

    def to_text(self, value: object) -> str:
        """Return a value of the configuration as a user writes it into a form."""
        if self.kind is FieldKind.CHOICE and isinstance(value, bool):
            return self.choices[0] if value else "false"
        return value if isinstance(value, str) else _text(value)


def describe_fields(model: type[UserModel]) -> tuple[FieldDescription, ...]:
    """Describe the fields of a model in their order."""
    return tuple(_describe(name, field) for name, field in model.model_fields.items())


def _describe(name: str, field: FieldInfo) -> FieldDescription:
    kind, choices = _kind(field.annotation)
    return FieldDescription(
        name,
        meaning=" ".join(str(field.description).split()),
        values=next(part.says for part in field.metadata if isinstance(part, FieldParser)),
        default=None if field.is_required() else _default(field.default),
        kind=kind,
        choices=choices,
        required=field.is_required(),
    )


def _kind(annotation: Any) -> tuple[FieldKind, tuple[str, ...]]:
    types = [one for one in get_args(annotation) or (annotation,) if one is not NoneType]
    found = types[0] if len(types) == 1 and isinstance(types[0], type) else object
    if issubclass(found, StrEnum):
        return FieldKind.CHOICE, tuple(str(one) for one in found)
    if issubclass(found, bool):
        return FieldKind.FLAG, ()
    if issubclass(found, int | float):
        return FieldKind.NUMBER, ()
    return (FieldKind.TEXT if issubclass(found, str | timedelta | date) else FieldKind.JSON), ()


def _default(value: Any) -> str | None:
    if value is None or value in ((), [], {}):
        return None
    if is_dataclass(value) and not any(getattr(value, one.name) for one in fields(value)):
        return None
    return str(value) if isinstance(value, bool) else _text(value)


def _text(value: Any) -> str:
    match value:
        case Enum():
            return str(value.value)
        case timedelta():
            return format_duration(value)
        case date():
            return value.isoformat()
        case bool() | Mapping() | list() | tuple():
            return json.dumps(value)
        case _:
            return str(value)
