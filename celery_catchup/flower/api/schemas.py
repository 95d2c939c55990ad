"""JSON schemas of the values that operations return, read from their dataclasses."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from celery_catchup.operations.json_form import camel
from celery_catchup.operations.previews import PlannedSlots, PreviewSlot

_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    datetime: {"type": "string", "format": "date-time"},
    timedelta: {"type": "number", "description": "Seconds."},
    type(None): {"type": "null"},
    Any: {},
}


class Schemas:
    """Schemas of types; those of dataclasses have names, and are collected."""

    def __init__(self) -> None:
        self.named: dict[str, dict[str, Any]] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        """The schema of a type."""
        if kind in _PLAIN:
            return dict(_PLAIN[kind])
        if kind is PlannedSlots:
            return self.of(list[PreviewSlot])
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"type": "string", "enum": [str(one.value) for one in kind]}
        if is_dataclass(kind) and isinstance(kind, type):
            return self._named(kind)
        return self._built(get_origin(kind), get_args(kind))

    def _built(self, origin: Any, args: tuple[Any, ...]) -> dict[str, Any]:
        if origin in (Union, types.UnionType):
            return self._either(args)
        if origin in (list, tuple):
            return {"type": "array", "items": self.of(args[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of(args[1])}
        raise TypeError(f"{origin} has no schema")

    def _either(self, kinds: tuple[Any, ...]) -> dict[str, Any]:
        if str in kinds:  # a word, or one that a newer version has written
            kinds = tuple(kind for kind in kinds if kind in (str, type(None)))
        if len(kinds) == 1:
            return self.of(kinds[0])
        return {"anyOf": [self.of(kind) for kind in kinds]}

    def _named(self, kind: type) -> dict[str, Any]:
        name = kind.__name__
        if name not in self.named:
            self.named[name] = {}  # for a type that contains itself
            members = dict(self._members(kind))
            self.named[name] = {
                "type": "object",
                "description": " ".join((kind.__doc__ or "").split()),
                "properties": members,
                "required": list(members),
                "additionalProperties": False,
            }
        return {"$ref": f"#/components/schemas/{name}"}

    def _members(self, kind: type) -> Iterator[tuple[str, dict[str, Any]]]:
        hints = get_type_hints(kind)
        for field in fields(kind):
            yield camel(field.name), self.of(hints[field.name])
