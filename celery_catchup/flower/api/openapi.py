"""The OpenAPI document, generated from the endpoints, their request models and their response types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from celery_catchup import __version__
from celery_catchup.flower.api.endpoint import ROOT, Endpoint
from celery_catchup.flower.api.errors import Error
from celery_catchup.flower.api.handler import SCRIPT_HEADER
from celery_catchup.operations.json_form import camel

Schema = dict[str, Any]

_DESCRIPTION = (
    "Times are RFC 3339, or as the commands take them: `2026-02-07`, `6h ago`, `yesterday`, `now`; a time "
    "without an offset is in the app's time zone. Durations in responses are seconds. Unknown values are "
    "null.\n\n"
    "A request that changes something needs authentication in Flower, a Flower that is not read-only, and "
    f"the header `{SCRIPT_HEADER}` (any value) or an XSRF token. Cross-site requests are refused."
)
_ERRORS = {
    "400": "The request has mistakes; all are listed.",
    "401": "Authentication is required.",
    "403": "Changes are not allowed here, or the request is cross-site.",
    "404": "No such entry, run or backfill.",
    "409": "The request cannot be carried out; nothing was changed.",
    "413": "The body is too long.",
    "415": "The body is not JSON.",
    "500": "The configuration has mistakes.",
    "503": "The store cannot be reached.",
}


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

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def document(endpoints: Iterable[Endpoint], *, prefix: str = "") -> Schema:
    """Generate the document; ``prefix`` is the path that Flower is served at."""
    listed = list(endpoints)
    adapters: list[tuple[str, Any, TypeAdapter[Any]]] = [("error", "serialization", TypeAdapter(Error))]
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
                    "description": description,
                    "content": {"application/json": {"schema": schemas["error", "serialization"]}},
                }
                for status, description in _ERRORS.items()
            },
            "schemas": components,
        },
    }


def _operation(endpoint: Endpoint, request: Schema, response: Schema) -> Schema:
    fields = {name: _without_null(field) for name, field in request.get("properties", {}).items()}
    in_path = endpoint.path_fields
    others = {name: field for name, field in fields.items() if name not in in_path}
    required = [name for name in others if name in request.get("required", ())]
    operation: Schema = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": [_parameter("path", name, fields[name]) | {"required": True} for name in in_path],
        "responses": {
            "200": {
                "description": "Done." if endpoint.changes else "Found.",
                "content": {"application/json": {"schema": response}},
            },
            **{status: {"$ref": f"#/components/responses/Error{status}"} for status in _statuses(endpoint)},
        },
    }
    if endpoint.has_body:
        body = {"type": "object", "properties": others, "required": required, "additionalProperties": False}
        operation["requestBody"] = {
            "content": {"application/json": {"schema": body}},
            "required": bool(required),
        }
    else:
        operation["parameters"] += [_parameter("query", name, field) for name, field in others.items()]
    return operation


def _statuses(endpoint: Endpoint) -> list[str]:
    # Flower itself answers 403 to a cross-site POST, even to one that changes nothing.
    only_with_body = {"403", "413", "415"}
    return [status for status in _ERRORS if endpoint.has_body or status not in only_with_body]


def _parameter(place: str, name: str, field: Schema) -> Schema:
    schema = {key: value for key, value in field.items() if key != "description"}
    return {"name": name, "in": place, "description": field["description"], "schema": schema}


def _without_null(field: Schema) -> Schema:
    """Drop the default of a parameter that is absent by default."""
    return {key: value for key, value in field.items() if key != "default" or value not in (None, [])}
