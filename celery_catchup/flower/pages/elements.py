"""HTML elements of several pages: badges of runs, links of a filter, and buttons that call the HTTP API."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import quote

from celery_catchup.error_text import counted, shortened
from celery_catchup.flower.markup import Markup, duration, element, join
from celery_catchup.model import RunState, Trigger, task_id
from celery_catchup.operations.backfills import BackfillView
from celery_catchup.operations.entries import EntryQueue
from celery_catchup.operations.runs import Run

LATE = timedelta(seconds=60)
"""A lag from here on is shown in colour."""
TRIGGERS = (Trigger.CATCHUP, Trigger.SCHEDULER, Trigger.BACKFILL, Trigger.MANUAL)
"""In the order of the filters."""
_LONGEST_ERROR = 60
_SEPARATORS = re.compile(r"(?<=[/:._-])")


@dataclass(frozen=True, slots=True)
class FilterLink:
    """One link of a filter."""

    words: str
    href: str
    chosen: bool


# -- runs ---------------------------------------------------------------------------------------


def breakable(name: str) -> Markup:
    """Write a name that may be broken after its separators, and not in the middle of a word."""
    parts = _SEPARATORS.split(name)
    return join(part for one in parts for part in (one, Markup("<wbr>")))


def with_code(text: str) -> Markup:
    """Write a text whose parts between backticks are code."""
    return join(element("code", part) if index % 2 else part for index, part in enumerate(text.split("`")))


def is_late(lag: timedelta | None) -> bool:
    """Whether a lag is shown in colour."""
    return lag is not None and lag >= LATE


def trigger_badge(trigger: Trigger) -> Markup:
    """Write the trigger of a run as a badge."""
    return element("span", trigger.label, class_=f"cu-badge cu-t-{trigger}")


def state_badge(state: str) -> Markup:
    """Write a state in its colour."""
    return element("span", state.capitalize(), class_=f"cu-s-{state}")


def run_state(run: Run, progress: tuple[float, float | None] | None = None) -> Markup:
    """Write the state of a run, its progress while it is running, and its error if it failed."""
    badge = state_badge(str(run.state))
    if progress is not None:
        done, total = progress
        words = f"{done:g} done" if not total else f"{done:g} of {total:g}"
        return join([badge, element("span", words, class_="cu-sub")])
    error = (run.error or "").strip()
    if not error or not run.state.failed:
        return badge
    short = shortened(error.splitlines()[0], _LONGEST_ERROR)
    return join([badge, element("span", short, class_="cu-sub", title=run.error)])


def run_task_id(run: Run) -> str:
    """Return the ID of the task of the latest attempt; empty before the first."""
    return task_id(run.run_id, run.attempt) if run.state is not RunState.WAITING else ""


def short_task_id(task: str) -> str:
    """Shorten the ID of a task to the beginning of its run's, and the number of its attempt if it has one."""
    return task[:8] + task[36:]


# -- buttons ------------------------------------------------------------------------------------


def api_button(
    words: str,
    path: str,
    body: Mapping[str, object] | None = None,
    *,
    why: str | None = None,
    label: str | None = None,
    kind: str = "",
    confirm: str | None = None,
    yes: str | None = None,
    done: str | None = None,
    then: str | None = None,
    **more: str | None,
) -> Markup:
    """Write a button for one call of the API, which the page's script makes.

    ``why`` is the reason why it may not be pressed, which it shows instead. ``confirm`` is the question
    before the call and ``yes`` its answer; ``done`` is the message after it, ``then`` the page that follows.
    """
    style = f"cu-btn {kind}".strip()
    if why:
        return element(
            "button", words, type="button", class_=style, aria_label=label, aria_disabled="true", title=why
        )
    return element(
        "button",
        words,
        type="button",
        class_=style,
        aria_label=label,
        data_path=path,
        data_body=json.dumps(body or {}),
        data_confirm=confirm,
        data_yes=yes,
        data_done=done,
        data_then=then,
        **more,
    )


def pause_button(entry: str, paused: bool, why: str | None) -> Markup:  # noqa: FBT001 — templates call it
    """Write the button that pauses an entry, or resumes a paused one."""
    path = f"/schedules/{quote(entry, safe='')}"
    if paused:
        return api_button(
            "Resume",
            f"{path}/resume",
            why=why,
            label=f"Resume {entry}",
            confirm=f"Resume “{entry}”?",
            done=f"“{entry}” is resumed.",
            data_look="resume",
        )
    return api_button(
        "Pause",
        f"{path}/pause",
        why=why,
        label=f"Pause {entry}",
        confirm=f"Pause “{entry}”? None of its slots are decided until it is resumed.",
        done=f"“{entry}” is paused; none of its slots are decided until it is resumed.",
        data_reason="yes",
    )


