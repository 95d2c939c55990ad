"""Runs and skips on the screen."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from celery_catchup.cli.screen import SHORT_ID, Screen, clean, length, moment, precision, stamp

if TYPE_CHECKING:
    from celery_catchup.operations.runs import Attempt, Checkpoint, Decision, Run, RunDetails, Skipped

_NOTE_LENGTH = 200  # characters of a note on the screen; -j has all of it


def show_table(screen: Screen, runs: Sequence[Run], *, with_entry: bool) -> None:
    """Trigger, slot and start side by side, so that lateness is seen at a glance."""
    form = precision(run.scheduled_time for run in runs)
    tried = any(run.attempt > 1 for run in runs)
    head = ["Run ID", "Entry", "Trigger", "Scheduled For", "Started At", "Attempt", "State"]
    rows = [
        [
            run.run_id[:SHORT_ID],
            run.entry,
            run.trigger_type.label,
            moment(run.scheduled_time, form),
            moment(run.started_at, form),
            run.attempt,
            str(run.state),
        ]
        for run in runs
    ]
    left_out = {1} if not with_entry else set()
    left_out |= {5} if not tried else set()
    kept = [index for index in range(len(head)) if index not in left_out]
    screen.table([head[i] for i in kept], [[row[i] for i in kept] for row in rows])


def show_skips(screen: Screen, found: Sequence[Skipped]) -> None:
    """Spans of slots, and how to run them all the same."""
    form = precision([*(one.first for one in found), *(one.last for one in found)])
    head = ("Entry", "First", "Last", "Slots", "Reason")
    rows = [
        (one.entry, moment(one.first, form), moment(one.last, form), one.count, str(one.reason))
        for one in found
    ]
    screen.table(head, rows)
    if found:
        one = found[0]
        between = f"--start {stamp(one.first)} --end {stamp(one.last)}"
        screen.note(f"Run the first of them all the same: celery catchup backfill {one.entry} {between}")


def show_facts(screen: Screen, run: Run) -> None:
    """One run, line by line."""
    screen.facts(
        (
            ("Run ID", run.run_id),
            ("Entry", run.entry),
            ("Task", run.task),
            ("State", str(run.state)),
            ("Trigger", run.trigger_type.label),
            ("Scheduled For", stamp(run.scheduled_time)),
            ("Data interval from", stamp(run.data_interval_start)),
            ("Decided At", stamp(run.created_at)),
            ("Queued At", stamp(run.queued_at)),
            ("Started At", stamp(run.started_at)),
            ("Lag", None if run.lag is None else length(run.lag)),
            ("Finished At", stamp(run.finished_at)),
            ("Duration", None if run.duration is None else length(run.duration)),
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


def decision_facts(decision: Decision | None) -> Iterator[tuple[str, str | None]]:
    """What was decided about a run that failed, and by which policy."""
    if decision is not None:
        yield "Policy", decision.policy
        yield "Failed attempts", f"{decision.failures} of {decision.max_attempts}"
        yield "Next attempt", stamp(decision.next_attempt_at) or f"none, {decision.why}"


def checkpoint_facts(checkpoint: Checkpoint | None) -> Iterator[tuple[str, str | None]]:
    """The checkpoint that the task has noted last."""
    if checkpoint is not None:
        yield "Last checkpoint", f"{checkpoint.name} = {_shortened(checkpoint.value)}"
        yield "Noted At", stamp(checkpoint.noted_at)


def show_attempts(screen: Screen, attempts: Sequence[Attempt]) -> None:
    """What became of each attempt, where there are several."""
    for one in attempts if len(attempts) > 1 else ():
        told = (one.outcome, stamp(one.started_at), one.worker, one.error)
        screen.facts([(f"Attempt {one.attempt}", ", ".join(text for text in told if text))])


def show_notes(screen: Screen, found: RunDetails) -> None:
    """What the task has noted; of long values the beginning."""
    if found.progress is not None:
        done, total = found.progress
        screen.facts([("Progress", f"{done} of {total}" if total else done)])
    for kind, named in sorted(found.notes.items()):
        for name, value in named.items() if kind != "progress" else ():
            screen.facts([(f"{kind.capitalize()}, {name}", _shortened(value))])


def _shortened(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _NOTE_LENGTH else f"{text[:_NOTE_LENGTH]}…"


def line_of(screen: Screen, run: Run) -> str:
    """One run on a line of its own, for lists that grow."""
    return (
        f"{run.run_id[:SHORT_ID]}  {clean(run.entry)}  {run.trigger_type.label}  "
        f"{moment(run.scheduled_time)}  {moment(run.started_at)}  {screen.painted(str(run.state))}"
    )
