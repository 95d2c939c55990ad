"""The page of one run: its identity, its attempts, what it kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from celery_catchup.flower.drawing.svg import Markup, element, joined
from celery_catchup.flower.labels import DASH, length, slot, when
from celery_catchup.flower.links import Links
from celery_catchup.flower.views.runs import state_badge
from celery_catchup.operations.runs import Attempt, Checkpoint, Decision, Run, RunDetails, RunInputs
from celery_catchup.store.templates import task_id

_PROGRESS = "progress"
_LONGEST = 4000  # characters of a note on the page; the API has all of it


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt."""

    number: int
    started: Markup
    finished: Markup
    duration: str
    worker: str
    state: Markup
    task_id: str
    error: str


def attempt_rows(found: RunDetails) -> list[AttemptRow]:
    """The attempts, the oldest first; the error that the run ended with is told by the page itself."""
    rows = [_attempt(found.run.run_id, one) for one in found.attempts]
    return [*rows[:-1], *(replace(last, error="") for last in rows[-1:])]


def _attempt(run_id: str, one: Attempt) -> AttemptRow:
    known = one.started_at is not None and one.ended_at is not None
    return AttemptRow(
        number=one.attempt,
        started=when(one.started_at),
        finished=when(one.ended_at),
        duration=length(one.ended_at - one.started_at) if known else DASH,  # type: ignore[operator]
        worker=one.worker or DASH,
        state=state_badge(one.outcome),
        task_id=task_id(run_id, one.attempt),
        error=one.error or "",
    )


def facts(found: RunDetails, link: Links) -> list[tuple[str, Markup]]:
    """Name and value, line by line; what is not known is left out."""
    return [*_identity(found.run, link), *_heartbeat(found), *_inputs(found.inputs)]


def decided(found: RunDetails) -> list[tuple[str, Markup]]:
    """What was decided after a failure, and by which policy, line by line."""
    return [*_decision(found.decision), *_checkpoint(found.last_checkpoint)]


def _heartbeat(found: RunDetails) -> Iterator[tuple[str, Markup]]:
    if found.last_heartbeat is not None:
        yield "Last heartbeat", when(found.last_heartbeat)


def _decision(decision: Decision | None) -> Iterator[tuple[str, Markup]]:
    if decision is None:
        return
    due = decision.next_attempt_at
    yield "Next attempt", joined([f"none, {decision.why}"]) if due is None else when(due)
    yield "Failed attempts", joined([f"{decision.failures} of {decision.max_attempts}"])
    yield "Policy", element("code", decision.policy)


def _checkpoint(checkpoint: Checkpoint | None) -> Iterator[tuple[str, Markup]]:
    if checkpoint is not None:
        noted = [element("code", checkpoint.name), ", noted ", when(checkpoint.noted_at)]
        yield "Last checkpoint", joined(noted)


def _identity(run: Run, link: Links) -> Iterator[tuple[str, Markup]]:
    yield "Entry", element("a", run.entry, href=link.entry(run.entry))
    yield "Task", element("code", run.task)
    yield "Scheduled For", slot(run.scheduled_time)
    if run.data_interval_start is not None:
        interval = [slot(run.data_interval_start), " – ", slot(run.scheduled_time)]
        yield "Data interval", joined(["(", *interval, "]"])
    yield "Decided At", when(run.created_at)
    yield "Queued At", when(run.queued_at)
    yield "Started At", when(run.started_at)
    yield "Lag", joined([length(run.lag)])
    yield "Finished At", when(run.finished_at)
    yield "Duration", joined([length(run.duration)])
    yield "Attempt", joined([str(run.attempt)])
    if run.worker:
        yield "Worker", joined([run.worker])
    if run.backfill:
        yield "Backfill", element("a", run.backfill, href=link("/catchup/backfills"))
    if run.replays:
        yield "Replays", joined([str(run.replays)])
    if run.requested_by:
        yield "Requested by", joined([run.requested_by])
    if run.tenant:
        yield "Tenant", joined([run.tenant])
    if run.logic_version:
        yield "Logic version", joined([run.logic_version])


def _inputs(inputs: RunInputs | None) -> Iterator[tuple[str, Markup]]:
    if inputs is None:
        return
    if inputs.queue:
        yield "Queue", element("code", inputs.queue)
    if not inputs.readable:
        yield "Inputs", joined(["in a form that is not read here"])
        return
    told = [*inputs.args, *(f"{name}={value}" for name, value in inputs.kwargs.items())]
    yield "Inputs", element("code", ", ".join(told)) if told else joined(["none"])


def notes(found: RunDetails) -> list[tuple[str, list[tuple[str, str]]]]:
    """What the task has noted, by kind; progress is drawn instead."""
    return [
        (kind.capitalize(), [(name, _told(value)) for name, value in named.items()])
        for kind, named in sorted(found.notes.items())
        if kind != _PROGRESS and named
    ]


def progress(found: RunDetails) -> Markup:
    """How far the task said it is; nothing when it said nothing."""
    if found.progress is None:
        return Markup()
    done, total = found.progress
    words = f"{done} of {total}" if total else str(done)
    bar = (
        element("progress", class_="cu-bar", max=total, value=done, aria_label="Progress")
        if total
        else Markup()
    )
    return joined([bar, element("span", words, class_="cu-sub")])


def _told(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
