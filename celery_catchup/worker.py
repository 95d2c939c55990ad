"""Importing this module makes a worker claim, report and release runs.

``imports = ["celery_catchup.worker"]`` in the settings is all that it takes.
"""

from __future__ import annotations

from typing import Any

from celery import current_app, signals

from celery_catchup.plugin import install

__all__ = ["install"]


def _on_worker_init(sender: Any = None, **_: Any) -> None:
    """The app that the worker really serves, when another was current at the time of the import."""
    install(sender.app)


install(current_app._get_current_object())
signals.worker_init.connect(_on_worker_init, weak=False, dispatch_uid="celery_catchup.worker_init")
