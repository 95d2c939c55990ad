"""The types of values in requests: how each is parsed, checked and described."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from celery_catchup.config.times import FINE_UNITS, parse_duration, parse_time
from celery_catchup.error_text import shown

_LONGEST_DURATION = 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def digits(value: str) -> str:
    """Refuse a text that is not a whole number."""
    if not re.fullmatch(r"[0-9]{1,9}", value):
        raise ValueError(f"expected a whole number, got {shown(value)}")
    return value


def _json_number(value: object) -> object:
    if isinstance(value, bool | str):  # pydantic would convert both
        raise ValueError(f"expected a whole number, got {shown(value)}")
    return value


def _parse_time(
    value: object, info: ValidationInfo, *, since: bool = False, whole_day: bool = False
) -> datetime:
    """Parse a time as the commands do; a time before 1970 counts as 1970. The context has now and zone."""
    if not isinstance(value, str):
        raise ValueError(f"expected a time, got {shown(value)}")
    assert info.context is not None
    if re.match(r"[01]\d{3}-", value) and value < _EPOCH.isoformat():
        datetime.fromisoformat(value)
        return _EPOCH
    return parse_time(value, **info.context, whole_day=whole_day, since=since)


def _parse_duration(value: object) -> timedelta:
    if not isinstance(value, str):
        raise ValueError("expected a duration such as '6h'")
    if len(value) > _LONGEST_DURATION:
        raise ValueError(f"expected a duration such as 6h, got {len(value)} characters")
    return parse_duration(value, units=FINE_UNITS)


_TIME_SCHEMA = WithJsonSchema({"type": "string", "format": "date-time"})
_DURATION_SCHEMA = WithJsonSchema(
    {"type": "string", "pattern": "^([1-9][0-9]{0,3}[dhm])+$", "maxLength": _LONGEST_DURATION}
)

Text = Annotated[str, Field(max_length=500)]
EntryName = Annotated[str, Field(min_length=1, max_length=500)]
RunId = Annotated[str, Field(pattern="^[0-9a-zA-Z-]{4,60}$", min_length=4, max_length=60)]
WholeRunId = Annotated[
    str, Field(pattern="^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$", min_length=36, max_length=36)
]
BackfillId = Annotated[str, Field(pattern="^[0-9a-zA-Z]{1,32}$", min_length=1, max_length=32)]
WholeBackfillId = Annotated[str, Field(pattern="^[0-9a-f]{8,32}$", min_length=8, max_length=32)]
Cursor = Annotated[str, Field(pattern="^[0-9]{1,15}(-[0-9a-zA-Z-]{1,60})?$", max_length=80)]
IdempotencyKey = Annotated[str, Field(pattern="^[!-~]{1,100}$", min_length=1, max_length=100)]
Revision = Annotated[str, Field(pattern=r'^(\*|"?[0-9]{1,15}"?)$', max_length=20)]
Label = Annotated[str, Field(pattern="^[^=]+=.*$", max_length=500)]
Description = Annotated[str, Field(max_length=1000)]
Json: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any]
QueryNumber = Annotated[int, BeforeValidator(digits)]
JsonNumber = Annotated[int, BeforeValidator(_json_number)]
Time = Annotated[datetime, BeforeValidator(_parse_time), _TIME_SCHEMA]
EndTime = Annotated[datetime, BeforeValidator(partial(_parse_time, whole_day=True)), _TIME_SCHEMA]
SinceTime = Annotated[datetime, BeforeValidator(partial(_parse_time, since=True)), _TIME_SCHEMA]
Duration = Annotated[timedelta, BeforeValidator(_parse_duration), _DURATION_SCHEMA]
Absent: TypeAlias = SkipJsonSchema[None]
"""The value of an optional parameter that a request does not have; null itself cannot be sent."""
