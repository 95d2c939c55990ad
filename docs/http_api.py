"""The reference of the HTTP API, made of its OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from celery_catchup.flower.api import ENDPOINTS, document
from celery_catchup.flower.api.endpoints import ROOT

HERE = Path(__file__).resolve().parent
PAGE = HERE / "reference" / "http-api.md"
TEXT = HERE / "reference" / "http-api.md.in"

Schema = Mapping[str, Any]


def http_api_page() -> str:
    """The page: its text, with what is read from the document put in."""
    told = document(ENDPOINTS)
    failures = {
        name.removeprefix("Failure"): one["description"]
        for name, one in told["components"]["responses"].items()
    }
    parts = {
        "{endpoints}": table(["Request", "What for"], _overview(told)),
        "{failures}": table(
            ["Status", "Meaning"], ([f"`{status}`", words] for status, words in failures.items())
        ),
        "{details}": "\n\n".join(_details(told)),
        "{objects}": "\n\n".join(_objects(told["components"]["schemas"])),
    }
    text = TEXT.read_text(encoding="utf-8")
    for mark, content in parts.items():
        text = text.replace(mark, content)
    return text


def _overview(told: Schema) -> Iterator[list[str]]:
    for path, method, one in _operations(told):
        yield [f"[`{method} {path}`](#{_anchor(one)})", one["summary"]]


def _operations(told: Schema) -> Iterator[tuple[str, str, Schema]]:
    for path, methods in told["paths"].items():
        for method, one in methods.items():
            yield path, method.upper(), one


def _anchor(one: Schema) -> str:
    return str(one["operationId"]).lower()


def _details(told: Schema) -> Iterator[str]:
    for path, method, one in _operations(told):
        rows = [*_parameters(one["parameters"]), *_members(one.get("requestBody"))]
        listed = table(["Name", "Where", "Type", "Default", "Meaning"], rows) + "\n\n" if rows else ""
        answer = in_words(one["responses"]["200"]["content"]["application/json"]["schema"])
        yield (
            f"### {one['operationId']}\n\n`{method} {ROOT}{path}`: {_lower(one['summary'])}\n\n"
            f"{listed}Answers with {answer}."
        )


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _parameters(given: list[Schema]) -> Iterator[list[str]]:
    for one in given:
        yield _row(one["name"], one["in"], one["schema"], one["description"], required="required" in one)


def _members(body: Schema | None) -> Iterator[list[str]]:
    schema = {} if body is None else body["content"]["application/json"]["schema"]
    for name, one in schema.get("properties", {}).items():
        yield _row(name, "body", one, one["description"], required=name in schema["required"])


def _row(name: str, place: str, schema: Schema, words: str, *, required: bool) -> list[str]:
    default = (
        "needed"
        if required
        else f"`{_json(schema['default'])}`"
        if schema.get("default") not in (None, "")
        else ""
    )
    return [f"`{name}`", place, in_words(schema), default, words]


def _json(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _objects(schemas: Mapping[str, Schema]) -> Iterator[str]:
    for name, one in sorted(schemas.items()):
        rows = [[f"`{field}`", in_words(schema)] for field, schema in one["properties"].items()]
        words = one.get("description", "What an answer is that tells a failure.").replace("``", "`")
        yield f"### Object {name}\n\n{words}\n\n{table(['Field', 'Type'], rows)}"


def in_words(schema: Schema) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#object-{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(in_words(part) for part in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    match schema.get("type"):
        case "array":
            return f"list of {in_words(schema['items'])}"
        case "object":
            return "object"
        case "integer" if "maximum" in schema:
            return f"whole number, {schema['minimum']} to {schema['maximum']}"
        case "number" if "description" in schema:
            return "seconds"
        case kind:
            names = {"string": "text", "integer": "whole number", "number": "number", "boolean": "boolean"}
            moment = "moment" if schema.get("format") == "date-time" else None
            return moment or names.get(str(kind), "null" if kind == "null" else "anything")


def table(head: list[str], rows: Any) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])
