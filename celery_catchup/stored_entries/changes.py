"""Compare stored entries with the set that they are to become."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from celery_catchup.store.entry_records import Effect
from celery_catchup.stored_entries.stored_entry import DEFAULTS, EntryFields, StoredEntry

_UNSEEN = ("args", "kwargs", "options")


class Action(StrEnum):
    """A change of a stored entry."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field of an entry, before and after."""

    field: str
    was: Any
    now: Any


@dataclass(frozen=True, slots=True)
class EntryChange:
    """One entry that changes; ``fields`` are those that differ."""

    entry: str
    action: Action
    fields: tuple[FieldChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of `apply`: what changes, how many entries stay as they are, and the latest revision."""

    changes: tuple[EntryChange, ...]
    unchanged: int
    revision: int


def compare(before: StoredEntry | None, after: StoredEntry | None) -> EntryChange | None:
    """Compare two states of an entry; None if they are the same."""
    was = DEFAULTS | before.fields() if before else {}
    now = DEFAULTS | after.fields() if after and before else after.fields() if after else {}
    changed = tuple(
        FieldChange(name, was.get(name), now.get(name))
        for name in EntryFields.model_fields
        if was.get(name) != now.get(name) and name != "name"
    )
    entry = before or after
    assert entry is not None
    if before is None:
        return EntryChange(entry.name, Action.CREATED, changed)
    if after is None:
        return EntryChange(entry.name, Action.DELETED)
    return EntryChange(entry.name, Action.UPDATED, changed) if changed else None


def changed_values(change: EntryChange | None) -> dict[str, Any]:
    """Return the new value of each field that changes, for the audit trail; arguments and options may hold
    secrets, so that only their names are kept. The trail leaves out empty parameters, so that empty values
    are texts: ``enabled`` becomes ``"false"``."""
    fields = () if change is None else change.fields
    return {one.field: "***" if one.field in _UNSEEN else one.now or json.dumps(one.now) for one in fields}


def effect_of(before: StoredEntry | None, after: StoredEntry) -> Effect:
    """Return the effect of a change on the entry's slots."""
    if before is None or (after.enabled and not before.enabled):
        return Effect.BEGIN
    rescheduled = after.enabled and (before.schedule, before.catchup) != (after.schedule, after.catchup)
    return Effect.RESCHEDULE if rescheduled else Effect.NONE


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Tell whether the labels have everything that the selector asks for."""
    return all(labels.get(name) == value for name, value in selector.items())


def covered(entries: Iterable[StoredEntry], selector: Mapping[str, str]) -> list[StoredEntry]:
    """Return the entries with these labels."""
    return [one for one in entries if selects(selector, one.labels)]
