"""Rows of dead letters."""

from __future__ import annotations

from dataclasses import dataclass

from celery_catchup.flower.drawing.svg import Markup
from celery_catchup.flower.labels import slot, when
from celery_catchup.flower.views.runs import SHORT
from celery_catchup.operations.dead_letters import DeadLetter


@dataclass(frozen=True, slots=True)
class DeadRow:
    """One dead letter."""

    run_id: str
    short: str
    entry: str
    scheduled: Markup
    died: Markup
    attempt: int
    category: str
    error: str
    why: str


def dead_row(letter: DeadLetter) -> DeadRow:
    """A dead letter."""
    run = letter.run
    told = run.error or ""
    kind = letter.exception or ""
    return DeadRow(
        run_id=run.run_id,
        short=run.run_id[:SHORT],
        entry=run.entry,
        scheduled=slot(run.scheduled_time),
        died=when(letter.died_at),
        attempt=run.attempt,
        category=str(letter.category),
        error=told if kind.rpartition(".")[2] in told else f"{kind}: {told}",
        why="" if letter.decision is None else letter.decision.why,
    )
