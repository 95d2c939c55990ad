"""Reuse the configuration parsed for the banner.

``celery beat`` builds its scheduler twice, first for the banner. With 10,000 entries the cache saves a third
of the start. It is used once, by the next scheduler, and only if settings and entries are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery.beat import ScheduleEntry

from celery_catchup.beat.resolved_entries import ResolvedEntries, resolve_entries
from celery_catchup.config.configuration import Configuration, Declaration, EntryTemplate, load

_ATTRIBUTE = "_celery_catchup_configuration"
"""The attribute of the app that holds the cache, so that it is freed with the app."""


def load_entries(
    app: Any,
    schedule: Mapping[str, ScheduleEntry],
    declared: Mapping[str, Declaration],
    raw: Mapping[str, object],
    *,
    templates: Mapping[str, EntryTemplate],
    keep: bool,
) -> tuple[Configuration, ResolvedEntries]:
    """Load the configuration and resolve the entries; `ConfigurationError` with all mistakes.

    ``keep`` the result for the next scheduler.
    """
    fields = {name: _fields(schedule[name]) for name in declared}
    given = (raw, app.timezone, declared, templates, fields)
    cached: tuple[Any, tuple[Configuration, ResolvedEntries]] | None = vars(app).pop(_ATTRIBUTE, None)
    if cached is not None and cached[0] == given:
        found = cached[1]
    else:
        configuration = load(raw, declared=declared, timezone=app.timezone, templates=templates)
        found = configuration, resolve_entries(schedule, configuration, timezone=app.timezone)
    if keep:
        vars(app)[_ATTRIBUTE] = given, found
    return found


def _fields(entry: ScheduleEntry) -> tuple[Any, ...]:
    return entry.task, entry.args, entry.kwargs, entry.options
