"""Which tasks entries may run that are created or changed over HTTP: `catchup_allowed_tasks`."""

from __future__ import annotations

from fnmatch import fnmatchcase

from celery_catchup.error_text import shown
from celery_catchup.operations import Operator


def allowed_patterns(operator: Operator) -> tuple[str, ...]:
    """Return the globs of the settings."""
    return operator.declared_configuration.settings.allowed_tasks


def why_not_allowed(operator: Operator, task: str) -> str | None:
    """Explain why entries of this task may not be changed over HTTP; None if they may."""
    if any(fnmatchcase(task, pattern) for pattern in allowed_patterns(operator)):
        return None
    return f"task {shown(task)} is not allowed; add a pattern for it to catchup_allowed_tasks"


def known_tasks(operator: Operator, *, most: int) -> list[str]:
    """Return the allowed tasks that this app has, or that its entries run, by name."""
    names = {*operator.app.tasks, *(str(entry.task) for entry in operator.schedule.values())}
    return sorted(name for name in names if why_not_allowed(operator, name) is None)[:most]
