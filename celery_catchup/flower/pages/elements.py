"""HTML elements of several pages: badges of runs, links of a filter, and buttons that call the HTTP API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import quote

from celery_catchup.flower.markup import Markup, element, join
from celery_catchup.model import RunState, Trigger, task_id
from celery_catchup.operations.dead_letters import DeadLetter
from celery_catchup.operations.runs import Run

LATE = timedelta(seconds=60)
"""A lag from here on is shown in colour."""
TRIGGERS = (Trigger.CATCHUP, Trigger.SCHEDULER, Trigger.BACKFILL, Trigger.MANUAL)
"""In the order of the filters."""
_LONGEST_ERROR = 60


@dataclass(frozen=True, slots=True)
class FilterLink:
    """One link of a filter."""

    words: str
    href: str
    chosen: bool


# -- runs ---------------------------------------------------------------------------------------


def is_late(lag: timedelta | None) -> bool:
    """Whether a lag is shown in colour."""
    return lag is not None and lag >= LATE


def trigger_badge(trigger: Trigger) -> Markup:
    """Write the trigger of a run as a badge."""
    return element("span", trigger.label, class_=f"cu-badge cu-t-{trigger}")


def state_badge(state: str) -> Markup:
    """Write a state in its colour."""
    return element("span", state.capitalize(), class_=f"cu-s-{state}")


def run_state(run: Run) -> Markup:
    """Write the state of a run, and its error if it failed."""
    badge = state_badge(str(run.state))
    error = (run.error or "").strip()
    if not error or not run.state.failed:
        return badge
    line = error.splitlines()[0]
    short = line if len(line) <= _LONGEST_ERROR else f"{line[:_LONGEST_ERROR]}…"
    return join([badge, element("span", short, class_="cu-sub", title=run.error)])


def run_task_id(run: Run) -> str:
    """Return the ID of the task of the latest attempt; empty before the first."""
    return task_id(run.run_id, run.attempt) if run.state is not RunState.WAITING else ""


def dead_letter_error(letter: DeadLetter) -> str:
    """Return the error of a dead letter, with the class of the exception."""
    error, exception = letter.run.error or "", letter.exception or ""
    return error if exception.rpartition(".")[2] in error else f"{exception}: {error}"


# -- buttons ------------------------------------------------------------------------------------


def api_button(
    words: str,
    path: str,
    body: Mapping[str, object] | None = None,
    *,
    label: str | None = None,
    kind: str = "",
    confirm: str | None = None,
    yes: str | None = None,
    done: str | None = None,
    look: str | None = None,
) -> Markup:
    """Write a button for one call of the API, which the page's script makes.

    ``confirm`` is the question before the call and ``yes`` its answer; ``done`` is the message after it.
    """
    return element(
        "button",
        words,
        type="button",
        class_=f"cu-btn {kind}".strip(),
        aria_label=label,
        data_path=path,
        data_body=json.dumps(body or {}),
        data_confirm=confirm,
        data_yes=yes,
        data_done=done,
        data_look=look,
    )


def pause_button(entry: str, paused: bool) -> Markup:  # noqa: FBT001 — templates call it
    """Write the button that pauses an entry, or resumes a paused one."""
    path = f"/schedules/{quote(entry, safe='')}"
    if paused:
        return api_button(
            "Resume",
            f"{path}/resume",
            label=f"Resume {entry}",
            confirm=f"Resume “{entry}”?",
            done=f"“{entry}” is resumed.",
            look="resume",
        )
    done = f"“{entry}” is paused; none of its slots are decided until it is resumed."
    return api_button("Pause", f"{path}/pause", label=f"Pause {entry}", done=done)


def replay_button(run_id: str, *, label: str | None = None, kind: str = "") -> Markup:
    """Write the button that replays a run."""
    return api_button("Replay", "/replay", {"runIds": [run_id]}, label=label, kind=kind)


def discard_button(run_id: str, *, label: str | None = None) -> Markup:
    """Write the button that discards a dead letter."""
    question = "Discard this dead letter? The run stays in the ledger as failed."
    body = {"runIds": [run_id]}
    return api_button("Discard", "/discard", body, label=label, kind="cu-danger", confirm=question)
