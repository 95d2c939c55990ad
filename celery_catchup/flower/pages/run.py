"""``/catchup/run/…``: everything that is known of one run."""

from __future__ import annotations

from celery_catchup.flower.buttons import action
from celery_catchup.flower.drawing.svg import Markup, joined
from celery_catchup.flower.links import Links
from celery_catchup.flower.pages.page import Page, Values
from celery_catchup.flower.views.run import attempt_rows, decided, facts, notes, progress
from celery_catchup.flower.views.runs import state_badge, trigger_badge
from celery_catchup.model import RunState
from celery_catchup.operations import Operator, UnknownRunError
from celery_catchup.operations.dead_letters import DeadLetter, show_dead
from celery_catchup.operations.runs import Run, show_run


class RunPage(Page):
    """One run."""

    template, active, heading = "catchup_run.html", "runs", "Run"

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """The run whose id begins as the address says."""
        found = show_run(operator, path[0])
        run, letter = found.run, _letter(operator, found.run)
        return {
            "heading": f"Run {run.run_id[:8]}",
            "eyebrow": "Run",
            "of": run.entry,
            "run_id": run.run_id,
            "trigger": trigger_badge(run.trigger_type),
            "state": state_badge(str(run.state)),
            "buttons": _buttons(run),
            "attempts": attempt_rows(found),
            "facts": facts(found, link),
            "decided": decided(found),
            "notes": notes(found),
            "progress": progress(found),
            "error": run.error or "" if run.state.failed else "",
            "category": str(letter.category) if letter else "",
            "traceback": (letter.traceback or "") if letter else "",
        }


def _letter(operator: Operator, run: Run) -> DeadLetter | None:
    if run.state is not RunState.DEAD:
        return None
    try:
        return show_dead(operator, run.run_id)
    except UnknownRunError:  # somebody was faster
        return None


def _buttons(run: Run) -> Markup:
    """Replay what has failed; a dead letter can be discarded too."""
    if not run.state.failed:
        return Markup()
    body = {"runIds": [run.run_id]}
    replay = action("Replay", "/replay", body, kind="cu-accent")
    if run.state is not RunState.DEAD:
        return replay
    question = "Discard this dead letter? The run stays in the ledger as failed."
    return joined(
        [replay, Markup(" "), action("Discard", "/discard", body, kind="cu-danger", confirm=question)]
    )
