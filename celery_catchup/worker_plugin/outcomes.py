"""Outcomes: report how an execution ended; the store records it once.

The process that executed the task reports in ``task_postrun``. The main process of a pool reports for
children that were killed, and for messages that were never executed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from celery import signals, states

from celery_catchup.dispatch.header_names import RUN_ID
from celery_catchup.model import RunState
from celery_catchup.worker_plugin.context import leave_run
from celery_catchup.worker_plugin.deliveries import TOKEN, Delivery, delivery_of, header, read_delivery
from celery_catchup.worker_plugin.heartbeat import Execution
from celery_catchup.worker_plugin.replacements import keep_run
from celery_catchup.worker_plugin.reports import LONGEST_ERROR, UNCLAIMED, Report, dead_letter_of, error_line
from celery_catchup.worker_plugin.worker_process import WorkerProcess, arrivals, flush_reports, worker_process

# -- where the task was executed -------------------------------------------------------------


def end(task: Any, *, state: str | None, outcome: object) -> None:
    """Report the outcome of the run, when this process executed one."""
    token = (task.request.properties or {}).get(TOKEN)
    if token is None:
        return
    process = worker_process(task.app)
    execution = process.heartbeat.drop(token)
    arrivals.forget(token)
    if execution is None:
        return
    leave_run()
    _restore_environment(execution.shadowed)
    report = _report_of(task, process, execution, state, outcome)
    if report is not None:
        process.heartbeat.report(report)


def _report_of(
    task: Any, process: WorkerProcess, execution: Execution, state: str | None, outcome: object
) -> Report | None:
    """Make the report of an execution; None when it was cut off and its outcome is not known here."""
    final: RunState | None = None
    match state:
        case states.IGNORED if execution.replaced:
            pass  # the run goes on with the task that replaces this one
        case states.SUCCESS | states.IGNORED:  # a task that raises Ignore has done its work
            final = RunState.SUCCEEDED
        case states.RETRY:
            pass
        case states.REJECTED if getattr(outcome, "requeue", False) and task.acks_late:
            pass  # the message comes again
        case states.FAILURE | states.REJECTED:
            final = RunState.FAILED
        case _:
            return None
    run = execution.run
    went_wrong = final is not RunState.SUCCEEDED and state != states.IGNORED
    return Report(
        run_id=run.run_id,
        entry=run.entry,
        owner=execution.owner,
        state=final,
        error=error_line(outcome) if went_wrong else "",
        letter=dead_letter_of(outcome, process.categories) if went_wrong else "",
        delay_ms=0 if final else _delay_ms(outcome, now=process.clock.now()),
        lane=run._lane,
        limited=execution.limited,
    )


def _delay_ms(retry: object, *, now: datetime) -> int:
    """Return how long it takes until a retry is delivered."""
    when = getattr(retry, "when", None)
    if isinstance(when, datetime):
        seconds = ((when if when.tzinfo else when.replace(tzinfo=UTC)) - now).total_seconds()
    else:
        seconds = float(when) if isinstance(when, int | float) else 0.0
    return max(0, int(seconds * 1000))


def _restore_environment(shadowed: Mapping[str, str | None]) -> None:
    for name, before in shadowed.items():
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


# -- signals ---------------------------------------------------------------------------------


def listen() -> None:
    """Connect the receivers; connecting them again changes nothing."""
    for signal, receiver in _RECEIVERS.items():
        signal.connect(receiver, weak=False, dispatch_uid=f"celery_catchup.{receiver.__name__}")


def _on_publish(headers: Any = None, **_: Any) -> None:
    """Before any message is published: what replaces or retries a run's task keeps the run."""
    keep_run(headers)


def _on_received(request: Any = None, **_: Any) -> None:
    """In the main process, for every message: give those of runs a token."""
    arrivals.arrived(request)


def _on_postrun(task: Any = None, state: str | None = None, retval: object = None, **_: Any) -> None:
    """In the process that executed the task, whatever its outcome."""
    end(task, state=state, outcome=retval)


def _on_failure(sender: Any = None, task_id: str = "", exception: object = None, **_: Any) -> None:
    """In the main process: a child was killed, or overran its time limit.

    Celery sends it in the process that executes the task, too; there postrun follows and reports.
    """
    for delivery in arrivals.started(task_id):
        process = worker_process(sender.app)
        if not process.heartbeat.held(delivery.token):
            arrivals.forget(delivery.token)
            details = {
                "error": error_line(exception),
                "letter": dead_letter_of(exception, process.categories),
            }
            _report(sender.app, delivery, RunState.FAILED, **details)


def _on_retry(sender: Any = None, request: Any = None, reason: object = None, **_: Any) -> None:
    """In the main process: a lost or cancelled execution comes again. In other processes postrun follows."""
    delivery = _delivery_of(request)
    process = worker_process(sender.app) if delivery is not None and delivery.token else None
    if delivery is not None and process is not None and not process.heartbeat.held(delivery.token):
        delay_ms = _delay_ms(reason, now=process.clock.now())
        _report(sender.app, delivery, None, error=error_line(reason), delay_ms=delay_ms)


def _on_revoked(
    sender: Any = None, request: Any = None, *, terminated: Any = None, expired: Any = None, **_: Any
) -> None:
    """In the main process: revoked or expired before it was executed, or terminated while it was."""
    owner = None if terminated else UNCLAIMED
    error = "expired" if expired else "terminated" if terminated else "revoked"
    delivery = _delivery_of(request)
    _report(sender.app, delivery, RunState.REVOKED, owner=owner, error=error, even_unclaimed=True)


def _on_rejected(sender: Any = None, message: Any = None, exc: object = None, **_: Any) -> None:
    """In the main process: a message that no task understands, now or the next time."""
    error = error_line(exc) or "the message was rejected"
    _report(sender.app, _delivery_in(message), RunState.FAILED, owner=UNCLAIMED, error=error)


def _on_unknown(sender: Any = None, message: Any = None, name: object = None, **_: Any) -> None:
    """In the main process: a task that this worker does not know; another one may."""
    error = f"NotRegistered: {str(name)[:LONGEST_ERROR]}"
    _report(sender.app, _delivery_in(message), None, owner=UNCLAIMED, error=error)


def _on_process_shutdown(**_: Any) -> None:
    """In a child that ends: the last moment for reports that wait."""
    flush_reports()


_RECEIVERS: dict[Any, Callable[..., None]] = {
    signals.before_task_publish: _on_publish,
    signals.task_received: _on_received,
    signals.task_postrun: _on_postrun,
    signals.task_failure: _on_failure,
    signals.task_retry: _on_retry,
    signals.task_revoked: _on_revoked,
    signals.task_rejected: _on_rejected,
    signals.task_unknown: _on_unknown,
    signals.worker_process_shutdown: _on_process_shutdown,
}


def _delivery_of(request: Any) -> Delivery | None:
    return None if header(request, RUN_ID) is None else delivery_of(request)


def _delivery_in(message: Any) -> Delivery | None:
    """Read the delivery of a message that never became a request."""
    headers = getattr(message, "headers", None)
    return read_delivery(headers, {}) if isinstance(headers, dict) else None


def _report(
    app: Any, delivery: Delivery | None, state: RunState | None, *, owner: str | None = None, **details: Any
) -> None:
    """Report the outcome of a run's own message; other messages have none."""
    if delivery is None or not delivery.own:
        return
    report = Report(
        run_id=delivery.run_id,
        entry=delivery.entry,
        owner=delivery.token if owner is None else owner,
        state=state,
        **details,
    )
    worker_process(app).heartbeat.report(report)
