"""``celery catchup runs``: what ran, for which slot, how late."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from celery_catchup.cli.command import Moment, entries_argument, json_option, option, refuse_usage, verb
from celery_catchup.cli.groups import DefaultGroup
from celery_catchup.cli.run_tables import (
    checkpoint_facts,
    decision_facts,
    line_of,
    show_attempts,
    show_facts,
    show_notes,
    show_skips,
    show_table,
)
from celery_catchup.cli.screen import Screen, stamp

if TYPE_CHECKING:
    from celery_catchup.operations import Operator

_TRIGGERS = ["scheduler", "catchup", "backfill", "manual"]
_STATES = ["waiting", "queued", "running", "succeeded", "failed", "revoked", "dead"]
_SKIPPED = "skipped"
_POLL = 1.0  # seconds between two looks of --follow


@click.group("runs", cls=DefaultGroup, default="list", short_help="What ran, for which slot, how late.")
def command() -> None:
    """Runs, the newest slot first: why each exists, for which slot, when it started, how it ended.

    --state skipped lists the slots that were decided not to run, and the reason. The first
    characters of an id are enough to ask for a run.
    """


@verb("list", hidden=True)
@entries_argument()
@option(
    "--trigger", "triggers", group="Which", type=click.Choice(_TRIGGERS), multiple=True, help="Why it ran."
)
@option(
    "--state",
    "states",
    group="Which",
    type=click.Choice([*_STATES, _SKIPPED]),
    multiple=True,
    help="Where it is in its life.",
)
@option(
    "--since",
    group="Which",
    type=Moment(since=True),
    metavar="TIME",
    help="Slots from then on: a time, or how long ago, such as 6h.",
)
@option(
    "--limit",
    group="Which",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="At most so many.",
)
@option("--follow", group="Output", is_flag=True, help="Go on: print each run when it changes.")
@json_option
def listed(
    operator: Operator,
    screen: Screen,
    *,
    entries: tuple[str, ...],
    triggers: tuple[str, ...],
    states: tuple[str, ...],
    since: datetime | None,
    limit: int,
    follow: bool,
    as_json: bool,
) -> None:
    """Runs, the newest slot first."""
    if _SKIPPED in states:
        if len(states) > 1 or triggers or follow:
            raise refuse_usage(
                "--state skipped stands alone: what did not run has no trigger and does not change"
            )
        _list_skips(operator, screen, entries, since, limit, as_json=as_json)
        return
    wanted = {"entries": entries, "triggers": triggers, "states": states, "since": since, "limit": limit}
    if follow:
        _follow(operator, screen, wanted, as_json=as_json)
    else:
        _list_runs(operator, screen, wanted, as_json=as_json)


@verb("show", short_help="Everything that is known of one run.")
@click.argument("run_id", metavar="RUN")
@json_option
def shown(operator: Operator, screen: Screen, *, run_id: str, as_json: bool) -> None:
    """Everything that is known of one run. The first characters of its id are enough."""
    from celery_catchup.operations.runs import show_run

    found = show_run(operator, run_id)
    if as_json:
        screen.json(found)
    else:
        show_facts(screen, found.run)
        screen.facts(
            (
                ("Last heartbeat", stamp(found.last_heartbeat)),
                *decision_facts(found.decision),
                *checkpoint_facts(found.last_checkpoint),
            )
        )
        show_attempts(screen, found.attempts)
        show_notes(screen, found)


command.add_command(listed, "list")
command.add_command(shown, "show")


def _list_runs(operator: Operator, screen: Screen, wanted: dict[str, Any], *, as_json: bool) -> None:

    found = _ask(operator, wanted)
    if as_json:
        screen.json(found)
        return
    show_table(screen, found.runs, with_entry=len(wanted["entries"]) != 1)
    if found.cursor is not None:
        screen.note(f"There are more: --limit {wanted['limit'] * 2}, or a narrower question.")
    if not found.runs:
        screen.note("No such runs.")


def _ask(operator: Operator, wanted: dict[str, Any]) -> Any:
    from celery_catchup.model import RunState, Trigger
    from celery_catchup.operations.runs import list_runs

    return list_runs(
        operator,
        wanted["entries"],
        triggers=map(Trigger, wanted["triggers"]),
        states=map(RunState, wanted["states"]),
        since=wanted["since"],
        limit=wanted["limit"],
    )


def _follow(operator: Operator, screen: Screen, wanted: dict[str, Any], *, as_json: bool) -> None:
    """Print each run that is new or has changed, the oldest first, until somebody has seen enough."""

    known: dict[str, tuple[str, int]] = {}
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            for run in reversed(_ask(operator, wanted).runs):
                state = (str(run.state), run.attempt)
                if known.get(run.run_id) != state:
                    known[run.run_id] = state
                    if as_json:
                        screen.json(run, line=True)
                    else:
                        screen.out(line_of(screen, run))
            time.sleep(_POLL)


def _list_skips(
    operator: Operator,
    screen: Screen,
    entries: Sequence[str],
    since: datetime | None,
    limit: int,
    *,
    as_json: bool,
) -> None:
    from celery_catchup.operations.runs import list_skips

    found = list_skips(operator, entries, since=since, limit=limit)
    if as_json:
        screen.json({"skipped": found})
        return
    show_skips(screen, found)
