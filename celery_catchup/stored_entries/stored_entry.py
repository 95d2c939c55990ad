"""A stored entry: its fields as the user writes them, as a value, and as a record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import Enum
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import Field

from celery_catchup.config.configuration import BACKEND_CLEANUP, RESERVED_OPTIONS, name_problem
from celery_catchup.config.durations import format_duration
from celery_catchup.config.fields import FLAG, FieldParser, UserModel, text
from celery_catchup.error_text import shown
from celery_catchup.model import to_datetime, to_instant, to_rfc3339

LONGEST_RECORD = 64 * 1024
"""Most bytes of one entry as JSON."""
_LONGEST_DESCRIPTION = 1000
_MOST_LABELS = 64
ONE_OFF_WINDOW = "7d"
"""How far back an entry with a single time is recovered, unless its policy says otherwise."""


def _name(value: object) -> str:
    name = text(value)
    problem = name_problem(name)
    if problem is None and name == BACKEND_CLEANUP:
        problem = "it is the name of Celery's own entry; choose another name"
    if problem is not None:
        raise ValueError(problem)
    return name


def _task(value: object) -> str:
    name = text(value)
    if not name:
        raise ValueError("expected the name of a task such as 'proj.tasks.sync', got ''")
    return name


def _plain(value: object, *, what: str, kind: type[Any]) -> Any:
    value = list(value) if isinstance(value, tuple) else value
    if not isinstance(value, kind):
        raise ValueError(f"expected {what}, got {shown(value)}")
    try:
        plain = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"cannot be written as JSON ({error}); use texts, numbers, lists and mappings"
        ) from None
    return plain


def _args(value: object) -> list[Any]:
    found: list[Any] = _plain(value, what="a list such as [1, 'a']", kind=list)
    return found


def _kwargs(value: object) -> dict[str, Any]:
    found: dict[str, Any] = _plain(value, what="a mapping such as {'day': 1}", kind=dict)
    return found


def _options(value: object) -> dict[str, Any]:
    found: dict[str, Any] = _plain(value, what="a mapping such as {'queue': 'slow'}", kind=dict)
    for name in RESERVED_OPTIONS:
        if name in found:
            raise ValueError(f"{name!r} would be the same for all runs; remove it")
    return found


def _description(value: object) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_DESCRIPTION:
        raise ValueError(f"expected a text of at most {_LONGEST_DESCRIPTION} characters, got {shown(value)}")
    return value


def _labels(value: object) -> dict[str, str]:
    expected = "a mapping of texts to texts such as {'team': 'billing'}"
    if not isinstance(value, Mapping) or len(value) > _MOST_LABELS:
        raise ValueError(f"expected {expected}, with at most {_MOST_LABELS} labels, got {shown(value)}")
    found = {text(name): text(content) for name, content in value.items()}
    if "" in found:
        raise ValueError("a label's name is empty, got ''; give it one")
    return found


def _written(value: object) -> Any:
    """Return a schedule or a policy as JSON can hold it: durations and times as texts."""
    match value:
        case Enum():
            return value.value
        case timedelta():
            return format_duration(value)
        case datetime():
            return to_rfc3339(to_instant(value)) if value.utcoffset() is not None else value.isoformat()
        case date():
            return value.isoformat()
        case ZoneInfo():
            return value.key
        case Mapping():
            return {str(name): _written(one) for name, one in value.items()}
        case list() | tuple():
            return [_written(one) for one in value]
        case None | bool() | int() | float() | str():
            return value
    raise ValueError(f"expected texts, numbers, lists and mappings, got {shown(value)}")


def _schedule(value: object) -> Any:
    """Parse a schedule; an interval as Celery takes it, a `timedelta` or seconds, becomes an ``every``."""
    if isinstance(value, list | tuple):
        return [_schedule(one) for one in value]
    if isinstance(value, Mapping):
        return {
            str(name): _schedule(one) if name in ("start", "stop", "restart") else _written(one)
            for name, one in value.items()
        }
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            value = timedelta(seconds=value)
        except OverflowError:
            raise ValueError(f"expected seconds that a timedelta can hold, got {shown(value)}") from None
    if isinstance(value, timedelta):
        return {"every": format_duration(value)}
    if isinstance(value, str):
        return value
    raise ValueError(
        "expected a cron string, {'every': '15m'}, {'at': '2026-12-01T09:00Z'} or a list, "
        f"got {shown(value)}"
    )


class EntryFields(UserModel):
    """The fields of a stored entry."""

    name: Annotated[str, FieldParser(_name, "text")]
    """Its name, unique among declared and stored entries."""
    task: Annotated[str, FieldParser(_task, "text")]
    """The name of the task to run."""
    schedule: Annotated[Any, FieldParser(_schedule, "cron string, `every`, `at`, list or mapping")]
    """When it runs; `{"at": …}` runs once."""
    args: Annotated[list[Any], FieldParser(_args, "list")] = Field([])
    """Positional arguments of the task."""
    kwargs: Annotated[dict[str, Any], FieldParser(_kwargs, "mapping")] = Field({})
    """Keyword arguments of the task."""
    options: Annotated[dict[str, Any], FieldParser(_options, "mapping")] = Field({})
    """Options of `apply_async`, such as `queue` and `expires`."""
    catchup: Annotated[Any, FieldParser(_written, "policy, window or `False`", optional=True)] = None
    """Its policy; `False` without one, and a window of `7d` for an entry that runs once."""
    description: Annotated[str, FieldParser(_description, "text")] = ""
    """A note for people."""
    labels: Annotated[dict[str, str], FieldParser(_labels, "mapping of texts to texts")] = Field({})
    """Labels by which entries are listed and pruned."""
    enabled: Annotated[bool, FLAG] = True
    """Whether it runs."""

    def policy(self) -> object:
        """Return its policy as written, or the default."""
        return _policy_of(self.schedule, self.catchup)

    @property
    def is_one_off(self) -> bool:
        """Whether it runs once."""
        return _runs_once(self.schedule)


def _policy_of(schedule: object, catchup: object) -> object:
    if catchup is not None:
        return catchup
    return {"window": ONE_OFF_WINDOW} if _runs_once(schedule) else False


def _runs_once(schedule: object) -> bool:
    return isinstance(schedule, dict) and "at" in schedule


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry that was created at run time. ``revision`` grows with each change."""

    name: str
    task: str
    schedule: Any
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    catchup: Any = None
    description: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    enabled: bool = True
    revision: int = 0
    created_at: datetime | None = None
    created_by: str = ""
    changed_at: datetime | None = None
    changed_by: str = ""

    def fields(self) -> dict[str, Any]:
        """Return the fields that a user writes, without those at their defaults."""
        found = {name: getattr(self, name) for name in EntryFields.model_fields}
        return {name: value for name, value in found.items() if value != DEFAULTS.get(name, _REQUIRED)}

    def policy(self) -> object:
        """Return its policy as written, or the default."""
        return _policy_of(self.schedule, self.catchup)


