"""Check the policy that a row of django-celery-beat has in the admin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import tzinfo
from typing import Any

from celery.schedules import schedule as interval

from celery_catchup.config.app_settings import raw_settings
from celery_catchup.config.configuration import ENTRIES, Declaration, load
from celery_catchup.config.settings import Settings
from celery_catchup.error_text import path
from celery_catchup.errors import ConfigurationError, Mistake
from celery_catchup.planning.entry import too_frequent
from celery_catchup.timetables.timetable import IntervalTable

_PLACE, _ROW = "rows", "row"
_ANY_SCHEDULE = "0 0 * * *"


def has_policy_in_settings(app: Any, name: str) -> bool:
    """Return whether ``catchup_entries`` names this entry; that policy wins over one in the admin."""
    given = raw_settings(app).get(ENTRIES)
    return isinstance(given, Mapping) and name in given


def policy_mistakes(app: Any, policy: object) -> list[Mistake]:
    """Find the mistakes of a policy under the app's settings, each at the name of its field."""
    raw = {name: value for name, value in raw_settings(app).items() if name != ENTRIES}
    declared = {_ROW: Declaration(_ANY_SCHEDULE, policy)}
    place = path(path(_PLACE, _ROW), "catchup")
    timezone: tzinfo = app.timezone
    try:
        load(raw, declared=declared, timezone=timezone, place=_PLACE)
    except ConfigurationError as error:
        # Beat and the commands report mistakes of the settings themselves.
        return [
            Mistake(one.where.removeprefix(place).lstrip("."), one.problem)
            for one in error.mistakes
            if one.where.startswith(place)
        ]
    return []


def row_problems(row: Any, settings: Settings) -> Iterator[str]:
    """Explain why this row cannot have a policy at all."""
    if row.one_off:
        yield "a one-off row runs once and has no slots that could be missed; remove its policy"
    schedule = row.schedule if row.scheduler is not None else None
    if isinstance(schedule, interval) and schedule.run_every:
        problem = too_frequent(
            IntervalTable(schedule.run_every, anchor=0), poll_interval=settings.poll_interval
        )
        if problem is not None:
            yield problem
