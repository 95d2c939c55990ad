"""The one form in which results leave the package: the CLI's ``-j`` and the HTTP API.

Field names are camelCase, moments RFC 3339 in UTC, durations seconds, and what is not known null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from celery_catchup.model import to_instant, to_rfc3339


def as_json(value: object) -> Any:
    """A result as JSON takes it."""
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
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def camel(name: str) -> str:
    """``scheduled_time`` as ``scheduledTime``."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
