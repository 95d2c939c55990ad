"""A Celery beat scheduler that catches up missed slots, in order, and gives each task its scheduled time.

The public names load when they are first used: importing the package alone imports neither Celery nor a
Redis client, so settings files and tools may import it freely.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "Scheduler": "celery_catchup.beat.scheduler",
    "current_run": "celery_catchup.worker_plugin.context",
    "entries": "celery_catchup.stored_entries.entries",
    "install": "celery_catchup.worker_plugin.installation",
    "run_headers": "celery_catchup.operations.manual_runs",
    "trigger": "celery_catchup.operations.manual_runs",
}
"""Each public name with its module."""

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
