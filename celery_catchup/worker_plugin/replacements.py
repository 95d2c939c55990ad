"""Keep a run on the messages that replace or retry its task.

``self.replace()`` sends another task with the same id, and the run goes on with it. A retry is a copy of the
message; Celery makes the representation of its arguments again, so that its badge has to be put back.
"""

from __future__ import annotations

from typing import Any

from celery import current_task

from celery_catchup.dispatch import header_names as names
from celery_catchup.dispatch.badges import badge_of, badged_kwargs
from celery_catchup.worker_plugin.deliveries import TOKEN, header
from celery_catchup.worker_plugin.worker_process import worker_process

_HEADERS = (
    names.RUN_ID,
    names.ENTRY,
    names.SCHEDULED_TIME,
    names.IS_CATCHUP,
    names.TRIGGER_TYPE,
    names.DATA_INTERVAL_START,
    names.DATA_INTERVAL_END,
)


def keep_run(headers: Any) -> None:
    """Change the headers of a message that replaces or retries the current task, before it is published."""
    if current_task and isinstance(headers, dict):
        request = current_task.request
        _follow_replacement(headers, request)
        _keep_badge(headers, request)


def _follow_replacement(headers: dict[str, Any], request: Any) -> None:
    """Give the run to a message that replaces its task. A chain, group or chord begins with a message of
    another id: then the run ends with the task that was replaced."""
    token = (request.properties or {}).get(TOKEN)
    nesting = headers.get("replaced_task_nesting") or 0
    if token is None or headers.get("id") != request.id or nesting <= (request.replaced_task_nesting or 0):
        return
    execution = worker_process(current_task.app).heartbeat.held(token)
    if execution is not None:
        found = {name: header(request, name) for name in _HEADERS}
        headers.update({name: value for name, value in found.items() if value is not None})
        execution.replaced = True


def _keep_badge(headers: dict[str, Any], request: Any) -> None:
    if names.RUN_ID not in headers:
        return
    scheduled_time, shown = badge_of(request.get("kwargsrepr")), headers.get("kwargsrepr")
    same_run = header(request, names.RUN_ID) == headers[names.RUN_ID]
    if scheduled_time is not None and isinstance(shown, str) and same_run:
        headers["kwargsrepr"] = badged_kwargs(shown, scheduled_time)
