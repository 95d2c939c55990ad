"""Read the database of django-celery-beat."""

from __future__ import annotations

from datetime import UTC
from importlib import import_module
from typing import Any

from celery_catchup.operations.import_state import LastRun
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.refusals import RefusedError


def django_celery_beat_runs(operator: Operator) -> dict[str, LastRun]:
    """Return when each enabled periodic task last ran, by its name."""
    operator.app.loader.import_default_modules()  # sets Django up, where it has not been
    try:
        models: Any = import_module("django_celery_beat.models")
    except Exception as error:  # not installed, or no Django project: each raises something else
        raise RefusedError(f"django-celery-beat cannot be used: {error}; run this in its project") from error
    rows = models.PeriodicTask.objects.filter(enabled=True, last_run_at__isnull=False)
    found = rows.values_list("name", "last_run_at", "total_run_count")
    # Without a zone (USE_TZ = False) it is UTC, as for django-celery-beat.
    return {
        name: LastRun(at if at.tzinfo else at.replace(tzinfo=UTC), count or 0)
        for name, at, count in found.iterator()
    }