def held_buttons(entry: str, runs: int, why: str | None) -> Markup:
    """Write the buttons that run or skip a catch-up which waits for an approval."""
    path, words = f"/schedules/{quote(entry, safe='')}", counted(runs, "run")
    return join(
        [
            api_button(
                "Approve…",
                f"{path}/approve",
                why=why,
                label=f"Approve the catch-up of {entry}",
                confirm=f"Run the catch-up of “{entry}”? It has {words}.",
                yes=f"Run {words}",
                done=f"The catch-up of “{entry}” is approved.",
            ),
            " ",
            api_button(
                "Discard…",
                f"{path}/discard",
                why=why,
                label=f"Discard the catch-up of {entry}",
                confirm=f"Skip the missed slots of “{entry}”? They are recorded as discarded; new slots run.",
                yes="Skip them",
                done=f"The missed slots of “{entry}” are skipped.",
            ),
        ]
    )


def run_button(entry: str, why: str | None) -> Markup:
    """Write the button that starts a run of an entry now."""
    return api_button(
        "Run now",
        "/runs",
        {"entry": entry},
        why=why,
        label=f"Run now: {entry}",
        confirm=f"Start a run of “{entry}” now?",
        done=f"A run of “{entry}” is started.",
        data_look="run",
    )


def worker_words(queue: EntryQueue) -> str:
    """Write whether workers consume a queue."""
    if queue.seen is None:
        words = "no worker with the plugin has consumed it"
    else:
        words = f"a worker was seen {duration(queue.seen)} ago"
    without = f"; without the plugin: {', '.join(queue.without_plugin)}" if queue.without_plugin else ""
    return f": {words}{without}"


def backfill_words(one: BackfillView) -> str:
    """Write the progress of a backfill in numbers that add up."""
    parts = [f"{one.sent:,} of {one.total - one.skipped:,} sent"]
    parts += [f"{one.waiting:,} waiting"] if one.waiting else []
    parts += [f"{one.skipped:,} skipped"] if one.skipped else []
    return ", ".join(parts)


def backfill_buttons(one: BackfillView, why: str | None) -> Markup:
    """Write the buttons that pause, resume and cancel a backfill."""
    if one.ended:
        return Markup("")
    path, name = f"/backfills/{one.id}", f"backfill {one.id}"
    verb = "Resume" if one.state == "paused" else "Pause"
    done = f"The backfill is {verb.lower()}d."
    first = api_button(verb, f"{path}/{verb.lower()}", why=why, label=f"{verb} {name}", done=done)
    cancel = api_button(
        "Cancel",
        f"{path}/cancel",
        why=why,
        label=f"Cancel {name}",
        kind="cu-danger",
        confirm=f"Cancel backfill {one.id}? {one.total - one.handled:,} of its slots will not run.",
        yes="Cancel the backfill",
        done="The backfill is cancelled.",
    )
    return join([first, Markup(" "), cancel])


def run_buttons(run: Run, why: str | None) -> Markup:
    """Write the buttons for what can be done with a run in its state."""
    path, buttons = f"/runs/{run.run_id}", []
    if run.state is RunState.QUEUED:
        buttons.append(
            api_button(
                "Send again",
                f"{path}/resend",
                why=why,
                confirm="Send the message of this run again? Workers with the plugin execute the run once.",
                done="The message was sent again.",
            )
        )
    if run.state.in_flight:
        running = run.state is RunState.RUNNING
        question = f"End the run of “{run.entry}”? It is recorded as revoked, and its chain goes on."
        kill = "\nThe process that executes it is killed." if running else ""
        buttons.append(
            api_button(
                "End it…",
                f"{path}/cancel",
                {"terminate": True} if running else {},
                why=why,
                kind="cu-danger",
                confirm=question + kill,
                yes="Kill and end it" if running else "End it",
                done="The run is being ended." if running else "The run is cancelled.",
            )
        )
    if run.state.failed:
        buttons.append(replay_button(run.run_id, why, kind="cu-accent"))
    if run.state is RunState.DEAD:
        buttons.append(discard_button(run.run_id, why))
    return join(part for one in buttons for part in (one, Markup(" ")))


def replay_button(run_id: str, why: str | None, *, label: str | None = None, kind: str = "") -> Markup:
    """Write the button that replays a run."""
    return api_button("Replay", "/runs/replay", {"runIds": [run_id]}, why=why, label=label, kind=kind)


def discard_button(run_id: str, why: str | None, *, label: str | None = None) -> Markup:
    """Write the button that discards a dead letter."""
    return api_button(
        "Discard",
        "/runs/discard",
        {"runIds": [run_id]},
        why=why,
        label=label,
        kind="cu-danger",
        confirm="Discard this dead letter? The run stays in the ledger as failed.",
    )
