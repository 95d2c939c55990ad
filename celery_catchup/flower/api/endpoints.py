"""An endpoint: what it takes, what it does, what it answers. Routes, checks and the document come from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celery_catchup.error_text import did_you_mean, shown
from celery_catchup.errors import Mistake
from celery_catchup.flower.api.kinds import Kind, Present
from celery_catchup.flower.failures import FailedError
from celery_catchup.operations import Operator

ROOT = "/api/catchup"
MOST_VALUES = {"query": 50, "body": 1000}
"""Values of a parameter that may be given several times; an address has to be short."""

Values = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Field:
    """A parameter: a part of the path, of the query, or of the body. ``many``: a list of values."""

    name: str
    kind: Kind
    help: str
    required: bool = False
    default: Any = None
    many: bool = False


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One method of one path. ``operation`` gets the operator and the values by name; what it returns is of
    type ``answer``. Only one that ``changes`` may change something."""

    method: str
    path: str
    name: str
    summary: str
    answer: type
    operation: Callable[[Operator, Values], object]
    where: Sequence[Field] = ()
    query: Sequence[Field] = ()
    body: Sequence[Field] | None = None
    changes: bool = False
    refuses: bool = False

    def values(
        self, path: Sequence[str], query: Mapping[str, Sequence[str]], body: bytes, present: Present
    ) -> Values:
        """Everything that a request gives, checked; 400 with all mistakes at once."""
        reader = _Reader(present)
        found = {one.name: reader.text(one, [text]) for one, text in zip(self.where, path, strict=True)}
        found |= {one.name: reader.text(one, query.get(one.name, ())) for one in self.query}
        reader.unknown(query, self.query, "parameter")
        if self.body is not None:
            members = reader.members(body)
            found |= {one.name: reader.json(one, members) for one in self.body}
            reader.unknown(members, self.body, "member")
        reader.done()
        return found


class _Reader:
    def __init__(self, present: Present) -> None:
        self._present = present
        self._mistakes: list[Mistake] = []

    def text(self, field: Field, texts: Sequence[str]) -> Any:
        if not texts:
            return self._absent(field)
        if len(texts) > 1 and not field.many:
            return self._wrong(field.name, f"given {len(texts)} times; give it once")
        return self._read(field, texts, field.kind.of_text, MOST_VALUES["query"])

    def json(self, field: Field, members: Mapping[str, object]) -> Any:
        if field.name not in members:
            return self._absent(field)
        value = members[field.name]
        if field.many and not isinstance(value, list):
            return self._wrong(field.name, f"expected a list, got {shown(value)}")
        raw = value if isinstance(value, list) and field.many else [value]
        return self._read(field, raw, field.kind.of_json, MOST_VALUES["body"])

    def _read(self, field: Field, raw: Sequence[Any], read: Callable[[Any, Present], Any], most: int) -> Any:
        if len(raw) > most:
            return self._wrong(field.name, f"given {len(raw)} times; {most} are taken at once")
        if field.required and not raw:
            return self._wrong(field.name, "expected at least one, got none")
        try:
            values = [read(one, self._present) for one in raw]
        except ValueError as error:
            return self._wrong(field.name, str(error))
        return values if field.many else values[0]

    def _absent(self, field: Field) -> Any:
        if field.required:
            return self._wrong(field.name, "missing")
        return field.default if field.default is not None or not field.many else []

    def _wrong(self, where: str, problem: str) -> None:
        self._mistakes.append(Mistake(where, problem))

    def members(self, body: bytes) -> dict[str, object]:
        """What a JSON body has; nothing at all is an empty one."""
        try:
            found = json.loads(body or b"{}")
        except (ValueError, RecursionError) as error:
            self._wrong("body", f"expected a JSON object: {error}")
            return {}
        if not isinstance(found, dict):
            self._wrong("body", f"expected a JSON object, got {shown(found)}")
            return {}
        return found

    def unknown(self, given: Iterable[str], fields: Sequence[Field], what: str) -> None:
        names = [field.name for field in fields]
        for name in given:
            if name not in names:
                self._wrong(name[:100], f"unknown {what}{did_you_mean(name, names)}")

    def done(self) -> None:
        """All mistakes, if there are any."""
        if self._mistakes:
            count = len(self._mistakes)
            told = f"{count} {'mistake' if count == 1 else 'mistakes'} in the request"
            raise FailedError(400, told, self._mistakes)
