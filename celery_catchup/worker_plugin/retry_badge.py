"""A retried catch-up run keeps its badge: Celery writes the arguments that it shows anew each time."""

from __future__ import annotations

from typing import Any

from celery import current_task

from celery_catchup.dispatch.badges import badge_of, badged_kwargs
from celery_catchup.dispatch.header_names import RUN_ID
from celery_catchup.worker_plugin.deliveries import header


def keep_badge(headers: Any) -> None:
    """Before a message is published: when it is a copy of the one that is executed, it looks like it."""
    if not current_task or not isinstance(headers, dict) or RUN_ID not in headers:
        return
    request = current_task.request
    scheduled_time, shown = badge_of(request.get("kwargsrepr")), headers.get("kwargsrepr")
    if scheduled_time is not None and isinstance(shown, str) and header(request, RUN_ID) == headers[RUN_ID]:
        headers["kwargsrepr"] = badged_kwargs(shown, scheduled_time)
