"""Endings: whoever learns how an execution ended reports it, and it is recorded once.

Where the task was executed, that is postrun. The main process of a pool reports for children
that were killed, and for messages that never came to be executed.
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
from celery_catchup.worker_plugin.deliveries import TOKEN, Delivery, delivery_among, delivery_of, header
from celery_catchup.worker_plugin.heartbeat import Execution
from celery_catchup.worker_plugin.replacements import follow_replacement
from celery_catchup.worker_plugin.reports import LONGEST_ERROR, NOBODY, Report, in_a_line, letter_of
from celery_catchup.worker_plugin.retry_badge import keep_badge
from celery_catchup.worker_plugin.worker_process import WorkerProcess, arrivals, flush, worker_process

# -- where the task was executed -------------------------------------------------------------


def end(task: Any, *, state: str | None, outcome: object) -> None:
    """Report what became of the run, when this process executed one."""
    token = (task.request.properties or {}).get(TOKEN)
    if token is None:
        return
    post = worker_process(task.app)
    execution = post.heartbeat.drop(token)
    arrivals.forget(token)
    if execution is None:
        return
    leave_run()
    _restore_environment(execution.shadowed)
    report = _report_of(task, post, execution, state, outcome)
    if report is not None:
        post.heartbeat.report(report)


def _report_of(
    task: Any, post: WorkerProcess, execution: Execution, state: str | None, outcome: object
) -> Report | None:
    """The report of an execution; None when it was cut off and nobody here knows how it ended."""
    final: RunState | None = None
    match state:
        case states.IGNORED if execution.replaced:
            pass  # the run goes on with the task that replaces this one
        case states.SUCCESS | states.IGNORED:  # a task that wants to be ignored has done what it wanted
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
        error=in_a_line(outcome) if went_wrong else "",
        letter=letter_of(outcome, post.categories) if went_wrong else "",
        delay_ms=_delay_ms(outcome, now=post.clock.now()),
    )


def _delay_ms(retry: object, *, now: datetime) -> int:
    """How long it takes until a retry is delivered."""
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
    """Wherever a message is published: what replaces or retries a run's task stays of the run."""
    follow_replacement(headers)
    keep_badge(headers)


def _on_received(request: Any = None, **_: Any) -> None:
    """In the main process, for every message: those of runs get a token."""
    arrivals.arrived(request)


def _on_postrun(task: Any = None, state: str | None = None, retval: object = None, **_: Any) -> None:
    """Where the task was executed, whatever became of it."""
    end(task, state=state, outcome=retval)


def _on_failure(sender: Any = None, task_id: str = "", exception: object = None, **_: Any) -> None:
    """In the main process: a child was killed, or overran its time limit.

    It is sent where the task is executed, too; there postrun follows and is left to report.
    """
    for delivery in arrivals.started(task_id):
        post = worker_process(sender.app)
        if not post.heartbeat.holds(delivery.token):
            arrivals.forget(delivery.token)
            details = {"error": in_a_line(exception), "letter": letter_of(exception, post.categories)}
            _report(sender.app, delivery, RunState.FAILED, **details)


def _on_retry(sender: Any = None, request: Any = None, reason: object = None, **_: Any) -> None:
    """In the main process: a lost or cancelled execution comes again. Elsewhere postrun follows."""
    delivery = _delivery(request)
    if delivery is not None and delivery.token:
        post = worker_process(sender.app)
        if not post.heartbeat.holds(delivery.token):
            delay_ms = _delay_ms(reason, now=post.clock.now())
            _report(sender.app, delivery, None, error=in_a_line(reason), delay_ms=delay_ms)


def _on_revoked(
    sender: Any = None, request: Any = None, *, terminated: Any = None, expired: Any = None, **_: Any
) -> None:
    """In the main process: revoked or expired before it was executed, or terminated while it was."""
    delivery = _delivery(request)
    if delivery is not None:
        owner = delivery.token if terminated else NOBODY
        error = "expired" if expired else "terminated" if terminated else "revoked"
        _report(sender.app, delivery, RunState.REVOKED, owner=owner, error=error, even_unclaimed=True)


def _on_rejected(sender: Any = None, message: Any = None, exc: object = None, **_: Any) -> None:
    """In the main process: a message that no task understands, now or the next time."""
    delivery = _delivery_in(message)
    if delivery is not None:
        error = in_a_line(exc) or "the message was rejected"
        _report(sender.app, delivery, RunState.FAILED, owner=NOBODY, error=error)


def _on_unknown(sender: Any = None, message: Any = None, name: object = None, **_: Any) -> None:
    """In the main process: a task that this worker does not know; another one may."""
    delivery = _delivery_in(message)
    if delivery is not None:
        error = f"NotRegistered: {str(name)[:LONGEST_ERROR]}"
        _report(sender.app, delivery, None, owner=NOBODY, error=error)


def _on_process_shutdown(**_: Any) -> None:
    """In a child that ends: the last moment for reports that wait."""
    flush()


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


def _delivery(request: Any) -> Delivery | None:
    """The delivery of a run's own message."""
    delivery = None if header(request, RUN_ID) is None else delivery_of(request)
    return delivery if delivery is not None and delivery.own else None


def _delivery_in(message: Any) -> Delivery | None:
    """The same of a message that never became a request."""
    headers = getattr(message, "headers", None)
    delivery = delivery_among(headers, {}) if isinstance(headers, dict) else None
    return delivery if delivery is not None and delivery.own else None


def _report(
    app: Any, delivery: Delivery, state: RunState | None, *, owner: str | None = None, **details: Any
) -> None:
    report = Report(
        run_id=delivery.run_id,
        entry=delivery.entry,
        owner=delivery.token if owner is None else owner,
        state=state,
        **details,
    )
    worker_process(app).heartbeat.report(report)
