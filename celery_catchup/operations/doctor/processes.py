"""Check the processes: the leading beat, the workers, and the broker between them."""

from __future__ import annotations

from datetime import timedelta

from celery_catchup.config.durations import format_duration
from celery_catchup.engine import DispatchFailedError
from celery_catchup.error_text import listed, shown
from celery_catchup.events.command_lines import celery_line, command_line
from celery_catchup.operations import Operator
from celery_catchup.operations.doctor.findings import Results, Verdict, failure, ok, warning
from celery_catchup.operations.fleet import ask_fleet
from celery_catchup.operations.in_flight import look_at_runs
from celery_catchup.operations.status import SLOW_BROKER, Health, Status, server_time, status
from celery_catchup.store.opening import left_behind
from celery_catchup.store.workers import LATELY

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


def held(operator: Operator) -> Results:
    """Find catch-ups that wait for an approval."""
    found = status(operator).held
    if found:
        detail = f"{sum(found.values())} runs wait for an approval (hold_above): {listed(list(found))}"
        yield warning(detail, f"look, then approve or discard: {command_line('approve', '--all', '-n')}")


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
        return
    since = operator.listing.oldest_unpublished()
    age = timedelta() if since is None else timedelta(milliseconds=operator.now() - since)
    if age >= SLOW_BROKER:
        waiting = _length(age)
        count = operator.listing.counts()["outbox"]
        detail = f"the broker takes no messages: {count} runs wait to be published, the oldest for {waiting}"
        yield failure(detail, "see the log of beat; free the broker's memory or disk, or raise its limits")
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
    """Check that workers answer now, have the plugin, consume every queue and know every task."""
    try:
        operator.sender.probe()
    except DispatchFailedError:  # the check of the broker reports it
        return
    fleet = ask_fleet(operator)
    if not fleet.asked:
        yield Verdict.UNKNOWN, "could not be asked: the broker did not take the question", None
        return
    if not fleet.alive:
        yield failure("none answers: no run is executed", f"start one: {celery_line('worker')}")
        return
    mixed = operator.workers.presence().mixed_since(server_time(operator) - LATELY)
    for queue, names in mixed.items():
        what = f"{listed(names)} without the plugin beside workers with it"
        yield failure(f"queue {shown(queue)}: {what}; runs that they execute stay open", _FIX)
    for one in fleet.unserved:
        yield (failure if one.entirely else warning)(one.detail, one.fix)
    if fleet.without_plugin:
        yield warning(f"{listed(fleet.without_plugin)} without the plugin: runs are not claimed", _FIX)
    elif not fleet.unserved and not mixed:
        number = len(fleet.workers)
        answer = "1 answers" if number == 1 else f"{number} answer"
        served = "they consume every queue and know every task"
        if fleet.busy:
            who = f"{listed(fleet.busy)} cannot answer while executing a task (pool solo)"
            served = f"every queue is consumed; {who}"
        yield ok(f"{answer}, with the plugin; {served}")


def runs(operator: Operator) -> Results:
    """Find runs that wait in their queue, and runs that take far longer than usual."""
    found = look_at_runs(operator, ask_broker=True)
    for queue in found.queues:
        length = "" if queue.length is None else f"; messages in the queue: {queue.length}"
        detail = (
            f"queue {shown(queue.queue)}: {queue.runs} {'waits' if queue.runs == 1 else 'wait'}, "
            f"the oldest for {_length(queue.waiting)}{length}"
        )
        resend = command_line("runs", "resend", queue.oldest_run)
        yield warning(detail, f"start workers for it; if its message was lost: {resend}")
    for run in found.long_running:
        usual = "" if run.usual is None else f", usually {_length(run.usual)}"
        detail = (
            f"run {run.run_id} of entry {shown(run.entry)} has been running for {_length(run.running)}"
            f"{usual}, on {run.worker}; slots blocked: {run.blocked}"
        )
        yield warning(detail, f"to end it: {command_line('runs', 'cancel', run.run_id, '--terminate')}")


def _start() -> str:
    return f"start one: {celery_line('beat', '-S', 'celery_catchup.Scheduler')}"


def _age(found: Status) -> str:
    return _length(found.last_tick_age or timedelta())


def _length(duration: timedelta) -> str:
    seconds = int(duration.total_seconds())
    return format_duration(timedelta(seconds=seconds)) if seconds else "0s"
