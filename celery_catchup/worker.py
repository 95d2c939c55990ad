"""Importing this module makes a worker claim, report and release runs.

``imports = ["celery_catchup.worker"]`` in the settings is all that it takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from celery import current_app, signals
from celery._state import _get_active_apps

from celery_catchup.plugin import install

__all__ = ["install"]


def _importing_apps() -> Iterator[Any]:
    """The apps that this import can be meant for: the current one, and that of a worker that starts.

    The latter is another one in a pool that spawns its processes: such a process makes its
    own copy of the app, beside the one in the project's module.
    """
    yield current_app._get_current_object()
    for app in list(_get_active_apps()):
        loader = vars(app).get("loader")
        if loader is not None and loader.worker_initialized:
            yield app


def _on_worker_init(sender: Any = None, **_: Any) -> None:
    """The app that the worker serves, when somebody imported us before it was there."""
    install(sender.app)


for _app in _importing_apps():
    install(_app)
signals.worker_init.connect(_on_worker_init, weak=False, dispatch_uid="celery_catchup.worker_init")
