"""Check the processes: the leading beat, the workers, and the broker between them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kombu.exceptions import OperationalError

from celery_catchup.config.durations import format_duration
from celery_catchup.engine import DispatchFailedError
from celery_catchup.error_text import listed, shown
from celery_catchup.events.command_lines import celery_line, command_line
from celery_catchup.operations import Operator
from celery_catchup.operations.doctor.findings import Results, Verdict, failure, ok, warning
from celery_catchup.operations.status import Health, Status, server_time, status
from celery_catchup.store.opening import left_behind
from celery_catchup.store.workers import LATELY

_PING = 1.0  # seconds that workers have to answer
_LATELY = 10 * 60 * 1000
_OVERDUE = 60_000  # milliseconds after which an expired lease should have been handled
_FIX = 'add imports += ["celery_catchup.worker"] to their settings, and restart them'


def scheduler(operator: Operator) -> Results:
    """Check that a beat leads, and that no entry fails."""
    found = status(operator)
    match found.scheduler:
        case Health.RUNNING:
            yield ok(f"leader {found.leader} (epoch {found.epoch}), last tick {_age(found)} ago")
        case Health.STANDING_BY:
            yield warning(f"no beat leads; the last leader resigned {_age(found)} ago", _start())
        case Health.DOWN:
            yield failure(f"no beat leads; the last tick was {_age(found)} ago", _start())
        case Health.NEVER_STARTED:
            where = shown(operator.store.namespace)
            yield failure(f"no beat has ever led in namespace {where}", _start())
    for one in found.failing:
        what = f"entry {shown(one.entry)}" if one.backfill is None else f"backfill {one.backfill}"
        yield failure(f"{what} fails: {one.reason}", "correct it; beat tries again by itself")


def namespace(operator: Operator) -> Results:
    """Check that no other app uses this namespace."""
    conflict, left = status(operator).conflict, left_behind(operator.store)
    fix = "two apps? set catchup_namespace in one of them; one app? start all beats from one configuration"
    if left is not None:
        yield failure(left, "set catchup_namespace: beat does not start without it")
    elif conflict is not None:
        yield (failure if conflict.lasting else warning)(conflict.detail, fix)
    elif operator.declares_as_leader():
        yield ok(f"no other app uses {shown(operator.store.namespace)}")
    else:
        where = shown(operator.store.namespace)
        yield warning(f"the latest leader in namespace {where} has other entries than this app", fix)


def dispatch(operator: Operator) -> Results:
    """Check that the broker answers."""
    try:
        operator.sender.probe()
    except DispatchFailedError as error:
        yield failure(str(error), "correct broker_url, or repair the broker")
    else:
        yield ok(f"{operator.sender.mode}: {operator.sender.reason}")


def leases(operator: Operator) -> Results:
    """Find runs whose lease expired and was not handled."""
    stale = operator.listing.overdue(server_time(operator) - _OVERDUE)
    if stale:
        fix = f"a leading beat sends them again; list them: {command_line('runs', '--state', 'running')}"
        yield warning(f"runs in flight without a sign of life: {stale}", fix)


def dead_letters(operator: Operator) -> Results:
    """Find dead letters."""
    count = operator.listing.counts()["dead"]
    if count:
        yield warning(f"runs that used up all attempts: {count}", f"see: {command_line('dlq', 'list')}")


def workers(operator: Operator) -> Results:
    """Check that workers answer, and have the plugin."""
    try:
        operator.sender.probe()
    except DispatchFailedError:  # the check of the broker reports it
        return
    with_plugin = set(operator.workers.seen_since(server_time(operator) - _LATELY))
    try:
        answers: Any = operator.app.control.ping(timeout=_PING)
    except (OperationalError, OSError) as error:
        yield Verdict.UNKNOWN, f"could not be asked: {type(error).__name__}", None
        return
    mixed = operator.workers.presence().mixed_since(server_time(operator) - LATELY)
    for queue, names in mixed.items():
        what = f"{listed(names)} without the plugin beside workers with it"
        yield failure(f"queue {shown(queue)}: {what}; runs that they execute stay open", _FIX)
    alive = {node for answer in answers for node in answer}
    without = sorted(alive - with_plugin)
    if not alive | with_plugin:
        yield warning("none answered", f"start one: {celery_line('worker')}")
    elif without:
        yield warning(f"{listed(without)} without the plugin: runs are not claimed", _FIX)
    else:
        yield ok(f"{len(with_plugin)} with the plugin")


def _start() -> str:
    return f"start one: {celery_line('beat', '-S', 'celery_catchup.Scheduler')}"


def _age(found: Status) -> str:
    seconds = 0 if found.last_tick_age is None else int(found.last_tick_age.total_seconds())
    return format_duration(timedelta(seconds=seconds)) if seconds else "0s"
