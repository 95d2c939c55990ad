"""``celery catchup runs``: list runs and skipped slots."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from celery_catchup.cli.command import operator_command
from celery_catchup.cli.groups import DefaultCommandGroup
from celery_catchup.cli.handled_runs import handle_runs
from celery_catchup.cli.parameters import (
    TimeParam,
    dry_run_option,
    entries_argument,
    force_option,
    json_option,
    option,
    zone_option,
)
from celery_catchup.cli.run_tables import (
    checkpoint_facts,
    decision_facts,
    show_attempts,
    show_notes,
    show_overdue,
    show_run_facts,
    show_run_line,
    show_runs,
    show_skips,
)
from celery_catchup.cli.screen import Screen
from celery_catchup.model import RunState, Trigger

if TYPE_CHECKING:
    from celery_catchup.operations import Operator
    from celery_catchup.operations.runs import Runs

_SKIPPED = "skipped"
_TRIGGERS = click.Choice([one.value for one in Trigger])
_STATES = click.Choice([*(one.value for one in RunState), _SKIPPED])
_runs_argument = click.argument("run_ids", metavar="RUN...", nargs=-1, required=True)
_POLL = 1.0  # seconds between two reads of --follow


@click.group(
    "runs", cls=DefaultCommandGroup, default="list", short_help="List runs: for which slot, how late."
)
def command() -> None:
    """List runs, the newest slot first: trigger, slot, start and state.

    --state skipped lists the slots that were skipped, with the reason, and --overdue those that have missed
    their deadline (expect_within). The first characters of an id
    are enough to name a run.
    """


@operator_command("list", parent=command, hidden=True)
@entries_argument()
@option("--trigger", "triggers", group="Filter", type=_TRIGGERS, multiple=True, help="Only this trigger.")
@option("--state", "states", group="Filter", type=_STATES, multiple=True, help="Only this state.")
@option(
    "--since", group="Filter", type=TimeParam(since=True), help="Oldest slot: a time, or an age such as 6h."
)
@option("--overdue", group="Filter", is_flag=True, help="Only slots that have missed their deadline.")
@option("--limit", group="Filter", type=click.IntRange(1, 10_000), default=50, help="Number of runs to list.")
@option("--follow", group="Output", is_flag=True, help="Keep running, and print each run when it changes.")
@zone_option
@json_option
def _list(
    operator: Operator,
    screen: Screen,
    *,
    entries: tuple[str, ...],
    triggers: tuple[str, ...],
    states: tuple[str, ...],
    since: datetime | None,
    overdue: bool,
    limit: int,
    follow: bool,
) -> None:
    """List runs, the newest slot first."""
    from celery_catchup.operations.runs import list_runs

    if overdue and (states or triggers or follow or since):
        raise click.UsageError("--overdue excludes --state, --trigger, --since and --follow")
    if _SKIPPED in states and (len(states) > 1 or triggers or follow):
        raise click.UsageError(
            "--state skipped excludes other states, --trigger and --follow: a skipped slot has no run"
        )
    if overdue:
        _list_overdue(operator, screen, entries, limit)
        return
    if _SKIPPED in states:
        _list_skips(operator, screen, entries, since, limit)
        return

    def read() -> Runs:
        return list_runs(
            operator,
            entries,
            triggers=map(Trigger, triggers),
            states=map(RunState, states),
            since=since,
            limit=limit,
        )

    if follow:
        _follow(screen, read)
        return
    found = read()
    if screen.printed_as_json(found):
        return
    show_runs(screen, found.runs, with_entry=len(entries) != 1)
    if found.cursor is not None:
        screen.note(f"There are more: use --limit {limit * 2}, or a narrower filter.")
    if not found.runs:
        screen.note("No such runs.")


@operator_command("show", parent=command, short_help="Show one run with its attempts and notes.")
@click.argument("run_id", metavar="RUN")
@zone_option
@json_option
def _show(operator: Operator, screen: Screen, *, run_id: str) -> None:
    """Show one run with its attempts and notes. The first characters of its id are enough."""
    from celery_catchup.operations.runs import show_run

    found = show_run(operator, run_id)
    if screen.printed_as_json(found):
        return
    show_run_facts(screen, found.run)
    screen.facts(
        (
            ("Last heartbeat", found.last_heartbeat),
            *decision_facts(found.decision),
            *checkpoint_facts(found.last_checkpoint),
        )
    )
    show_attempts(screen, found.attempts)
    show_notes(screen, found)


@operator_command("resend", parent=command, short_help="Send the messages of queued runs again.")
@_runs_argument
@dry_run_option
@force_option
@zone_option
@json_option
def _resend(operator: Operator, screen: Screen, *, run_ids: tuple[str, ...], dry_run: bool) -> int:
    """Send the messages of queued runs again, and start the next attempts of failed runs now.

    Use it when messages were lost, or discarded by workers that did not know the task. Workers with the
    plugin execute a run once, however many messages it has; workers without it execute each message.
    """
    from celery_catchup.operations.open_runs import resend
    from celery_catchup.operations.runs import find_records

    records = find_records(operator, run_ids)
    return handle_runs(operator, screen, records, resend, "resend", dry_run=dry_run)


@operator_command("cancel", parent=command, short_help="End runs that have not ended; their chains go on.")
@_runs_argument
@option("--terminate", group="Changes", is_flag=True, help="Kill the processes that execute running ones.")
@dry_run_option
@force_option
@zone_option
@json_option
def _cancel(
    operator: Operator, screen: Screen, *, run_ids: tuple[str, ...], terminate: bool, dry_run: bool
) -> int:
    """End runs that have not ended, as revoked; the next runs of their chains start.

    With --terminate, the worker of a running run kills the process that executes it. If the worker does not
    answer, the run ends with its lease. To run the slots again, use 'backfill --reprocess failed'.
    """
    from celery_catchup.operations.open_runs import cancel
    from celery_catchup.operations.runs import find_records

    records = find_records(operator, run_ids)
    operation = partial(cancel, terminate=terminate)
    return handle_runs(operator, screen, records, operation, "cancel", dry_run=dry_run)


def _follow(screen: Screen, read: Callable[[], Runs]) -> None:
    known: dict[str, tuple[str, int]] = {}
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            _print_changes(screen, read(), known)
            time.sleep(_POLL)


def _print_changes(screen: Screen, found: Runs, known: dict[str, tuple[str, int]]) -> None:
    """Print each run that is new or has changed, the oldest first."""
    for run in reversed(found.runs):
        state = (str(run.state), run.attempt)
        if known.get(run.run_id) != state:
            known[run.run_id] = state
            if not screen.printed_as_json(run, line=True):
                show_run_line(screen, run)


def _list_skips(
    operator: Operator, screen: Screen, entries: Sequence[str], since: datetime | None, limit: int
) -> None:
    from celery_catchup.operations.skipped_slots import list_skips

    found = list_skips(operator, entries, since=since, limit=limit)
    if not screen.printed_as_json({"skipped": found}):
        show_skips(screen, found)


def _list_overdue(operator: Operator, screen: Screen, entries: Sequence[str], limit: int) -> None:
    from celery_catchup.operations.deadlines import list_overdue

    found = list_overdue(operator, entries, limit=limit)
    if screen.printed_as_json({"overdue": found}):
        return
    show_overdue(screen, found)
    if not found:
        screen.note("No slot is overdue.")
