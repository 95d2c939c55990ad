"""An endpoint: a function with its HTTP method, path, request model and response type.

`endpoint` registers a function in `ENDPOINTS`. Routes, parsing and the OpenAPI document follow from it. The
conventions: a list is a `ResultPage`; something that was made is a `Created`; a change takes ``dryRun``; a
change of one thing takes its whole id in the path, and a change of several takes them in the body and
answers with an outcome for each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from functools import cached_property
from itertools import chain, islice
from typing import Any, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import unquote

from pydantic import ValidationError

from celery_catchup.error_text import did_you_mean, shown
from celery_catchup.errors import Mistake
from celery_catchup.flower.api.errors import ApiError, ErrorCode
from celery_catchup.flower.api.requests import HEADER, Request
from celery_catchup.flower.api.responses import Created
from celery_catchup.operations.json_form import camel

ROOT = "/api/catchup/v1"
MOST_MISTAKES = 20
"""Mistakes of one request that are listed; describing each of thousands would take long."""

MOST_LEVELS = 50
"""How deeply the values of a body may be nested."""

Operation = TypeVar("Operation", bound=Callable[..., object])


@dataclass(frozen=True)
class SentRequest:
    """A request as it was sent: the values of the path, the query, the headers and the body."""

    path: Sequence[str]
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One method of one path. Only an endpoint that ``changes`` may change something; few that are
    ``heavy`` run at the same time; one that ``creates`` answers 201 and the address; one that ``streams``
    sends events instead of JSON."""

    method: str
    path: str
    name: str
    summary: str
    request: type[Request]
    response: Any
    operation: Callable[..., object]
    changes: bool
    heavy: bool
    creates: bool
    streams: bool
    old_names: Mapping[str, str] = field(default_factory=dict)

    @property
    def path_fields(self) -> list[str]:
        """The parameters that are part of the path."""
        return re.findall(r"\{(\w+)\}", self.path)

    @property
    def has_body(self) -> bool:
        """Whether the parameters are members of a JSON body, instead of query parameters."""
        return self.method == "POST"

    @cached_property
    def header_fields(self) -> set[str]:
        """The parameters that are headers."""
        return {
            field.alias or name
            for name, field in self.request.model_fields.items()
            if field.json_schema_extra is HEADER
        }

    def match(self, path: str) -> list[str] | None:
        """Return the values in a path, or None if it is another path."""
        found = re.fullmatch(re.sub(r"\{\w+\}", "([^/]+)", self.path), path)
        return None if found is None else [unquote(value, errors="strict") for value in found.groups()]

    def parse(self, sent: SentRequest, *, now: datetime, zone: tzinfo) -> Request:
        """Parse a request; `ApiError` 400 with all mistakes at once."""
        located = dict(zip(self.path_fields, sent.path, strict=True))
        located |= {name: sent.headers[name] for name in self.header_fields if name in sent.headers}
        known = {field.alias or name: field for name, field in self.request.model_fields.items()}
        accepted = known.keys() - {*self.path_fields, *self.header_fields}
        query = {self.old_names.get(name, name): values for name, values in sent.query.items()}
        mistakes: list[Mistake] = []
        errors: list[Any] = []
        if self.has_body:
            members = _json_object(sent.body, mistakes)
            given = {self.old_names.get(name, name): value for name, value in members.items()}
            unknown = [("member", name) for name in given if name not in accepted]
            unknown += [("parameter", name) for name in query]
        else:
            lists = {name for name, field in known.items() if get_origin(field.annotation) is list}
            given = {name: values if name in lists else values[0] for name, values in query.items()}
            unknown = [("parameter", name) for name in query if name not in accepted]
            mistakes += [
                Mistake(name, f"expected one value, got {len(values)}")
                for name, values in query.items()
                if name in accepted - lists and len(values) > 1
            ]
        values = {name: value for name, value in given.items() if name in accepted} | located
        try:
            parsed = self.request.model_validate(values, context={"now": now, "zone": zone})
        except ValidationError as error:
            # The second error of an optional parameter is that it is not None, which cannot be sent.
            found = error.errors(include_url=False)
            errors = [one for one in found if one["type"] != "none_required"]
        if count := len(mistakes) + len(errors) + len(unknown):
            described = chain(mistakes, map(_mistake, errors), (_unknown(*one, accepted) for one in unknown))
            listed = list(islice(described, MOST_MISTAKES))
            noun = "mistake" if count == 1 else "mistakes"
            rest = f"; the first {MOST_MISTAKES} are listed" if count > MOST_MISTAKES else ""
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{count} {noun} in the request{rest}", listed)
        return parsed


ENDPOINTS: list[Endpoint] = []
"""Every endpoint of the API, in the order of the document."""


def endpoint(
    method: str, path: str, *, changes: bool = False, heavy: bool = False, streams: bool = False
) -> Callable[[Operation], Operation]:
    """Register a function of an operator and a request; its docstring is the summary."""

    def register(operation: Operation) -> Operation:
        hints = get_type_hints(operation)
        response = hints["return"]
        creates = get_origin(response) is Created
        ENDPOINTS.append(
            Endpoint(
                method=method,
                path=path,
                name=camel(operation.__name__),
                summary=" ".join((operation.__doc__ or "").split()),
                request=hints["request"],
                response=get_args(response)[0] if creates else response,
                operation=operation,
                changes=changes,
                heavy=heavy,
                creates=creates,
                streams=streams,
            )
        )
        return operation

    return register


def _json_object(body: bytes, mistakes: list[Mistake]) -> dict[str, Any]:
    """Decode the members of a JSON body; an empty body has none."""
    try:
        decoded = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        mistakes.append(Mistake("body", f"expected a JSON object: {error}"))
        return {}
    if not isinstance(decoded, dict):
        mistakes.append(Mistake("body", f"expected a JSON object, got {shown(decoded)}"))
        return {}
    if _is_deep(decoded):
        mistakes.append(Mistake("body", f"expected at most {MOST_LEVELS} nested lists and objects"))
        return {}
    return decoded


def _is_deep(value: object) -> bool:
    """Whether a value is nested so deeply that a recursive function would fail."""
    level: list[Any] = [value]
    for _ in range(MOST_LEVELS + 1):
        level = [
            child
            for one in level
            if isinstance(one, list | dict)
            for child in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def _mistake(error: Any) -> Mistake:
    where = str(error["loc"][0])
    match error["type"]:
        case "missing":
            return Mistake(where, "missing")
        case "value_error":
            return Mistake(where, str(error["ctx"]["error"]))
        case _:
            expected = error["msg"].replace("Input should be", "expected")
            return Mistake(where, f"{expected[0].lower()}{expected[1:]}, got {shown(error['input'])}")


def _unknown(kind: str, name: str, known: Iterable[str]) -> Mistake:
    return Mistake(name[:100], f"unknown {kind}{did_you_mean(name, known)}")
