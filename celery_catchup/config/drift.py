"""Drift: compare the declared entries with those that a beat accepted before.

Each entry is stored as a record of its schedule, task, arguments, options and policy. Arguments and
options may be secret or long, so only their digest is stored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any

from celery_catchup.config.durations import format_duration
from celery_catchup.config.policy import Policy, SchedulePolicy
from celery_catchup.config.schedule_syntax import ScheduleForm

FINGERPRINT_VERSION = "v2:"
"""Prefix of a schedule's fingerprint; in version 0.1 it began with the schedule itself."""

_FIELDS = ("schedule", "task", "arguments", "options", "policy")
_DIGESTS = ("arguments", "options")
_LISTED = 10
"""Differences that an error names; ``celery catchup drift`` lists them all."""


class DriftKind(StrEnum):
    """How an entry differs from the accepted one."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Difference:
    """One entry that differs. If it changed, ``field`` is the changed field; digests are not shown."""

    entry: str
    change: DriftKind
    field: str = ""
    was: str = ""
    now: str = ""

    def __str__(self) -> str:
        return f"{self.entry!r} {self.says}"

    @property
    def says(self) -> str:
        """Describe the difference without the name of the entry."""
        if self.change is not DriftKind.CHANGED:
            return _SAYS[self.change]
        if self.field in _DIGESTS:
            return f"has other {self.field}"
        was, now = (text.replace(FINGERPRINT_VERSION, "") or "none" for text in (self.was, self.now))
        return f"{self.field}: was {was}, is {now}"


_SAYS = {
    DriftKind.ADDED: "is new",
    DriftKind.REMOVED: "is not declared any more",
    DriftKind.CHANGED: "has changed",
}


_encode = json.JSONEncoder(sort_keys=True).encode


def record_of(
    entry: Any, *, schedule: str, policy: Policy | None, form: ScheduleForm, varies: tuple[str, ...] = ()
) -> str:
    """Return the stored record of a declared entry; ``schedule`` is its fingerprint. Arguments that vary
    between entries of one record are left out."""
    kwargs = (
        {key: value for key, value in entry.kwargs.items() if key not in varies} if varies else entry.kwargs
    )
    record = {
        "schedule": schedule,
        "task": str(entry.task),
        "arguments": _digest([entry.args, kwargs] if entry.args or kwargs else None),
        "options": _digest(entry.options),
        "policy": _policy(policy, form),
    }
    return _encode(record)


def differences(accepted: Mapping[str, str], declared: Mapping[str, str]) -> list[Difference]:
    """List every entry that was added, removed or changed since a set of records was accepted."""
    found = [Difference(name, DriftKind.ADDED) for name in declared if name not in accepted]
    found += [Difference(name, DriftKind.REMOVED) for name in accepted if name not in declared]
    for name, record in declared.items():
        if name in accepted and accepted[name] != record:
            found += _changes(name, _read(accepted[name]), _read(record))
    return found


def listed(found: list[Difference]) -> str:
    """Describe the differences in one sentence, the first few by name."""
    more = f"; and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return "; ".join(map(str, found[:_LISTED])) + more


def _changes(name: str, was: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Difference]:
    if not was:
        yield Difference(name, DriftKind.CHANGED, "record", "unreadable", "readable")
    # Another version may have other fields; only those in both records are compared.
    for field in (field for field in _FIELDS if field in was and field in now):
        if was[field] != now[field]:
            shown = () if field in _DIGESTS else (was[field], now[field])
            yield Difference(name, DriftKind.CHANGED, field, *shown)


def _read(record: str) -> Mapping[str, str]:
    try:
        found = json.loads(record)
    except ValueError:
        return {}
    return {key: str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def _policy(policy: Policy | None, form: ScheduleForm) -> str:
    """Describe the fields that differ from the defaults; zone and dates belong to the schedule."""
    if policy is None:
        return ""
    fields = dict(_own(policy))
    for place, spec in enumerate(form):
        if spec.overrides is not None:
            fields |= {f"schedule[{place}].{name}": value for name, value in _own(spec.overrides)}
    return ", ".join(f"{name}={value}" for name, value in sorted(fields.items())) or "defaults"


@lru_cache(maxsize=1024)  # thousands of entries may share one policy
def _own(policy: Policy | SchedulePolicy) -> tuple[tuple[str, str], ...]:
    fields = policy.model_dump(exclude_defaults=True, exclude={"timezone", "start_date", "end_date"})
    return tuple(
        (name, format_duration(value) if isinstance(value, timedelta) else str(value))
        for name, value in fields.items()
    )


def _digest(value: object) -> str:
    """Return the same digest for equal values in every process; empty for an empty value."""
    if not value:
        return ""
    return hashlib.sha256(_encode(_plain(value)).encode()).hexdigest()[:16]


def _plain(value: object) -> object:
    """Return the value as JSON can hold it; an object whose repr has its address becomes its class name."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    text = repr(value)
    return f"{type(value).__module__}.{type(value).__qualname__}" if " at 0x" in text else text


_DIGEST_VERSION = 2
"""Beats whose digests have different versions are not compared; version 0.1 wrote no number."""


def digest(records: Mapping[str, str], destination: str) -> str:
    """Return a digest of entries and broker: equal for two beats that declare the same, in any order."""
    parts = [destination, *sorted(f"{name} {record}" for name, record in records.items())]
    return f"{_DIGEST_VERSION}:{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


def is_current(declares: str | None) -> bool:
    """Return whether a beat of this version has written the digest."""
    return (declares or "").startswith(f"{_DIGEST_VERSION}:")
