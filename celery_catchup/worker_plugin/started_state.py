"""The state STARTED (``task_track_started``) is stored after the claim.

Celery stores it before anything of a task can be refused: a refused copy of a message would
overwrite the result of the run.
"""

from __future__ import annotations

import os
from typing import Any

from celery import states

_TRACKED = "__catchup_tracked__"
_STORED = "catchup_started"


def store_started_after_claim(app: Any) -> None:
    """Take it over from Celery for the tasks of ``app``; again for those that are registered later."""
    for task in app.tasks.values():
        if task.track_started:
            task.track_started = False
            setattr(task, _TRACKED, True)


def store_started(task: Any) -> None:
    """Store that a task has started, as Celery does; once, whoever calls it for the same message."""
    request = task.request
    if not getattr(task, _TRACKED, False) or request.is_eager or getattr(request, _STORED, False):
        return
    setattr(request, _STORED, True)
    ignored = vars(request).get("ignore_result")  # of this message; the class has a default of its own
    if not (task.ignore_result if ignored is None else ignored):
        meta = {"pid": os.getpid(), "hostname": request.hostname}
        task.backend.store_result(request.id, meta, states.STARTED, request=request)