_REQUIRED = object()
DEFAULTS = {name: one.default for name, one in EntryFields.model_fields.items() if not one.is_required()}
_TIMES = ("created_at", "changed_at")
_KINDS = {"task": str, "args": list, "kwargs": dict, "options": dict, "labels": dict, "enabled": bool}


def encode(entry: StoredEntry) -> str:
    """Return the record of an entry; its name and revision are stored beside it."""
    record = entry.fields()
    del record["name"]
    record |= {name: to_instant(at) for name in _TIMES if (at := getattr(entry, name)) is not None}
    record |= {"created_by": entry.created_by, "changed_by": entry.changed_by}
    return json.dumps(record, separators=(",", ":"))


def decode(name: str, revision: int, record: str) -> StoredEntry:
    """Return the entry of a record; `ValueError` if this package cannot have written it."""
    try:
        found = json.loads(record)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"expected a mapping, got {shown(found)}")
    try:
        times = {at: to_datetime(found[at]) for at in _TIMES if at in found}
        entry = StoredEntry(**{**found, **times, "name": name, "revision": revision})
    except (TypeError, OverflowError) as error:
        raise ValueError(str(error)) from None
    for field_name, kind in _KINDS.items():
        if not isinstance(getattr(entry, field_name), kind):
            raise ValueError(f"its {field_name} is not a {kind.__name__}")
    return entry
