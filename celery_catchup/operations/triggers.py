"""Runs started by hand, from code: the whole run, or only its headers for a message of your own."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from celery import current_app

from celery_catchup.dispatch import header_names as names
from celery_catchup.events import RunDispatched, notify_subscribers
from celery_catchup.model import PlannedRun, Slot, Trigger, to_rfc3339
from celery_catchup.operations.manual_runs import start_run
from celery_catchup.operations.operator import Operator


def trigger(app: Any, entry: str, *, at: datetime | None = None) -> str:
    """Start a run of an entry now, or of its slot ``at``; the run's id.

    It counts: slots missed before it are not caught up any more.
    """
    operator = Operator(app, only=entry)
    try:
        return start_run(operator, entry, at=at).run_id
    finally:
        operator.close()


def run_headers(entry: str, *, app: Any = None) -> dict[str, Any]:
    """Headers that make a message of your own a manual run of an entry:
    ``etl.apply_async(headers=run_headers("hourly-etl"))``.

    The run is recorded now; send one message with them, of the entry's own task.
    """
    operator = Operator(current_app._get_current_object() if app is None else app, only=entry)
    try:
        (name,) = operator.in_schedule([entry])
        run_id, now = str(uuid.uuid4()), operator.now()
        record = {
            "entry": name,
            "task": str(operator.schedule[name].task),
            "schedule": 0,
            "slot": now,
            "trigger": str(Trigger.MANUAL),
        }
        operator.controls.enlist(run_id, record, now=now)
        notify_subscribers(RunDispatched(name, PlannedRun(Slot(now), Trigger.MANUAL, now), run_id))
    finally:
        operator.close()
    return {
        names.RUN_ID: run_id,
        names.ENTRY: name,
        names.TRIGGER_TYPE: str(Trigger.MANUAL),
        names.SCHEDULED_TIME: to_rfc3339(now),
        names.IS_CATCHUP: False,
        names.DATA_INTERVAL_END: to_rfc3339(now),
    }
