"""Rows of runs, and of slots that became none."""

from __future__ import annotations

from dataclasses import dataclass

from celery_catchup.flower.drawing.svg import Markup, element
from celery_catchup.flower.labels import DASH, counted, is_late, length, slot, when
from celery_catchup.model import RunState, Severity, SkipReason, Trigger
from celery_catchup.operations.runs import Run, Skipped
from celery_catchup.store.templates import task_id

SHORT = 8
"""Characters of a run's id that a table shows."""

TRIGGERS = (Trigger.CATCHUP, Trigger.SCHEDULER, Trigger.BACKFILL, Trigger.MANUAL)
"""In the order of the filters."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """One line of a table of runs; slots that became no run have no ``run_id``."""

    key: str
    run_id: str
    short: str
    entry: str
    trigger: Markup
    scheduled: Markup
    started: Markup
    lag: str
    late: bool
    duration: str
    attempt: str
    state: Markup
    task_id: str


def run_row(run: Run) -> RunRow:
    """A run."""
    sent = run.state is not RunState.WAITING
    return RunRow(
        key=run.run_id,
        run_id=run.run_id,
        short=run.run_id[:SHORT],
        entry=run.entry,
        trigger=trigger_badge(run.trigger_type),
        scheduled=slot(run.scheduled_time),
        started=when(run.started_at),
        lag=length(run.lag),
        late=is_late(run.lag),
        duration=length(run.duration),
        attempt=str(run.attempt),
        state=state_of(run),
        task_id=task_id(run.run_id, run.attempt) if sent else "",
    )


def skip_row(one: Skipped) -> RunRow:
    """Slots that were decided not to run."""
    first, last = slot(one.first), slot(one.last)
    many = Markup(f"{first} – {last}") if one.count > 1 else first
    missed = one.reason in SkipReason.of(Severity.LOST)
    words = "missed" if missed else "skipped"
    told = [element("span", words.capitalize(), class_=f"cu-s-{words}"), _reason(str(one.reason))]
    if one.count > 1:
        told.append(element("span", f" {counted(one.count, 'slot')}", class_="cu-muted cu-small"))
    return RunRow(
        key=f"{one.entry} {one.first} {one.reason}",
        run_id="",
        short="",
        entry=one.entry,
        trigger=element("span", DASH, class_="cu-none"),
        scheduled=many,
        started=when(None),
        lag=DASH,
        late=False,
        duration=DASH,
        attempt=DASH,
        state=Markup("".join(told)),
        task_id="",
    )


def trigger_badge(trigger: Trigger) -> Markup:
    """Why a run exists, as a badge."""
    return element("span", trigger.label, class_=f"cu-badge cu-t-{trigger}")


def state_badge(state: str) -> Markup:
    """A state in its colour."""
    return element("span", state.capitalize(), class_=f"cu-s-{state}")


def state_of(run: Run) -> Markup:
    """The state, and the error where there is one."""
    told = [state_badge(str(run.state))]
    if run.error and run.state.failed:
        told.append(element("span", _cut(run.error), class_="cu-sub", title=run.error))
    return Markup("".join(told))


def _reason(reason: str) -> Markup:
    return element("span", f" ({reason})", class_="cu-muted cu-small")


def _cut(text: str, most: int = 60) -> str:
    line = text.strip().splitlines()[0] if text.strip() else ""
    return line if len(line) <= most else f"{line[:most]}…"
