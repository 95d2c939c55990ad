"""``celery catchup status``: show whether a beat leads, and what needs attention."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from celery_catchup.cli.command import EX_FAILURE, operator_command
from celery_catchup.cli.matches import large_groups, listed_by_group
from celery_catchup.cli.parameters import DurationParam, json_option, option, zone_option
from celery_catchup.cli.screen import SHORT_ID, Screen, length
from celery_catchup.config.name_patterns import group_of
from celery_catchup.error_text import counted

if TYPE_CHECKING:
    from celery_catchup.operations import Operator
    from celery_catchup.operations.status import Status


_DURATION = DurationParam(fine=True)
_MOST_OVERDUE = 10
"""Entries with overdue slots that are named."""


@operator_command("status", short_help="Show whether a beat leads, and what needs attention.")
@option(
    "--check",
    group="Output",
    is_flag=True,
    help="For probes: only the first line, and the workers not asked.",
)
@option(
    "--workers", group="Output", is_flag=True, help="Exit with 1 if workers do not serve every entry, too."
)
@option(
    "--beat",
    group="Output",
    is_flag=True,
    help="For liveness probes: the exit code is that of the beat, whatever is overdue.",
)
@option(
    "--max-age",
    group="Output",
    type=_DURATION,
    help="Largest age of the last tick; by default, the leader's lease.",
)
@option(
    "--max-delay", group="Output", type=_DURATION, default="5m", help="Longest time a due slot is undecided."
)
@zone_option
@json_option
def command(
    operator: Operator,
    screen: Screen,
    *,
    check: bool,
    workers: bool,
    beat: bool,
    max_age: timedelta | None,
    max_delay: timedelta,
) -> int:
    """Show whether a beat leads, the progress of its catch-up, and what needs attention; ask the workers.

    With --check it is a probe: one line, from the store alone. Problems of workers do not change its exit
    code; --workers includes the workers. A slot that has missed its deadline (expect_within) does, except
    with --beat, which is for probes that restart the beat: another beat would not help.

    The exit code is 0 while the last tick is younger than --max-age, no due slot has stayed undecided longer
    than --max-delay, and none is overdue, else 1. It is also 1 if a beat with other entries than
    this app's has led in its namespace for five minutes. It is 69 if the store is unreachable.
    """
    from celery_catchup.operations.status import status

    found = status(operator, max_age=max_age, max_delay=max_delay, ask=workers or not check)
    if not screen.printed_as_json(found):
        screen.out(f"Scheduler: {_state(found)}")
        if found.conflict is not None:
            grade = "Error" if found.conflict.lasting else "Warning"
            screen.out(f"{grade}: {found.conflict.detail}; set catchup_namespace")
        screen.facts(_problems(found))
        if not check:
            screen.facts(_facts(screen, found))
            _advise(screen, found)
    unserved = workers and _unserved(found)
    healthy = found.beat_healthy if beat else found.healthy
    return EX_FAILURE if unserved or not healthy else 0


def _state(found: Status) -> str:
    progress = ""
    if found.catchup is not None:
        one = found.catchup
        progress = f"{one.dispatched}/{one.total} dispatched, {one.skipped} skipped"
    age = length(found.last_tick_age)
    match found.scheduler.value:
        case "running":
            slots = sum(found.overdue.values())
            late = f"{counted(slots, 'slot')} overdue" if slots else ""
            parts = [f"catch-up in progress: {progress}" if progress else "", _held(found), late]
            return f"running ({'; '.join(filter(None, parts)) or 'idle'})"
        case "standing by":
            return f"standing by (no beat leads, the last leader resigned {age} ago)"
        case "down":
            return f"down for {age}" + (f" (in a catch-up: {progress})" if progress else "")
        case _:
            return f"never started in namespace {found.namespace}"


def _held(found: Status) -> str:
    entries = counted(len(found.held), "entry", "entries")
    return f"{entries} held: {counted(sum(found.held.values()), 'run')}" if found.held else ""


def _overdue(found: Status) -> str | None:
    several = [f"{name} ({counted(slots, 'slot')})" for name, slots in found.overdue.items()]
    more = f" and {len(several) - _MOST_OVERDUE} more" if len(several) > _MOST_OVERDUE else ""
    return ", ".join(several[:_MOST_OVERDUE]) + more or None


def _unserved(found: Status) -> bool:
    fleet = found.fleet
    return fleet is None or not fleet.alive or any(one.entirely for one in fleet.unserved)


def _problems(found: Status) -> Iterator[tuple[str, object]]:
    """Yield what keeps runs from being executed."""
    from celery_catchup.operations.status import SLOW_BROKER

    fleet = found.fleet
    if fleet is not None and not fleet.asked:
        yield "Workers", "could not be asked: the broker does not answer"
    elif fleet is not None and not fleet.alive:
        yield "Workers", "none answers"
    for unserved in fleet.unserved if fleet is not None and fleet.alive else ():
        yield "Not served", unserved.detail
    for queue in found.queues:
        depth = "" if queue.length is None else f", {counted(queue.length, 'message')} in the queue"
        oldest = (
            f"the oldest for {length(queue.waiting)} ({queue.oldest_run[:SHORT_ID]} of {queue.oldest_entry})"
        )
        yield "Queued", f"{counted(queue.runs, 'run')} in {queue.queue}, {oldest}{depth}"
    for run in found.long_running:
        usual = f", usually {length(run.usual)}" if run.usual is not None else ""
        blocks = f", {counted(run.blocked, 'slot')} blocked" if run.blocked else ""
        where = f"{run.run_id[:SHORT_ID]} on {run.worker}, task id {run.task_id}"
        yield "Running long", f"{run.entry} for {length(run.running)}{usual}{blocks} ({where})"
    yield "Undecided", listed_by_group(found.undecided_entries) or None
    yield "Overdue", _overdue(found)
    if found.unpublished_for is not None and found.unpublished_for >= SLOW_BROKER:
        waiting = f"{counted(found.to_be_published, 'run')}, the oldest for {length(found.unpublished_for)}"
        yield "Not taken by the broker", waiting


def _facts(screen: Screen, found: Status) -> Iterator[tuple[str, object]]:
    time = screen.time
    yield "Leader", None if found.leader is None else f"{found.leader} (epoch {found.epoch})"
    if found.last_tick is not None:
        yield "Last tick", f"{time(found.last_tick)} ({length(found.last_tick_age)} ago)"
    if found.watermark is not None:
        yield "Watermark", f"{time(found.watermark)} (lag {length(found.lag)})"
    yield "Oldest undecided slot", None if found.undecided is None else f"due for {length(found.undecided)}"
    groups = large_groups(one.entry for one in found.failing if one.backfill is None)
    for group, names in groups.items():
        first = next(one for one in found.failing if one.entry == names[0])
        yield "Failing", f"{group}: {len(names)} entries, such as {first.entry}: {first.reason}"
    for failing in (one for one in found.failing if one.backfill or group_of(one.entry) not in groups):
        what = failing.entry if failing.backfill is None else f"{failing.entry}, backfill {failing.backfill}"
        yield "Failing", f"{what}: {failing.reason} (since {time(failing.since)}, {failing.times} tries)"
    yield "Runs in flight", f"{found.in_flight} ({found.queued} queued, {found.running} running)"
    if found.active_catchup is not None:
        one = found.active_catchup
        waiting = f", {counted(one.waiting, 'entry or backfill waits', 'entries and backfills wait')}"
        yield "Catch-up runs active", f"{one.active} of {one.limit}{waiting if one.waiting else ''}"
    yield "Waiting for a retry", found.waiting_for_retry or None
    yield "Waiting to be published", found.to_be_published or None
    yield "Dead letters", found.dead_letters
    yield "Not recovered in the last day", found.not_recovered
    yield "Backfills", found.backfills or None
    yield "Held", listed_by_group(found.held) or None
    yield "Paused", listed_by_group(found.paused) or None
    yield "Stopped by a failed run", listed_by_group(found.stopped) or None
    if found.fleet is not None and found.fleet.alive:
        alone, busy = len(found.fleet.without_plugin), len(found.fleet.busy)
        executing = f"; {counted(busy, 'executes', 'execute')} a task and cannot answer (pool solo)"
        answer = counted(len(found.fleet.workers), "answers", "answer")
        yield "Workers", f"{answer}, {alone} of them without the plugin{executing if busy else ''}"
    yield "Standby beats", found.standbys or None
    yield "Workers without the plugin", ", ".join(found.without_plugin) or None


def _advise(screen: Screen, found: Status) -> None:
    for run in found.long_running[:1]:
        screen.hint("To end a run that hangs", "runs", "cancel", run.run_id, "--terminate")
    if found.overdue:
        screen.hint("To see the slots that are overdue", "runs", "--overdue")
    if found.dead_letters:
        screen.hint("To see what failed for good", "dlq", "list")
    if found.held:
        screen.hint("To see what the held catch-ups would dispatch", "approve", "--all", "-n")
    if found.stopped:
        screen.hint("To see the runs that have to be replayed or discarded", "entries")
    if found.not_recovered:
        screen.hint("To see what was not recovered", "runs", "--state", "skipped", "--since", "24h")
    if found.without_plugin:
        screen.hint("Runs on workers without the plugin stay open. What to do", "doctor")
    if not found.healthy or _unserved(found) or found.queues:
        screen.hint("To find the problem", "doctor")
