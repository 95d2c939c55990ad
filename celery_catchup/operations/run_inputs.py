"""Inputs: what a run's message carries, without telling what may be a secret."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SHOWN = 200
"""Arguments that are listed; what comes behind them is left out."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The arguments of a run as its message has them. Of each only the kind is told: whoever may look
    at runs need not know what is in them. ``readable`` is false for a message that is no JSON."""

    args: tuple[str, ...]
    kwargs: dict[str, str]
    queue: str | None
    readable: bool


def inputs_of(template: Mapping[str, Any] | None) -> Inputs | None:
    """What the stored message of a run tells; None when it is not kept."""
    if template is None:
        return None
    queue = template.get("queue")
    try:
        args, kwargs = _body(json.loads(template["message"]))
    except (ValueError, KeyError, TypeError):
        return Inputs((), {}, queue, readable=False)
    named = dict(list(kwargs.items())[:_SHOWN])
    return Inputs(
        tuple(map(_redacted, args[:_SHOWN])),
        {str(name): _redacted(value) for name, value in named.items()},
        queue,
        readable=True,
    )


def _body(message: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and named arguments of a message of Celery's protocol 2, in JSON."""
    if message["content-type"] != "application/json":
        raise ValueError("no JSON")
    body = message["body"]
    if (message.get("properties") or {}).get("body_encoding") == "base64":
        body = b64decode(body)
    args, kwargs, _ = json.loads(body)
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise TypeError("no arguments")
    return args, kwargs


def _redacted(value: object) -> str:
    """The kind of a value, and how much of it there is."""
    if value is None or isinstance(value, bool):
        return type(value).__name__ if value is None else "bool"
    size = f" of {len(value)}" if isinstance(value, str | list | dict) else ""
    return f"{type(value).__name__}{size}"
