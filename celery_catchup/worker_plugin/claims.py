"""Claims: a run is taken before its task is executed, or its message is not executed."""

from __future__ import annotations

import logging
import os
import random
import time
from datetime import datetime
from typing import Any, NoReturn

from celery.exceptions import Ignore, Reject

from celery_catchup.config.settings import OnStoreFailure
from celery_catchup.dispatch.header_names import DATA_INTERVAL_START, RUN_ID, SCHEDULED_TIME, TRIGGER_TYPE
from celery_catchup.events import RunRefused, RunStarted
from celery_catchup.events.log_lines import logfmt
from celery_catchup.model import Trigger, to_instant
from celery_catchup.store import Claim
from celery_catchup.store.connection import explain
from celery_catchup.store.leases import Answer
from celery_catchup.worker_plugin.context import LeaseWatch, RunContext, enter_run
from celery_catchup.worker_plugin.deliveries import (
    TOKEN,
    Delivery,
    delivery_of,
    header,
    new_token,
    routing_key,
)
from celery_catchup.worker_plugin.heartbeat import Execution
from celery_catchup.worker_plugin.reports import NOBODY, STORE_TROUBLE
from celery_catchup.worker_plugin.stored_notebook import StoredNotebook
from celery_catchup.worker_plugin.tracing import annotate
from celery_catchup.worker_plugin.worker_process import WorkerProcess, arrivals, worker_process

logger = logging.getLogger(__name__)

_STORE_PAUSES = (0.5, 1.5)
"""Seconds between tries to reach the store, before the message goes back."""

_HANDOVER_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds between tries to claim a retried run: the retry is sent before its predecessor has ended."""

_COUNTDOWN = (10.0, 20.0)
"""Seconds until a message that went back is delivered again; apart, so that workers do not ask in step."""


def begin(task: Any) -> None:
    """Claim the run that the message belongs to; a message without one costs nothing.

    Raises `Ignore` when the run is not to be had, so that the message is acknowledged
    without being executed.
    """
    request = task.request
    if header(request, RUN_ID) is None or request.is_eager:
        return
    post = worker_process(task.app)
    delivery = _delivered(request)
    if delivery is None:
        post.warn_once("malformed", logfmt("Run headers malformed", task=task.name, action="ordinary task"))
    elif delivery.own and not post.heartbeat.holds(delivery.token):  # a base class may have asked already
        _take(task, post, delivery)


def _delivered(request: Any) -> Delivery | None:
    if not request.properties:
        request.properties = {}
    # A message that came without going through the consumer has no token yet.
    request.properties.setdefault(TOKEN, new_token())
    return delivery_of(request)


def _take(task: Any, post: WorkerProcess, delivery: Delivery) -> None:
    try:
        claim, lease = _claim(task, post, delivery)
    except STORE_TROUBLE as error:
        _without_store(task, post, delivery, error)
        return
    if claim.answer is not Answer.GRANTED:
        arrivals.forget(delivery.token)
    match claim.answer:
        case Answer.GRANTED:
            notebook = StoredNotebook(post.notes, delivery.run_id, owner=delivery.token)
            run = RunContext.of(delivery.run_id, claim.run, lease=lease, notebook=notebook)
            _start(post, delivery, run, owner=delivery.token)
            post.events.emit(
                RunStarted(run.entry, run.run_id, run.slot, run.trigger, run.attempt, run.started)
            )
        case Answer.FOREIGN:
            pass  # an ordinary task, to which a run's headers were passed on
        case Answer.LATER:
            _hand_back(task, "the run is executed elsewhere; the message comes again")
        case Answer.UNKNOWN:
            fields = {"entry": delivery.entry, "run_id": delivery.run_id}
            post.warn_once(delivery.entry, logfmt("Run unknown", **fields, action="ordinary task"))
        case _:
            post.events.emit(RunRefused(delivery.entry, delivery.run_id, task.name, str(claim.answer)))
            raise Ignore(f"the run is not to be had: {claim.answer}")


def _claim(task: Any, post: WorkerProcess, delivery: Delivery) -> tuple[Claim, LeaseWatch]:
    """Ask for the run; a retry or replacement waits a moment for the execution that sent it to let go."""
    pauses = _HANDOVER_PAUSES if task.request.retries or _replaces(task.request) else ()
    for pause in pauses:
        claim, lease = _ask(task, post, delivery)
        if claim.answer is not Answer.HELD:
            return claim, lease
        time.sleep(pause)
    return _ask(task, post, delivery)


def _ask(task: Any, post: WorkerProcess, delivery: Delivery) -> tuple[Claim, LeaseWatch]:
    """One claim, through a short trouble of the store; repeating it changes nothing."""

    def ask() -> tuple[Claim, LeaseWatch]:
        request = task.request
        # Made before the question: the lease counts from when the server grants it, or earlier.
        lease = LeaseWatch(post.clock, seconds=post.leases.ttl_ms / 1000)
        claim = post.leases.claim(
            delivery.run_id,
            owner=delivery.token,
            task="" if _replaces(request) else task.name,
            worker=str(request.hostname or ""),
            entry=delivery.entry,
            task_id=str(request.id),
            routing_key=routing_key(request),
        )
        return claim, lease

    for pause in _STORE_PAUSES:
        try:
            return ask()
        except STORE_TROUBLE:
            time.sleep(pause)
    return ask()


def _replaces(request: Any) -> bool:
    """Whether its task was sent by ``self.replace()``: it goes on with the run of another one."""
    return bool(request.replaced_task_nesting)


def _start(post: WorkerProcess, delivery: Delivery, run: RunContext, *, owner: str) -> None:
    execution = Execution(run, owner)
    post.heartbeat.hold(delivery.token, execution)
    enter_run(run)
    annotate(run)
    if post.settings.export_env:
        variables = run.environ()
        execution.shadowed = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)


# -- when the store is away ------------------------------------------------------------------


def _without_store(task: Any, post: WorkerProcess, delivery: Delivery, error: BaseException) -> None:
    """What the user wants when a run cannot be claimed: execute it all the same, or later."""
    action = post.settings.on_store_failure
    fields = {"entry": delivery.entry, "run_id": delivery.run_id, "error": explain(error), "action": action}
    logger.warning(logfmt("Run cannot be claimed", **fields))
    if action is OnStoreFailure.RETRY:
        _hand_back(task, "the store cannot be reached; the message comes again")
    run = _by_its_headers(task.request, post, delivery)
    if run is not None:
        _start(post, delivery, run, owner=NOBODY)


def _hand_back(task: Any, why: str) -> NoReturn:
    """Send the message again for later, and acknowledge this one.

    It is not a retry of the task: none of its retries is used up. Should the broker be away
    too, the message is rejected; when it had been acknowledged before, beat misses the run
    after a while and sends it again.
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


def _by_its_headers(request: Any, post: WorkerProcess, delivery: Delivery) -> RunContext | None:
    """The run as its message tells it, for an execution that the ledger does not know of."""
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
        started=to_instant(post.clock.now()),
    )


def _instant(text: object) -> int | None:
    return to_instant(datetime.fromisoformat(text)) if isinstance(text, str) and text else None
