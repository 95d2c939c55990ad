"""An endpoint: a function with its HTTP method, path, request model and response type.

`endpoint` registers a function in `ENDPOINTS`. Routes, parsing and the OpenAPI document follow from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any, TypeVar, get_origin, get_type_hints

from pydantic import ValidationError

from celery_catchup.error_text import did_you_mean, shown
from celery_catchup.errors import Mistake
from celery_catchup.flower.api.errors import ApiError
from celery_catchup.flower.api.requests import Request
from celery_catchup.operations.json_form import camel

ROOT = "/api/catchup"

Operation = TypeVar("Operation", bound=Callable[..., object])


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One method of one path. Only an endpoint that ``changes`` may change something."""

    method: str
    path: str
    name: str
    summary: str
    request: type[Request]
    response: Any
    operation: Callable[..., object]
    changes: bool

    @property
    def path_fields(self) -> list[str]:
        """The parameters that are part of the path."""
        return re.findall(r"\{(\w+)\}", self.path)

    @property
    def has_body(self) -> bool:
        """Whether the parameters are members of a JSON body, instead of query parameters."""
        return self.method == "POST"

    def parse(
        self, path: Sequence[str], query: Mapping[str, list[str]], body: bytes, *, now: datetime, zone: tzinfo
    ) -> Request:
        """Parse a request; `ApiError` 400 with all mistakes at once."""
        located = dict(zip(self.path_fields, path, strict=True))
        known = {field.alias or name: field for name, field in self.request.model_fields.items()}
        accepted = known.keys() - located.keys()
        mistakes: list[Mistake] = []
        if self.has_body:
            members = _json_object(body, mistakes)
            given, unknown = members, [("member", name) for name in members if name not in accepted]
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
            found = error.errors(include_url=False)
            # The second error of an optional parameter is that it is not None, which cannot be sent.
            mistakes += [_mistake(one) for one in found if one["type"] != "none_required"]
        mistakes += [_unknown(kind, name, accepted) for kind, name in unknown]
        if mistakes:
            noun = "mistake" if len(mistakes) == 1 else "mistakes"
            raise ApiError(400, f"{len(mistakes)} {noun} in the request", mistakes)
        return parsed


ENDPOINTS: list[Endpoint] = []
"""Every endpoint of the API, in the order of the document."""


def endpoint(method: str, path: str, *, changes: bool = False) -> Callable[[Operation], Operation]:
    """Register a function of an operator and a request; its docstring is the summary."""

    def register(operation: Operation) -> Operation:
        hints = get_type_hints(operation)
        ENDPOINTS.append(
            Endpoint(
                method=method,
                path=path,
                name=camel(operation.__name__),
                summary=" ".join((operation.__doc__ or "").split()),
                request=hints["request"],
                response=hints["return"],
                operation=operation,
                changes=changes,
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
    return decoded


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
