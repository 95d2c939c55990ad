"""Notes above a page: problems that need attention, and the latest catch-up; and when beat was down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from celery_catchup.error_text import counted
from celery_catchup.events.command_lines import celery_line, command_line
from celery_catchup.flower.drawing.lanes import DownTime
from celery_catchup.flower.markup import Times, duration, written
from celery_catchup.flower.pages.page import ENTRY, RUNS, query_string
from celery_catchup.operations.status import SLOW_BROKER, Banner, Health, Outage, Status

_MOST_OF_A_KIND = 2
_LONG = timedelta(minutes=2)
"""A run that waits longer for a worker has a note."""
_MOST_FAILING = 3
"""Failing entries with a note of their own."""


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence above the page, with an optional link, and commands that help; ``held`` is an entry whose
    catch-up is to be approved, and its number of runs."""

    strong: str
    text: str
    kind: str = ""
    path: str = ""
    action: str = ""
    commands: tuple[str, ...] = ()
    held: tuple[str, int] | None = None


def notes(status: Status, banner: Banner | None, times: Times, *, entry: str = "") -> list[Note]:
    """Return the notes of a page; on the page of an entry the link leads to its own runs."""
    return [*_problems(status), *([] if banner is None else [_latest_catchup(banner, entry, times)])]


def down_times(outages: Sequence[Outage], status: Status) -> list[DownTime]:
    """Return when beat was down, and since when it still is."""
    found = [DownTime(one.since, one.until) for one in outages]
    if status.scheduler is Health.DOWN and status.last_tick is not None:
        found.append(DownTime(status.last_tick, None))
    return found


def _latest_catchup(banner: Banner, entry: str, times: Times) -> Note:
    query = query_string(
        triggerType="catchup",
        entry=entry,
        since=written(banner.first),
        until=written(banner.last),
    )
    verb = "was" if banner.dispatched == 1 else "were"
    return Note(
        counted(banner.dispatched, "catch-up run"),
        f"{verb} dispatched for missed schedules between {times.between(banner.first, banner.last)}.",
        path=RUNS + query,
        action="Show them",
    )


def _problems(status: Status) -> Iterator[Note]:
    age, start = duration(status.last_tick_age), celery_line("beat", "-S", "celery_catchup.Scheduler")
    match status.scheduler:
        case Health.NEVER_STARTED:
            strong = f"No beat has ever run in namespace {status.namespace}."
            yield Note(strong, "Start one:", kind="cu-warn", commands=(start,))
        case Health.DOWN:
            text = f"No tick for {age}; missed slots are caught up when beat is back. "
            text += "Start one, or find out why it does not lead:"
            yield Note("Beat is down.", text, kind="cu-error", commands=(start, command_line("doctor")))
        case Health.STANDING_BY:
            text = f"The last leader resigned {age} ago. Start one:"
            yield Note("No beat leads.", text, kind="cu-warn", commands=(start,))
        case _:
            pass
    if status.conflict is not None:
        kind = "cu-error" if status.conflict.lasting else "cu-warn"
        yield Note("Two beats disagree.", f"{status.conflict.detail}; set catchup_namespace.", kind=kind)
    if status.without_plugin:
        names = ", ".join(status.without_plugin)
        text = f'{names}: add imports += ["celery_catchup.worker"] to their settings.'
        yield Note("Workers without the plugin execute runs that stay open.", text, kind="cu-warn")
    yield from _workers(status)
    yield from _overdue(status)
    yield from _stuck(status)
    for one in status.failing[:_MOST_FAILING]:
        name = one.entry if one.backfill is None else f"Backfill {one.backfill} of {one.entry}"
        yield Note(f"{name} is failing.", f"{one.reason} It is retried.", kind="cu-error")
    if len(status.failing) > _MOST_FAILING:
        rest = len(status.failing) - _MOST_FAILING
        yield Note(f"{rest:,} more are failing.", f"{command_line('status')} lists them.", kind="cu-error")


