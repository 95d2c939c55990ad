"""``/catchup/run/…``: one run: its identity, its attempts, its error and its notes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import quote

from celery_catchup.error_text import shortened
from celery_catchup.flower import host
from celery_catchup.flower.markup import Markup, duration, element, join, percent, written
from celery_catchup.flower.pages.explanations import explain
from celery_catchup.flower.pages.page import Links, Page, Values
from celery_catchup.model import RunState
from celery_catchup.operations import Operator, UnknownRunError
from celery_catchup.operations.dead_letters import DeadLetter, show_dead
from celery_catchup.operations.runs import Attempt, Run, RunDetails, show_run

_LONGEST_NOTE = 4000
"""Characters of a note on the page; the API has all of it."""


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """An attempt, whether Flower still has its task, and the URL of its log or ""."""

    attempt: Attempt
    in_flower: bool
    log: str


class RunDetailsPage(Page):
    """One run."""

    template, active, heading = "catchup_run.html", "runs", "Run"

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """Read the run whose ID, or a unique prefix of it, is in the path."""
        found, now = show_run(operator, path[0]), self.times.now
        run, template = found.run, operator.configuration.settings.log_url
        running = run.state is RunState.RUNNING and run.started_at is not None
        return {
            "heading": f"Run {run.run_id[:8]}",
            "of": run.entry,
            "details": found,
            "run": run,
            "attempts": [self._row(run, one, template) for one in found.attempts],
            "elapsed": now - run.started_at if running and run.started_at else None,
            "bar": _bar(run, now),
            "letter": _dead_letter(operator, run),
            "explanation": explain(operator, run.entry, run.scheduled_time, self.times, run_id=run.run_id),
            "notes": _notes(found),
        }

    def _row(self, run: Run, one: Attempt, template: str | None) -> AttemptRow:
        log = "" if template is None else _log_url(template, run, one)
        return AttemptRow(one, host.knows_task(self.application, one.task_id), log)


def _log_url(template: str, run: Run, one: Attempt) -> str:
    fields = {
        "run_id": run.run_id,
        "task_id": one.task_id,
        "entry": run.entry,
        "worker": one.worker or "",
        "attempt": str(one.attempt),
        "started": written(one.started_at) if one.started_at else "",
        "ended": written(one.ended_at) if one.ended_at else "",
    }
    return template.format(**{name: quote(value, safe="") for name, value in fields.items()})


def _dead_letter(operator: Operator, run: Run) -> DeadLetter | None:
    if run.state is not RunState.DEAD:
        return None
    try:
        return show_dead(operator, run.run_id)
    except UnknownRunError:  # replayed or discarded in the meantime
        return None


# -- the bar ------------------------------------------------------------------------------------


def _bar(run: Run, now: datetime) -> Markup:
    """Draw where the time went between the slot and the end: waiting, in the queue, running."""
    parts = list(_parts(run, now))
    total = sum((length for _, _, length in parts), timedelta())
    if not total:
        return Markup("")
    shapes, left = [], 0.0
    for kind, words, length in parts:
        share = length / total
        title = element("title", f"{words} {duration(length)}")
        shapes.append(
            element(
                "rect", title, x=percent(left), width=percent(share), height=12, class_=f"cu-part cu-{kind}"
            )
        )
        left += share
    words = " · ".join(f"{words} {duration(length)}" for _, words, length in parts)
    svg = element("svg", *shapes, class_="cu-attempt", height=12, width="100%", aria_hidden="true")
    return join([svg, element("p", words, class_="cu-sub")])


def _parts(run: Run, now: datetime) -> Iterator[tuple[str, str, timedelta]]:
    """Yield the kind, the words and the length of each part; a part that has not ended lasts until now."""
    ended = None if run.state.in_flight else run.finished_at
    times = [
        ("skipped", "waited", run.scheduled_time, run.queued_at),
        ("in_flight", "in the queue", run.queued_at, run.started_at),
        ("failed" if run.state.failed else "on_time", "ran", run.started_at, ended),
    ]
    for kind, words, since, until in times:
        if since is None:
            return
        yield kind, words, max(timedelta(), (until or now) - since)
        if until is None:
            return


# -- notes --------------------------------------------------------------------------------------


def _notes(found: RunDetails) -> list[tuple[str, list[tuple[str, Markup]]]]:
    """Return the notes of the task by kind; progress has its own drawing."""
    return [
        (kind.capitalize(), [(name, _note(value)) for name, value in notes.items()])
        for kind, notes in sorted(found.notes.items())
        if kind != "progress" and notes
    ]


def _note(value: object) -> Markup:
    """Write a note; an address becomes a link."""
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    if text.startswith(("https://", "http://")) and len(text.split()) == 1:
        return element("a", text, href=text, rel="noreferrer noopener", target="_blank")
    return element("pre", shortened(text, _LONGEST_NOTE), class_="cu-pre")
