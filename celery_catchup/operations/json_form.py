"""Serialise results for the CLI's ``-j`` and the HTTP API.

Field names are camelCase, times RFC 3339 in UTC, durations seconds, and unknown values null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from celery_catchup.model import to_instant, to_rfc3339


def as_json(value: object) -> Any:
    """Convert a result to values that `json` serialises."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return to_rfc3339(to_instant(value))
    if isinstance(value, timedelta):
        return round(value.total_seconds(), 3)
    if is_dataclass(value):
        return {camel(field.name): as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, Iterable):
        return [as_json(item) for item in value]
    raise TypeError(f"{type(value).__name__} cannot be serialised as JSON")


def camel(name: str) -> str:
    """Convert ``scheduled_time`` to ``scheduledTime``."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
