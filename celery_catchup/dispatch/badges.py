"""Badges: how a catch-up run is told apart where only Celery's own fields are shown, as in stock
Flower and ``celery events``.

The name is a constant per task, never with a time in it: names become labels of metrics.
"""

from __future__ import annotations

import re

_NAME = "{task} [catch-up]"
_FACTS = "'is_catchup': True, 'scheduled_time': '{scheduled_time}'"
_BADGE = re.compile(r"\{'is_catchup': True, 'scheduled_time': '([^']*)'[,}]")

RECEIVER = "celery_catchup._on_publish"
"""The worker's receiver that gives a retry its badge; it changes nothing that beat sends."""

KEYS = frozenset({"is_catchup", "scheduled_time"})
"""What a badge adds to the arguments that are shown; a task with such an argument gets none."""


def badged_name(task: str) -> str:
    """``proj.etl [catch-up]``."""
    return _NAME.format(task=task)


def badged_kwargs(kwargsrepr: str, scheduled_time: str) -> str:
    """Keyword arguments as they are shown, ours in front: the end of a long text is cut off.

    A text that is not one of a mapping stays as it is.
    """
    if not kwargsrepr.startswith("{") or badge_of(kwargsrepr) is not None:
        return kwargsrepr
    facts = _FACTS.format(scheduled_time=scheduled_time)
    return f"{{{facts}}}" if kwargsrepr == "{}" else f"{{{facts}, {kwargsrepr[1:]}"


def badge_of(kwargsrepr: object) -> str | None:
    """The scheduled time of badged arguments; None without a badge."""
    found = _BADGE.match(kwargsrepr) if isinstance(kwargsrepr, str) else None
    return None if found is None else found[1]
