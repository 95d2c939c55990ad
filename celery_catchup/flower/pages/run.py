"""``/catchup/run/…``: one run: its identity, its attempts, its error and its notes."""

from __future__ import annotations

import json

from celery_catchup.flower.pages.page import Links, Page, Values
from celery_catchup.model import RunState, task_id
from celery_catchup.operations import Operator, UnknownRunError
from celery_catchup.operations.dead_letters import DeadLetter, show_dead
from celery_catchup.operations.runs import Run, RunDetails, show_run

_LONGEST_NOTE = 4000
"""Characters of a note on the page; the API has all of it."""


class RunDetailsPage(Page):
    """One run."""

    template, active, heading = "catchup_run.html", "runs", "Run"

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """Read the run whose ID, or a unique prefix of it, is in the path."""
        found = show_run(operator, path[0])
        return {
            "heading": f"Run {found.run.run_id[:8]}",
            "of": found.run.entry,
            "details": found,
            "run": found.run,
            "letter": _dead_letter(operator, found.run),
            "notes": _notes(found),
            "task_id": task_id,
        }


def _dead_letter(operator: Operator, run: Run) -> DeadLetter | None:
    if run.state is not RunState.DEAD:
        return None
    try:
        return show_dead(operator, run.run_id)
    except UnknownRunError:  # replayed or discarded in the meantime
        return None


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
