"""The processes: who leads, who works, and how messages get from one to the other."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from kombu.exceptions import OperationalError

from celery_catchup.config.durations import format_duration
from celery_catchup.engine import DispatchFailedError
from celery_catchup.error_text import listed, shown
from celery_catchup.operations import Operator
from celery_catchup.operations.doctor.findings import Finding, Verdict, failure, ok, warning
from celery_catchup.operations.status import Health, Status, server_time, status
from celery_catchup.store.opening import left_behind
from celery_catchup.store.workers import LATELY

_PING = 1.0  # seconds that workers have to answer
_LATELY = 10 * 60 * 1000
_OVERDUE = 60_000  # milliseconds after which a lease that ran out should have been seen to
_FIX = 'add imports += ["celery_catchup.worker"] to their settings, and restart them'
_START = "start one: celery -A … beat -S celery_catchup:Scheduler"


def leader(operator: Operator) -> Iterator[Finding]:
    """Whether a beat leads."""
    found = status(operator)
    match found.scheduler:
        case Health.RUNNING:
            yield ok("scheduler", f"leader {found.leader} (epoch {found.epoch}), last tick {_age(found)} ago")
        case Health.STANDING_BY:
            yield warning("scheduler", f"nobody leads; the last leader resigned {_age(found)} ago", _START)
        case Health.DOWN:
            yield failure("scheduler", f"no beat leads; the last tick was {_age(found)} ago", _START)
        case Health.NEVER_STARTED:
            where = shown(operator.store.namespace)
            yield failure("scheduler", f"no beat has ever led in namespace {where}", _START)
    for one in found.failing:
        what = f"entry {shown(one.entry)}" if one.backfill is None else f"backfill {one.backfill}"
        yield failure("scheduler", f"{what} fails: {one.reason}", "mend it; it is tried again by itself")


def namespace(operator: Operator) -> Iterator[Finding]:
    """Whether this app has its namespace for itself."""
    conflict, behind = status(operator).conflict, left_behind(operator.store)
    fix = "two apps? set catchup_namespace in one of them; one app? start all beats from one configuration"
    if behind is not None:
        yield failure("namespace", behind, "set catchup_namespace: beat does not start without it")
    elif conflict is not None:
        yield (failure if conflict.lasting else warning)("namespace", conflict.detail, fix)
    elif operator.declares_as_leader():
        yield ok("namespace", f"nobody else uses {shown(operator.store.namespace)}")
    else:
        where = shown(operator.store.namespace)
        told = f"the latest leader in namespace {where} has other entries than this app"
        yield warning("namespace", told, fix)


def broker(operator: Operator) -> Iterator[Finding]:
    """How messages reach the workers, and which workers there are."""
    try:
        operator.sender.probe()
    except DispatchFailedError as error:
        yield failure("dispatch", str(error), "mend broker_url, or the broker")
        return
    yield ok("dispatch", f"{operator.sender.mode}: {operator.sender.reason}")
    yield from _workers(operator)


def leases(operator: Operator) -> Iterator[Finding]:
    """Whether runs have been without a sign of life for longer than they should."""
    stale = operator.listing.overdue(server_time(operator) - _OVERDUE)
    if stale:
        fix = "a leading beat sends them again; list them: celery catchup runs --state running"
        yield warning("leases", f"runs in flight without a sign of life: {stale}", fix)
    else:
        yield ok("leases", "every run in flight is looked after")


def dead_letters(operator: Operator) -> Iterator[Finding]:
    """Whether runs wait for somebody to decide."""
    count = operator.listing.counts()["dead"]
    if count:
        yield warning(
            "dead letters", f"runs that used up all attempts: {count}", "see: celery catchup dlq list"
        )
    else:
        yield ok("dead letters", "none")


def _workers(operator: Operator) -> Iterator[Finding]:
    with_plugin = set(operator.workers.seen_since(server_time(operator) - _LATELY))
    try:
        answers: Any = operator.app.control.ping(timeout=_PING)
    except (OperationalError, OSError) as error:
        yield Finding("workers", Verdict.UNKNOWN, f"could not be asked: {type(error).__name__}")
        return
    mixed = operator.workers.presence().mixed_since(server_time(operator) - LATELY)
    for queue, names in mixed.items():
        what = f"{listed(names)} without the plugin beside workers with it"
        yield failure("workers", f"queue {shown(queue)}: {what}; runs that they execute stay open", _FIX)
    alive = {node for answer in answers for node in answer}
    without = sorted(alive - with_plugin)
    if not alive | with_plugin:
        yield warning("workers", "none answered", "start one: celery -A … worker")
    elif without:
        yield warning("workers", f"{listed(without)} without the plugin: runs are not claimed", _FIX)
    else:
        yield ok("workers", f"{len(with_plugin)} with the plugin")


def _age(found: Status) -> str:
    seconds = 0 if found.last_tick_age is None else int(found.last_tick_age.total_seconds())
    return format_duration(timedelta(seconds=seconds)) if seconds else "0s"
