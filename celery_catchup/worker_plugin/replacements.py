"""A run stays with the task that replaces its own: ``self.replace()`` sends it with the same task id."""

from __future__ import annotations

from typing import Any

from celery import current_task

from celery_catchup.dispatch import header_names as names
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


def follow_replacement(headers: Any) -> None:
    """Before a message is published: when it replaces the task of the run that is executed, give it the run.

    A chain, group or chord begins with a message of another id: the run ends with the task that
    was replaced by it.
    """
    if not current_task or not isinstance(headers, dict):
        return
    request = current_task.request
    token = (request.properties or {}).get(TOKEN)
    if token is None or not _replaces(headers, request):
        return
    execution = worker_process(current_task.app).heartbeat.held(token)
    if execution is not None:
        found = {name: header(request, name) for name in _HEADERS}
        headers.update({name: value for name, value in found.items() if value is not None})
        execution.replaced = True


def _replaces(headers: dict[str, Any], request: Any) -> bool:
    nesting = headers.get("replaced_task_nesting") or 0
    return headers.get("id") == request.id and nesting > (request.replaced_task_nesting or 0)
