"""The reference of the HTTP API, generated from its OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from celery_catchup.flower.api import ENDPOINTS, document
from celery_catchup.flower.api.endpoint import ROOT
from celery_catchup.flower.api.errors import ERRORS

HERE = Path(__file__).resolve().parent
PAGE = HERE / "reference" / "http-api.md"
TEXT = HERE / "reference" / "http-api.md.in"

Schema = Mapping[str, Any]

DOCUMENT = document(ENDPOINTS)
SCHEMAS: Mapping[str, Schema] = DOCUMENT["components"]["schemas"]
TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "boolean",
    "object": "object",
    "null": "null",
}


def http_api_page() -> str:
    """Return the page: its text, with the tables of the document."""
    parts = {
        "{endpoints}": table(["Request", "Purpose"], _overview()),
        "{errors}": table(
            ["Status", "Code", "Meaning"],
            ([f"`{status}`", f"`{code}`", text] for code, (status, text) in ERRORS.items()),
        ),
        "{details}": "\n\n".join(_details()),
        "{objects}": "\n\n".join(_objects()),
    }
    text = TEXT.read_text(encoding="utf-8")
    for mark, content in parts.items():
        text = text.replace(mark, content)
    return text


def _operations() -> Iterator[tuple[str, str, Schema]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, one in methods.items():
            yield path, method.upper(), one


def _overview() -> Iterator[list[str]]:
    for path, method, one in _operations():
        yield [f"[`{method} {path}`](#{one['operationId'].lower()})", one["summary"]]


def _details() -> Iterator[str]:
    for path, method, one in _operations():
        rows = [*_parameters(one["parameters"]), *_members(one.get("requestBody"))]
        listed = table(["Name", "In", "Type", "Default", "Meaning"], rows) + "\n\n" if rows else ""
        ((kind, content),) = one["responses"]["200"]["content"].items()
        response = in_words(content["schema"]) if kind == "application/json" else f"`{kind}`"
        response += ", with status 201 and `Location`" if "201" in one["responses"] else ""
        yield (
            f"### {one['operationId']}\n\n`{method} {ROOT}{path}`\n\n{one['summary']}\n\n"
            f"{listed}Response: {response}."
        )


def _parameters(given: list[Schema]) -> Iterator[list[str]]:
    for one in given:
        yield _row(one["name"], one["in"], one["schema"], one["description"], required="required" in one)


def _members(body: Schema | None) -> Iterator[list[str]]:
    schema = {} if body is None else body["content"]["application/json"]["schema"]
    for name, one in schema.get("properties", {}).items():
        yield _row(name, "body", one, one["description"], required=name in schema["required"])


def _row(name: str, place: str, schema: Schema, description: str, *, required: bool) -> list[str]:
    default = schema.get("default")
    shown = str(default).lower() if isinstance(default, bool) else str(default)
    return [
        f"`{name}`",
        place,
        in_words(schema),
        "required" if required else "" if default in (None, "") else f"`{shown}`",
        description,
    ]


def _objects() -> Iterator[str]:
    for name, one in sorted(SCHEMAS.items()):
        if "properties" in one:
            rows = [[f"`{field}`", in_words(schema)] for field, schema in one["properties"].items()]
            description = one["description"].replace("``", "`")
            yield f"### Object {name}\n\n{description}\n\n{table(['Field', 'Type'], rows)}"


def in_words(schema: Schema) -> str:
    """Describe a schema in a few words."""
    match schema:
        case {"$ref": ref}:
            name = ref.rpartition("/")[2]
            found = SCHEMAS[name]
            return in_words(found) if "enum" in found else f"[{name}](#object-{name.lower()})"
        case {"anyOf": parts}:
            return " or ".join(in_words(part) for part in parts)
        case {"enum": words}:
            return ", ".join(f"`{word}`" for word in words)
        case {"type": "array", "items": items}:
            return f"list of {in_words(items)}"
        case {"type": "integer", "minimum": least, "maximum": most}:
            return f"whole number, {least} to {most}"
        case {"type": "number", "description": _}:
            return "seconds"
        case {"format": "date-time"}:
            return "time"
        case {"type": kind}:
            return TYPES[kind]
        case _:
            return "anything"


def table(head: list[str], rows: Any) -> str:
    """Write a Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])
