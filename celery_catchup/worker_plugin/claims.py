"""Claims: take a run before its task is executed; without the claim the message is not executed."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn, assert_never

from celery.exceptions import Ignore, Reject

from celery_catchup.config.settings import OnStoreFailure
from celery_catchup.dispatch.header_names import (
    DATA_INTERVAL_START,
    RUN_ID,
    SCHEDULED_TIME,
    SLOTS,
    TRIGGER_TYPE,
)
from celery_catchup.events import RunRefused, RunStarted
from celery_catchup.events.log_lines import logfmt
from celery_catchup.model import Trigger, to_instant
from celery_catchup.store import Claim
from celery_catchup.store.connection import explain
from celery_catchup.store.leases import ClaimOutcome
from celery_catchup.worker_plugin.context import LeaseWatch, Notebook, RunContext, enter_run
from celery_catchup.worker_plugin.deliveries import (
    TOKEN,
    Delivery,
    delivery_of,
    header,
    is_message_of,
    new_token,
)
from celery_catchup.worker_plugin.heartbeat import Execution
from celery_catchup.worker_plugin.reports import STORE_TROUBLE, UNCLAIMED
from celery_catchup.worker_plugin.worker_process import WorkerProcess, arrivals, worker_process

logger = logging.getLogger(__name__)

_STORE_PAUSES = (0.5, 1.5)
"""Seconds between tries to reach the store, before the message goes back."""

_HANDOVER_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds between tries to claim a retried run: the retry is sent before its predecessor has ended."""

_COUNTDOWN = (10.0, 20.0)
"""Seconds until a message that went back is delivered again; random, so that workers do not ask in step."""


def begin(task: Any) -> None:
    """Claim the run that the message belongs to; a message without a run costs nothing.

    Raises `Ignore` when the claim is refused, so that the message is acknowledged without being executed.
    """
    request = task.request
    if header(request, RUN_ID) is None or request.is_eager:
        return
    process = worker_process(task.app)
    if not request.properties:
        request.properties = {}
    # A message that came without going through the consumer has no token yet.
    request.properties.setdefault(TOKEN, new_token())
    delivery = delivery_of(request)
    if delivery is None:
        line = logfmt("Run headers malformed", task=task.name, action="ordinary task")
        process.warn_once("malformed", line)
    elif delivery.own and not process.heartbeat.held(delivery.token):  # a base class may have claimed it
        _take(task, process, delivery)


def _take(task: Any, process: WorkerProcess, delivery: Delivery) -> None:
    process.heartbeat.attempt(process.heartbeat.read_answers)
    try:
        claim, lease = _claim(task, process, delivery)
    except STORE_TROUBLE as error:
        _without_store(task, process, delivery, error)
        return
    if claim.answer is not ClaimOutcome.GRANTED:
        arrivals.forget(delivery.token)
    match claim.answer:
        case ClaimOutcome.GRANTED:
            notebook = Notebook(process.notes, delivery.run_id, owner=delivery.token)
            run = RunContext.of(delivery.run_id, claim.run, lease=lease, notebook=notebook)
            _start(process, delivery, run, owner=delivery.token, limited=claim.limited)
            process.events.emit(
                RunStarted(run.entry, run.run_id, run.slot, run.trigger, run.attempt, run.started)
            )
        case ClaimOutcome.FOREIGN:
            pass  # an ordinary task that was sent with a run's headers
        case ClaimOutcome.LATER:
            _hand_back(task, "the run is executed elsewhere; the message comes again")
        case ClaimOutcome.UNKNOWN:
            fields = {"entry": delivery.entry, "run_id": delivery.run_id}
            process.warn_once(delivery.entry, logfmt("Run unknown", **fields, action="ordinary task"))
        case ClaimOutcome.HELD | ClaimOutcome.ENDED:
            process.events.emit(RunRefused(delivery.entry, delivery.run_id, task.name, str(claim.answer)))
            raise Ignore(f"the claim of the run is refused: {claim.answer}")
        case _:
            assert_never(claim.answer)