def _workers(status: Status) -> Iterator[Note]:
    """Yield notes about what keeps workers from executing runs."""
    fleet = status.fleet
    if status.unpublished_for is not None and status.unpublished_for >= SLOW_BROKER:
        waiting = (
            f"{counted(status.to_be_published, 'run')}, the oldest for {duration(status.unpublished_for)}"
        )
        text = f"{waiting}. Free its memory or disk, or raise its limits; the log of beat has the error."
        yield Note("The broker takes no messages.", text, kind="cu-error")
    if fleet is None or not fleet.asked:
        if fleet is not None:
            yield Note("The workers cannot be asked.", "The broker does not answer.", kind="cu-error")
        elif status.beat_healthy and not status.workers:
            text = 'Add imports += ["celery_catchup.worker"] to your settings, or start a worker.'
            yield Note("No worker with the plugin was seen recently.", text, kind="cu-warn")
        return
    if not fleet.alive:
        text = "No run is executed. Start one:"
        yield Note("No worker answers.", text, kind="cu-error", commands=(celery_line("worker"),))
        return
    for one in fleet.unserved[:_MOST_OF_A_KIND]:
        kind, text = "cu-error" if one.entirely else "cu-warn", one.fix.removesuffix(one.command).strip()
        strong, text = (f"{words[:1].upper()}{words[1:]}" for words in (one.detail, text))
        yield Note(f"{strong}.", text, kind=kind, commands=(one.command,) if one.command else ())
    if fleet.without_plugin and not status.without_plugin:
        text = f'{", ".join(fleet.without_plugin)}: add imports += ["celery_catchup.worker"] to the settings.'
        yield Note("Workers without the plugin do not claim runs.", text, kind="cu-warn")


def _overdue(status: Status) -> Iterator[Note]:
    """Yield notes about entries with slots that have missed their deadline."""
    for name, slots in list(status.overdue.items())[:_MOST_OF_A_KIND]:
        text = "They have not succeeded within expect_within."
        path = ENTRY + query_string(entry=name)
        yield Note(f"{name}: {counted(slots, 'slot')} overdue.", text, "cu-error", path, "Show it")
    if len(status.overdue) > _MOST_OF_A_KIND:
        rest, text = len(status.overdue) - _MOST_OF_A_KIND, f"{command_line('runs', '--overdue')} lists them."
        yield Note(f"{rest:,} more entries have overdue slots.", text, kind="cu-error")


def _stuck(status: Status) -> Iterator[Note]:
    """Yield notes about runs that wait for an approval or a worker, or run far longer than usual."""
    for name, runs in list(status.held.items())[:_MOST_OF_A_KIND]:
        strong = f"{name}: a catch-up of {counted(runs, 'run')} waits for an approval."
        path = ENTRY + query_string(entry=name)
        yield Note(strong, "", kind="cu-warn", path=path, action="Show it", held=(name, runs))
    for run in status.long_running[:_MOST_OF_A_KIND]:
        usual = "" if run.usual is None else f", usually {duration(run.usual)}"
        blocked = f"; {counted(run.blocked, 'slot')} waited for it or were skipped" if run.blocked else ""
        text = f"For {duration(run.running)}{usual}, on {run.worker or 'an unknown worker'}{blocked}."
        path = f"/catchup/run/{run.run_id}"
        yield Note(f"A run of {run.entry} runs far longer.", text, "cu-warn", path, "Show it")
    for queue in [one for one in status.queues if one.waiting >= _LONG][:_MOST_OF_A_KIND]:
        text = f"The oldest, of {queue.oldest_entry}, for {duration(queue.waiting)}; are workers there?"
        strong = f"{counted(queue.runs, 'run')} in queue {queue.queue} wait for a worker."
        yield Note(strong, text, "cu-warn", f"/catchup/run/{queue.oldest_run}", "Show the oldest")
