"""Importing this module makes a worker claim, report and release runs.

``imports = ["celery_catchup.worker"]`` in the settings is all that it takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from celery import current_app, signals
from celery._state import _get_active_apps

from celery_catchup.worker_plugin.installation import install

__all__ = ["install"]


def _apps_meant() -> Iterator[Any]:
    """The current app, and those of workers that are starting.

    In a process that was spawned for a pool, the worker's app is not yet the current one.
    """
    yield current_app._get_current_object()
    for app in list(_get_active_apps()):
        loader = vars(app).get("loader")
        if loader is not None and loader.worker_initialized:
            yield app


def _on_worker_init(sender: Any = None, **_: Any) -> None:
    """The app that the worker serves, when this module was imported before it was known."""
    install(sender.app)


for _app in _apps_meant():
    install(_app)
signals.worker_init.connect(_on_worker_init, weak=False, dispatch_uid="celery_catchup.worker_init")