def _claim(task: Any, process: WorkerProcess, delivery: Delivery) -> tuple[Claim, LeaseWatch]:
    """Claim the run, which is idempotent; again after a short failure of the store, and, for a retry or
    replacement, while the execution that sent it has not ended."""
    hands_over = task.request.retries or _replaces(task.request)
    store_pauses, handover_pauses = iter(_STORE_PAUSES), iter(_HANDOVER_PAUSES if hands_over else ())
    while True:
        try:
            claim, lease = _ask(task, process, delivery)
        except STORE_TROUBLE:
            pause = next(store_pauses, None)
            if pause is None:
                raise
        else:
            store_pauses = iter(_STORE_PAUSES)
            pause = next(handover_pauses, None)
            if claim.answer is not ClaimOutcome.HELD or pause is None:
                return claim, lease
        time.sleep(pause)


def _ask(task: Any, process: WorkerProcess, delivery: Delivery) -> tuple[Claim, LeaseWatch]:
    request = task.request
    info = request.delivery_info
    # Made before the claim: the lease counts from when the server grants it, or earlier.
    lease = LeaseWatch(process.clock, seconds=process.leases.ttl_ms / 1000)
    claim = process.leases.claim(
        delivery.run_id,
        owner=delivery.token,
        task="" if _replaces(request) else task.name,
        worker=str(request.hostname or ""),
        entry=delivery.entry,
        task_id=str(request.id),
        routing_key=str(info.get("routing_key") or "") if isinstance(info, Mapping) else "",
        priority=info.get("priority") if isinstance(info, Mapping) else None,
    )
    return claim, lease


def _replaces(request: Any) -> bool:
    """Tell whether ``self.replace()`` sent the task: it goes on with the run of another one."""
    return bool(request.replaced_task_nesting)


def _start(
    process: WorkerProcess, delivery: Delivery, run: RunContext, *, owner: str, limited: bool = False
) -> None:
    execution = Execution(run, owner, limited=limited)
    process.heartbeat.hold(delivery.token, execution)
    enter_run(run)
    if process.settings.export_env:
        variables = run.environ()
        execution.shadowed = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)


# -- when the store is down ------------------------------------------------------------------


def _without_store(task: Any, process: WorkerProcess, delivery: Delivery, error: BaseException) -> None:
    """Execute a run that cannot be claimed all the same, or later: as ``on_store_failure`` says."""
    action = process.settings.on_store_failure
    fields = {"entry": delivery.entry, "run_id": delivery.run_id, "error": explain(error), "action": action}
    logger.warning(logfmt("Run cannot be claimed", **fields))
    if action is OnStoreFailure.RETRY:
        try:
            _hand_back(task, "the store cannot be reached; the message comes again")
        except Reject:
            if task.acks_late or is_message_of(delivery.run_id, task.request.id):
                raise
            # Acknowledged, and beat cannot send it again: it may be a child with the headers of its parent.
            return
    run = _run_of_headers(task.request, process, delivery)
    if run is not None:
        _start(process, delivery, run, owner=UNCLAIMED)


def _hand_back(task: Any, why: str) -> NoReturn:
    """Send the message again for later, and acknowledge this one.

    It is not a retry of the task: none of its retries is used up. When the broker is down, too, the
    message is rejected; when it had been acknowledged before, beat misses the run after a while and
    sends it again.
    """
    request = task.request
    try:
        task.signature_from_request(
            request, countdown=random.uniform(*_COUNTDOWN), retries=request.retries
        ).apply_async()
    except Exception as error:
        logger.exception(logfmt("Message cannot be sent back", task=task.name))
        raise Reject(error, requeue=True) from error
    raise Ignore(why)


def _run_of_headers(request: Any, process: WorkerProcess, delivery: Delivery) -> RunContext | None:
    """Read the run from the headers of its message, for an execution that the ledger does not know."""
    try:
        slot, previous = (_instant(header(request, name)) for name in (SCHEDULED_TIME, DATA_INTERVAL_START))
        trigger, attempt = Trigger(str(header(request, TRIGGER_TYPE))), 1 + request.retries
    except (TypeError, ValueError):
        return None
    if slot is None:
        return None
    return RunContext(
        entry=delivery.entry,
        run_id=delivery.run_id,
        trigger=trigger,
        attempt=attempt,
        slot=slot,
        previous=previous,
        slots=slots if isinstance(slots := header(request, SLOTS), int) else 1,
        started=to_instant(process.clock.now()),
    )


def _instant(text: object) -> int | None:
    return to_instant(datetime.fromisoformat(text)) if isinstance(text, str) and text else None
