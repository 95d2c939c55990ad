"""Print runs, skipped slots and the details of one run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from celery_catchup.cli.screen import SHORT_ID, Screen, clean, length, precision
from celery_catchup.error_text import shortened
from celery_catchup.model import to_instant, to_rfc3339

if TYPE_CHECKING:
    from celery_catchup.operations.deadlines import Overdue
    from celery_catchup.operations.runs import Attempt, Checkpoint, Decision, Run, RunDetails
    from celery_catchup.operations.skipped_slots import Skipped

_NOTE_LENGTH = 200  # characters of a note; -j prints all of it


def show_runs(screen: Screen, runs: Sequence[Run], *, with_entry: bool) -> None:
    """Print a table with trigger, slot and start side by side, so that late runs stand out."""
    columns: dict[str, list[object]] = {
        "Run ID": [run.run_id[:SHORT_ID] for run in runs],
        "Entry": [run.entry for run in runs],
        "Trigger": [run.trigger_type.label for run in runs],
        "Scheduled For": [run.scheduled_time for run in runs],
        "Started At": [run.started_at for run in runs],
        "Attempt": [run.attempt for run in runs],
        "State": [run.state for run in runs],
    }
    if not with_entry:
        del columns["Entry"]
    if all(run.attempt <= 1 for run in runs):
        del columns["Attempt"]
    rows = zip(*columns.values(), strict=True)
    screen.table(list(columns), rows, timespec=precision(run.scheduled_time for run in runs))


def show_run_line(screen: Screen, run: Run) -> None:
    """Print one run on a line, for lists that grow."""
    started = "-" if run.started_at is None else screen.time(run.started_at)
    screen.out(
        f"{run.run_id[:SHORT_ID]}  {clean(run.entry)}  {run.trigger_type.label}  "
        f"{screen.time(run.scheduled_time)}  {started}  {screen.painted(str(run.state))}"
    )


def show_skips(screen: Screen, found: Sequence[Skipped]) -> None:
    """Print spans of skipped slots, and the command that runs them after all."""
    rows = [(one.entry, one.first, one.last, one.count, _why(one)) for one in found]
    timespec = precision(time for one in found for time in (one.first, one.last))
    screen.table(("Entry", "First", "Last", "Slots", "Reason"), rows, timespec=timespec)
    if found:
        first, last = (to_rfc3339(to_instant(time)) for time in (found[0].first, found[0].last))
        screen.hint(
            "To run the first of them after all", "backfill", found[0].entry, "--start", first, "--end", last
        )


def show_overdue(screen: Screen, found: Sequence[Overdue]) -> None:
    """Print slots that have missed their deadline, and how to run the first that has no run."""
    rows = [
        (
            one.entry,
            one.scheduled_time,
            one.deadline,
            length(one.overdue_for),
            (one.run_id or "")[:SHORT_ID] or None,
            one.state or "no run",
        )
        for one in found
    ]
    timespec = precision(time for one in found for time in (one.scheduled_time, one.deadline))
    head = ("Entry", "Scheduled For", "Deadline", "Overdue For", "Run ID", "State")
    screen.table(head, rows, timespec=timespec)
    for one in [one for one in found if one.run_id is None][:1]:
        slot = to_rfc3339(to_instant(one.scheduled_time))
        screen.hint("To run the first without a run", "backfill", one.entry, "--start", slot, "--end", slot)


def _why(one: Skipped) -> str:
    more = [] if one.run_id is None else [one.run_id[:SHORT_ID]]
    more += [f"{one.recovered} ran since"] if one.recovered else []
    return f"{one.reason} ({', '.join(more)})" if more else str(one.reason)


def show_run_facts(screen: Screen, run: Run) -> None:
    """Print one run, line by line."""
    screen.facts(
        (
            ("Run ID", run.run_id),
            ("Entry", run.entry),
            ("Task", run.task),
            ("State", run.state),
            ("Trigger", run.trigger_type.label),
            ("Scheduled For", run.scheduled_time),
            ("Data interval from", run.data_interval_start),
            ("Stands for", f"{run.slots} slots" if run.slots > 1 else None),
            ("Decided At", run.created_at),
            ("Queued At", run.queued_at),
            ("Started At", run.started_at),
            ("Lag", run.lag),
            ("Overdue since", run.deadline),
            ("Finished At", run.finished_at),
            ("Duration", run.duration),
            ("Attempt", run.attempt),
            ("Worker", run.worker),
            ("Error", run.error),
            ("Backfill", run.backfill),
            ("Replays", run.replays or None),
            ("Requested by", run.requested_by),
            ("Tenant", run.tenant),
            ("Logic version", run.logic_version),
        )
    )


def decision_facts(decision: Decision | None) -> Iterator[tuple[str, object]]:
    """Yield what was decided about a failed run, and by which policy."""
    if decision is not None:
        yield "Policy", decision.policy
        yield "Failed attempts", f"{decision.failures} of {decision.max_attempts}"
        yield "Next attempt", decision.next_attempt_at or f"none, {decision.why}"


def checkpoint_facts(checkpoint: Checkpoint | None) -> Iterator[tuple[str, object]]:
    """Yield the last checkpoint of the task."""
    if checkpoint is not None:
        yield "Last checkpoint", f"{checkpoint.name} = {_shortened(checkpoint.value)}"
        yield "Noted At", checkpoint.noted_at


def show_attempts(screen: Screen, attempts: Sequence[Attempt]) -> None:
    """Print how each attempt ended, and its task's id in Celery."""
    for one in attempts:
        started = screen.time(one.started_at) if one.started_at else None
        parts = (one.outcome, started, one.worker, one.error, f"task id {one.task_id}")
        screen.facts([(f"Attempt {one.attempt}", ", ".join(text for text in parts if text))])


def show_notes(screen: Screen, found: RunDetails) -> None:
    """Print the task's notes; long values are cut."""
    if found.progress is not None:
        done, total = found.progress
        screen.facts([("Progress", f"{done} of {total}" if total else done)])
    for kind, named in sorted(found.notes.items()):
        for name, value in named.items() if kind != "progress" else ():
            screen.facts([(f"{kind.capitalize()}, {name}", _shortened(value))])


def _shortened(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return shortened(text, _NOTE_LENGTH)
