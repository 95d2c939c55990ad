"""Gather the private names of Celery that this room uses, each with what replaces it where it is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from celery import beat
from celery.schedules import BaseSchedule, crontab

DECIDING_METHODS = ("is_due", "remaining_estimate", "remaining_delta", "_delta_to_next", "_next_event")
"""The methods that decide when a schedule is due. A class that overrides one is of its own kind."""

_FALL_BACKS = (
    (crontab(), "_orig_minute", "crontabs are shown with the values they match, not as they were written"),
    (crontab, "_delta_to_next", "a crontab class that overrides its calculation is taken for Celery's"),
    (BaseSchedule(), "_app", "the zone of a schedule is its own or that of this app"),
    (beat.Scheduler, "_maybe_entry", "entries are built without Celery's own function"),
)


def missing_internals() -> Iterator[str]:
    """Say which of the names this version of Celery lacks, and what happens instead."""
    for owner, name, instead in _FALL_BACKS:
        if not hasattr(owner, name):
            yield f"this version of Celery has no {name}, so {instead}; report it to celery-catchup"


def field_as_written(schedule: crontab, field: str) -> str | int | None:
    """Return a crontab's field as the user wrote it, if that was a text or a number."""
    written = getattr(schedule, f"_orig_{field}", None)
    return written if isinstance(written, str | int) else None


def app_of(schedule: BaseSchedule) -> Any:
    """Return the app that a schedule was given; None when it would use whichever app is current."""
    return vars(schedule).get("_app")


def build_entry(scheduler: beat.Scheduler, name: str, entry: Any) -> beat.ScheduleEntry:
    """Build an entry from the fields of ``beat_schedule``; one that is built is kept."""
    if hasattr(scheduler, "_maybe_entry"):
        return scheduler._maybe_entry(name, entry)
    if isinstance(entry, scheduler.Entry):
        entry.app = scheduler.app
        return entry
    return scheduler.Entry(**dict(entry, name=name, app=scheduler.app))
