"""``/catchup/run/…``: one run: its identity, its attempts, its error and its notes."""

from __future__ import annotations

import json
from collections.abc import Iterator

from celery_catchup.flower.markup import Markup, duration, element, join, slot_time, timestamp
from celery_catchup.flower.pages.elements import discard_button, replay_button
from celery_catchup.flower.pages.page import BACKFILLS, Links, Page, Values
from celery_catchup.model import RunState
from celery_catchup.operations import Operator, UnknownRunError
from celery_catchup.operations.dead_letters import DeadLetter, show_dead
from celery_catchup.operations.runs import Checkpoint, Decision, Run, RunDetails, RunInputs, show_run
from celery_catchup.store.templates import task_id

_LONGEST_NOTE = 4000
"""Characters of a note on the page; the API has all of it."""

Facts = Iterator[tuple[str, Markup]]


class RunPage(Page):
    """One run."""

    template, active, heading = "catchup_run.html", "runs", "Run"

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """Read the run whose ID, or a unique prefix of it, is in the path."""
        found = show_run(operator, path[0])
        run, letter = found.run, _dead_letter(operator, found.run)
        return {
            "heading": f"Run {run.run_id[:8]}",
            "of": run.entry,
            "run": run,
            "buttons": _buttons(run),
            "attempts": found.attempts,
            "task_id": task_id,
            "facts": [*_identity(run, link), *_heartbeat(found), *_inputs(found.inputs)],
            "decision": [*_decision(found.decision), *_checkpoint(found.last_checkpoint)],
            "notes": _notes(found),
            "progress": _progress(found),
            "error": run.error if run.state.failed else "",
            "letter": letter,
        }


def _dead_letter(operator: Operator, run: Run) -> DeadLetter | None:
    if run.state is not RunState.DEAD:
        return None
    try:
        return show_dead(operator, run.run_id)
    except UnknownRunError:  # replayed or discarded in the meantime
        return None


def _buttons(run: Run) -> Markup:
    if not run.state.failed:
        return Markup()
    replay = replay_button(run.run_id, kind="cu-accent")
    return join([replay, " ", discard_button(run.run_id)]) if run.state is RunState.DEAD else replay


def _identity(run: Run, link: Links) -> Facts:
    yield "Entry", element("a", run.entry, href=link.entry(run.entry))
    yield "Task", element("code", run.task)
    yield "Scheduled For", slot_time(run.scheduled_time)
    if run.data_interval_start is not None:
        interval = ["(", slot_time(run.data_interval_start), " – ", slot_time(run.scheduled_time), "]"]
        yield "Data interval", join(interval)
    yield "Decided At", timestamp(run.created_at)
    yield "Queued At", timestamp(run.queued_at)
    yield "Started At", timestamp(run.started_at)
    yield "Lag", join([duration(run.lag)])
    yield "Finished At", timestamp(run.finished_at)
    yield "Duration", join([duration(run.duration)])
    yield "Attempt", join([str(run.attempt)])
    if run.backfill:
        yield "Backfill", element("a", run.backfill, href=link(BACKFILLS))
    for name, value in (
        ("Worker", run.worker),
        ("Replays", run.replays),
        ("Requested by", run.requested_by),
        ("Tenant", run.tenant),
        ("Logic version", run.logic_version),
    ):
        if value:
            yield name, join([str(value)])


def _heartbeat(found: RunDetails) -> Facts:
    if found.last_heartbeat is not None:
        yield "Last heartbeat", timestamp(found.last_heartbeat)


def _inputs(inputs: RunInputs | None) -> Facts:
    if inputs is None:
        return
    if inputs.queue:
        yield "Queue", element("code", inputs.queue)
    if not inputs.readable:
        yield "Inputs", join(["serialised in a form that Flower does not decode"])
        return
    listed = [*inputs.args, *(f"{name}={value}" for name, value in inputs.kwargs.items())]
    yield "Inputs", element("code", ", ".join(listed)) if listed else join(["none"])


def _decision(decision: Decision | None) -> Facts:
    if decision is None:
        return
    due = decision.next_attempt_at
    yield "Next attempt", join([f"none, {decision.why}"]) if due is None else timestamp(due)
    yield "Failed attempts", join([f"{decision.failures} of {decision.max_attempts}"])
    yield "Policy", element("code", decision.policy)


def _checkpoint(checkpoint: Checkpoint | None) -> Facts:
    if checkpoint is not None:
        noted = [element("code", checkpoint.name), ", noted ", timestamp(checkpoint.noted_at)]
        yield "Last checkpoint", join(noted)


def _notes(found: RunDetails) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the notes of the task by kind; progress has its own drawing."""
    return [
        (kind.capitalize(), [(name, _note(value)) for name, value in notes.items()])
        for kind, notes in sorted(found.notes.items())
        if kind != "progress" and notes
    ]


def _note(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return text if len(text) <= _LONGEST_NOTE else f"{text[:_LONGEST_NOTE]}…"


def _progress(found: RunDetails) -> Markup:
    if found.progress is None:
        return Markup()
    done, total = found.progress
    if not total:
        return element("span", str(done), class_="cu-sub")
    bar = element("progress", class_="cu-bar", max=total, value=done, aria_label="Progress")
    return join([bar, element("span", f"{done} of {total}", class_="cu-sub")])
