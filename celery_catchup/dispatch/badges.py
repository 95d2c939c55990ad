"""Badges: show a catch-up run where only Celery's own fields are shown, as in stock Flower and
``celery events``.

The name is a constant per task and has no time in it: names become labels of metrics.
"""

from __future__ import annotations

import re

from celery.beat import ScheduleEntry

from celery_catchup.config.settings import MarkTasks
from celery_catchup.dispatch.placeholders import placeholder

RECEIVER = "celery_catchup._on_publish"
"""The worker's receiver that gives a retry its badge; it changes nothing that beat sends."""

IN_NAME = (MarkTasks.NAME, MarkTasks.BOTH)
_IN_KWARGS = (MarkTasks.KWARGS, MarkTasks.BOTH)
_KEYS = {"is_catchup", "scheduled_time"}
_BADGE = re.compile(r"\{'is_catchup': True, 'scheduled_time': '([^']*)'[,}]")


def badged_name(task: str) -> str:
    """Return ``proj.etl [catch-up]``."""
    return f"{task} [catch-up]"


def shown_kwargs(entry: ScheduleEntry, kwargsrepr: str, badge: MarkTasks) -> str:
    """Badge the keyword arguments as they are shown. A task with an argument of such a name gets no badge,
    nor does a text that the user has set."""
    if badge not in _IN_KWARGS or "kwargsrepr" in entry.options or not _KEYS.isdisjoint(entry.kwargs or ()):
        return kwargsrepr
    return badged_kwargs(kwargsrepr, placeholder("scheduled_time"))


def badged_kwargs(kwargsrepr: str, scheduled_time: str) -> str:
    """Put the badge in front, because the end of a long text is cut off; a text that is not one of a mapping
    stays as it is."""
    if not kwargsrepr.startswith("{") or badge_of(kwargsrepr) is not None:
        return kwargsrepr
    badge = f"{{'is_catchup': True, 'scheduled_time': '{scheduled_time}'"
    return f"{badge}}}" if kwargsrepr == "{}" else f"{badge}, {kwargsrepr[1:]}"


def badge_of(kwargsrepr: object) -> str | None:
    """Return the scheduled time of badged arguments; None without a badge."""
    found = _BADGE.match(kwargsrepr) if isinstance(kwargsrepr, str) else None
    return None if found is None else found[1]
