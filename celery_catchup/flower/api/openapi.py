"""The OpenAPI document, made of the endpoints that answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from celery_catchup import __version__
from celery_catchup.flower.api.endpoints import MOST_VALUES, ROOT, Endpoint, Field
from celery_catchup.flower.api.schemas import Schemas
from celery_catchup.flower.failures import Failure
from celery_catchup.flower.guard import SIGN
from celery_catchup.operations.json_form import as_json

_TIMES = (
    "Times: RFC 3339, and as the commands take them: `2026-02-07`, `6h ago`, `yesterday`, `now`; without an "
    "offset, in the app's time zone. Durations in answers are seconds. What is not known is null."
)
_CHANGES = (
    "A request that changes something needs authentication to be on in Flower, Flower not to be read-only, "
    f"and the header `{SIGN}` (any value) or an XSRF token; what comes from another site is refused."
)
_FAILURES = {
    "400": "Mistakes in the request, all of them.",
    "401": "Not signed in.",
    "403": "Nothing may be changed here, or the request is another site's.",
    "404": "No such entry, run or backfill.",
    "409": "What was asked for cannot be done; nothing was changed.",
    "413": "The body is too long.",
    "415": "The body is no JSON.",
    "500": "The configuration has mistakes.",
    "503": "The store cannot be reached.",
}


def document(endpoints: Iterable[Endpoint], *, prefix: str = "") -> dict[str, Any]:
    """The document; ``prefix`` is what Flower's addresses begin with."""
    schemas = Schemas()
    schemas.of(Failure)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    failure = {"type": "object", "properties": {"error": schemas.of(Failure)}, "required": ["error"]}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "celery-catchup",
            "version": __version__,
            "description": f"{_TIMES}\n\n{_CHANGES}",
        },
        "servers": [{"url": f"{prefix}{ROOT}"}],
        "security": [{"basic": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
            "responses": {
                f"Failure{status}": {
                    "description": words,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
                }
                for status, words in _FAILURES.items()
            },
            "schemas": {**schemas.named, "Error": failure},
        },
    }


def _operation(endpoint: Endpoint, schemas: Schemas) -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": [_parameter(field, "path") for field in endpoint.where]
        + [_parameter(field, "query") for field in endpoint.query],
        "responses": {
            "200": {
                "description": "Done." if endpoint.changes else "Found.",
                "content": {"application/json": {"schema": schemas.of(endpoint.answer)}},
            },
            **{status: {"$ref": f"#/components/responses/Failure{status}"} for status in _statuses(endpoint)},
        },
    }
    if endpoint.body is not None:
        told["requestBody"] = {"content": {"application/json": {"schema": _body(endpoint.body)}}}
        told["requestBody"]["required"] = any(field.required for field in endpoint.body)
    return told


def _statuses(endpoint: Endpoint) -> list[str]:
    """What may go wrong with it."""
    found = {"400", "401", "404", "500", "503"}
    found |= {"403", "409"} if endpoint.changes else set()
    found |= {"409"} if endpoint.refuses else set()
    found |= {"413", "415"} if endpoint.body is not None else set()
    # Flower itself refuses what comes from another site, also when it would only look.
    found |= {"403"} if endpoint.method == "POST" else set()
    return sorted(found)


def _parameter(field: Field, place: str) -> dict[str, Any]:
    schema = _schema(field, MOST_VALUES["query"])
    found = {"name": field.name, "in": place, "description": field.help, "schema": schema}
    return found | ({"required": True} if field.required else {})


def _schema(field: Field, most: int) -> dict[str, Any]:
    schema = dict(field.kind.schema)
    if field.many:
        least = {"minItems": 1} if field.required else {}
        schema = {"type": "array", "items": schema, "maxItems": most, **least}
    return schema | ({"default": as_json(field.default)} if field.default is not None else {})


def _body(fields: Iterable[Field]) -> dict[str, Any]:
    listed = list(fields)
    most = MOST_VALUES["body"]
    return {
        "type": "object",
        "properties": {field.name: {**_schema(field, most), "description": field.help} for field in listed},
        "required": [field.name for field in listed if field.required],
        "additionalProperties": False,
    }
