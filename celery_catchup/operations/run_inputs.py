"""Describe the arguments in the stored message of a run without their values, which may be secret."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from celery_catchup.store.templates import with_inputs

_MOST_ARGUMENTS = 200


@dataclass(frozen=True, slots=True)
class RunInputs:
    """The arguments in a run's message. Only their types are shown, because values may be secret.
    ``readable`` is false for a message that is not JSON."""

    args: tuple[str, ...]
    kwargs: dict[str, str]
    queue: str | None
    readable: bool


def read_inputs(template: Mapping[str, Any] | None) -> RunInputs | None:
    """Describe the arguments in the stored message of a run; None when it is not kept."""
    if template is None:
        return None
    queue = template.get("queue")
    try:
        args, kwargs = _arguments(json.loads(with_inputs(template["message"], template.get("inputs", {}))))
    except (ValueError, KeyError, TypeError):
        return RunInputs((), {}, queue, readable=False)
    return RunInputs(
        tuple(map(_redacted, args[:_MOST_ARGUMENTS])),
        {str(name): _redacted(value) for name, value in islice(kwargs.items(), _MOST_ARGUMENTS)},
        queue,
        readable=True,
    )


def _arguments(message: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Decode positional and named arguments of a message of Celery's protocol 2, in JSON."""
    if message["content-type"] != "application/json":
        raise ValueError("not JSON")
    body = message["body"]
    if (message.get("properties") or {}).get("body_encoding") == "base64":
        body = b64decode(body)
    args, kwargs, _ = json.loads(body)
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise TypeError("not the arguments of a task")
    return args, kwargs


def _redacted(value: object) -> str:
    """Name the type of a value, and its length if it has one."""
    size = f" of {len(value)}" if isinstance(value, str | list | dict) else ""
    return f"{type(value).__name__}{size}"
