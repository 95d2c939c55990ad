"""The OpenAPI document, generated from the endpoints, their request models and their response types."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from celery_catchup import __version__
from celery_catchup.flower.api.endpoint import ENDPOINTS, ROOT, Endpoint
from celery_catchup.flower.api.errors import ERRORS, ApiError, ErrorCode, Problem
from celery_catchup.flower.api.handler import SCRIPT_HEADER, ApiHandler, encode
from celery_catchup.operations.json_form import camel

Schema = dict[str, Any]

_DESCRIPTION = (
    "Times are RFC 3339, or as the commands take them: `2026-02-07`, `6h ago`, `yesterday`, `now`; a time "
    "without an offset is in the app's time zone. Durations in responses are seconds. Unknown values are "
    "null. Lists come in pages: send the `next` of a page as `cursor` to get the following one.\n\n"
    "A request that changes something needs authentication in Flower, a Flower that is not read-only unless "
    f"it is a dry run, and the header `{SCRIPT_HEADER}` (any value) or an XSRF token. Requests of pages of "
    "other sites are refused."
)
_STATUSES = sorted({str(status) for status, _ in ERRORS.values()} - {"405"})


class _SchemaGenerator(GenerateJsonSchema):
    """Describe values as `as_json` writes them: camelCase, durations in seconds, every field present."""

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> Schema:
        return {"type": "number", "description": "Seconds."}

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> Schema:
        found = super().dataclass_schema(schema)
        members = {camel(name): member for name, member in found["properties"].items()}
        for member in members.values():
            member.pop("default", None)
        description = " ".join(found["description"].split())
        return found | {
            "description": description,
            "properties": members,
            "required": list(members),
            "additionalProperties": False,
        }

    def normalize_name(self, name: str) -> str:
        return re.sub(r"^ResultPage\[(?:.*\.)?(\w+)\]$", r"\1Page", name)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def document(endpoints: Iterable[Endpoint], *, prefix: str = "") -> Schema:
    """Generate the document; ``prefix`` is the path that Flower is served at."""
    listed = list(endpoints)
    adapters: list[tuple[str, Any, TypeAdapter[Any]]] = [("error", "serialization", TypeAdapter(Problem))]
    for one in listed:
        adapters.append((one.name, "validation", TypeAdapter(one.request)))
        adapters.append((one.name, "serialization", TypeAdapter(one.response)))
    schemas, definitions = TypeAdapter.json_schemas(
        adapters, ref_template="#/components/schemas/{model}", schema_generator=_SchemaGenerator
    )
    components = definitions["$defs"]
    paths: dict[str, Schema] = {}
    for one in listed:
        request = components[one.request.__name__]
        response = schemas[one.name, "serialization"]
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, request, response)
    for name in {one.request.__name__ for one in listed}:  # they are described where they are used
        del components[name]
    for schema in components.values():
        schema.pop("title", None)
    return {
        "openapi": "3.1.0",
        "info": {"title": "celery-catchup", "version": __version__, "description": _DESCRIPTION},
        "servers": [{"url": f"{prefix}{ROOT}"}],
        "security": [{"basic": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
            "responses": {
                f"Error{status}": {
                    "description": " ".join(text for code, text in ERRORS.values() if str(code) == status),
                    "content": {"application/problem+json": {"schema": schemas["error", "serialization"]}},
                }
                for status in _STATUSES
            },
            "schemas": components,
        },
    }


def _operation(endpoint: Endpoint, request: Schema, response: Schema) -> Schema:
    fields = {name: _without_null(field) for name, field in request.get("properties", {}).items()}
    in_path, in_headers = endpoint.path_fields, endpoint.header_fields
    others = {name: field for name, field in fields.items() if name not in {*in_path, *in_headers}}
    headers = [_parameter("header", name, fields[name]) for name in sorted(in_headers)]
    kind = "text/event-stream" if endpoint.streams else "application/json"
    found = {
        "description": "Found." if not endpoint.changes else "Done.",
        "content": {kind: {"schema": response}},
    }
    required = [name for name in others if name in request.get("required", ())]
    operation: Schema = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": [
            *(_parameter("path", name, fields[name]) | {"required": True} for name in in_path),
            *([_SCRIPT_PARAMETER] if endpoint.changes else []),
            *headers,
        ],
        "responses": {
            **({"201": _CREATED | {"content": _json(response)}} if endpoint.creates else {}),
            "200": found,
            **{status: {"$ref": f"#/components/responses/Error{status}"} for status in _statuses(endpoint)},
        },
    }
    if endpoint.has_body:
        body = {"type": "object", "properties": others, "required": required, "additionalProperties": False}
        operation["requestBody"] = {
            "content": _json(body),
            "required": bool(required),
        }
    else:
        operation["parameters"] += [
            _parameter("query", name, field) | ({"required": True} if name in required else {})
            for name, field in others.items()
        ]
    return operation


def _statuses(endpoint: Endpoint) -> list[str]:
    unused = set() if endpoint.has_body else {"413", "415"}
    unused |= set() if endpoint.heavy or endpoint.streams else {"429"}
    return [status for status in _STATUSES if status not in unused]


_SCRIPT_PARAMETER = {
    "name": SCRIPT_HEADER,
    "in": "header",
    "required": True,
    "description": "Any value: pages of other sites cannot send it. Browsers may send an XSRF token instead.",
    "schema": {"type": "string", "minLength": 1, "default": "celery-catchup"},
}
_CREATED = {
    "description": "Created.",
    "headers": {"Location": {"description": "The path of what was created.", "schema": {"type": "string"}}},
}


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


def _parameter(place: str, name: str, field: Schema) -> Schema:
    schema = {key: value for key, value in field.items() if key not in ("description", "in")}
    return {"name": name, "in": place, "description": field["description"], "schema": schema}


def _without_null(field: Schema) -> Schema:
    """Drop the default of a parameter that is absent by default."""
    return {key: value for key, value in field.items() if key != "default" or value not in (None, [])}


class DocumentHandler(ApiHandler):
    """``openapi.json``."""

    async def _serve(self, method: str) -> None:
        self._check_access()
        if method != "GET":
            self._allowed = ["GET"]
            raise ApiError(ErrorCode.METHOD_NOT_ALLOWED, "Only GET is a method of this path.")
        self._send(await asyncio.to_thread(lambda: self._encoded(_document(self.url_prefix))))


@cache  # generating it takes a third of a second
def _document(prefix: str) -> bytes:
    return encode(document(ENDPOINTS, prefix=prefix))
