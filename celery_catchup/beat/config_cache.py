"""Rereading: ``celery beat`` builds its scheduler twice, once for the banner; what the first has found
out is not found out again.

Ten thousand entries take half a second to be looked at. What is kept is taken once, by the scheduler that
follows, and only when it is given the same: the settings, and of each entry its fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from celery.beat import ScheduleEntry

from celery_catchup.beat.declared_entries import ResolvedEntries, resolve_entries
from celery_catchup.config.configuration import Configuration, Declaration, load

_PLACE = "_celery_catchup_read"
"""Where it is kept: on the app itself, and let go of with it."""


@dataclass(frozen=True, slots=True)
class _Read:
    given: tuple[Any, ...]
    found: tuple[Configuration, ResolvedEntries]


def read(
    app: Any,
    schedule: Mapping[str, ScheduleEntry],
    declared: Mapping[str, Declaration],
    raw: Mapping[str, object],
    *,
    keep: bool,
) -> tuple[Configuration, ResolvedEntries]:
    """The configuration, and what it makes of the entries; `ConfigurationError` with all mistakes.

    ``keep`` it for the scheduler that follows.
    """
    given = (raw, app.timezone, declared, {name: _fields(schedule[name]) for name in declared})
    before: _Read | None = vars(app).pop(_PLACE, None)
    if before is not None and before.given == given:
        return before.found
    configuration = load(raw, declared=declared, timezone=app.timezone)
    found = configuration, resolve_entries(schedule, configuration, timezone=app.timezone)
    if keep:
        vars(app)[_PLACE] = _Read(given, found)
    return found


def _fields(entry: ScheduleEntry) -> tuple[Any, ...]:
    return entry.task, entry.args, entry.kwargs, entry.options
