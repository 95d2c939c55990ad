"""``celery catchup run``: start a manual run."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from celery_catchup.cli.command import operator_command
from celery_catchup.cli.matches import show_matches
from celery_catchup.cli.parameters import (
    TimeParam,
    dry_run_option,
    entry_argument,
    force_option,
    json_option,
    option,
    zone_option,
)
from celery_catchup.cli.screen import Screen
from celery_catchup.error_text import counted

if TYPE_CHECKING:
    from celery_catchup.operations import Operator
    from celery_catchup.operations.manual_runs import StartedRun


@operator_command("run", short_help="Start a manual run, for now or for a slot.")
@entry_argument
@option("--at", group="Slot", type=TimeParam(), metavar="SLOT", help="Run this slot; by default, now.")
@option("--keep-missed", group="Slot", is_flag=True, help="Catch up the missed slots before it, too.")
@dry_run_option
@force_option
@zone_option
@json_option
def command(
    operator: Operator, screen: Screen, *, entry: str, at: datetime | None, keep_missed: bool, dry_run: bool
) -> None:
    """Start a manual run of ENTRY: it is recorded, claimed and retried like any other, and its id is printed.
    A pattern such as 'sync[*]' starts one of each entry that it matches.

    A manual run counts for the slots before it. Those that are still to be caught up are skipped
    (manual_run): the command shows their number and asks; -f confirms. Without a terminal, or with
    --keep-missed, they are caught up as if there were no manual run.
    """
    from celery_catchup.operations.manual_runs import start_run

    names = operator.in_schedule([entry])
    planned = [start_run(operator, name, at=at, keep_missed=keep_missed, dry_run=True) for name in names]
    if len(names) > 1 and not dry_run:
        show_matches(screen, [entry], names)
        runs = counted(len(names), "run")
        screen.confirm(f"Start {runs}?", action=f"start {runs}")
    passed_over = sum(one.passed_over for one in planned)
    if passed_over and not dry_run:
        slots = counted(passed_over, "missed slot")
        if screen.can_ask:
            screen.confirm(f"Skip {slots} that would be caught up?", action=f"skip {slots}")
        else:
            keep_missed = True
            screen.note(f"{slots} will be caught up, too; -f skips them.")
    started = planned
    if not dry_run:
        started = [start_run(operator, name, at=at, keep_missed=keep_missed) for name in names]
    as_json = screen.printed_as_json(started[0] if names == (entry,) else {"runs": started})
    for one in started:
        if not as_json:
            screen.out(one.run_id)
        _describe(screen, one, dry_run=dry_run)


def _describe(screen: Screen, started: StartedRun, *, dry_run: bool) -> None:
    verb, slot = "Would start" if dry_run else "Started", screen.time(started.scheduled_time)
    screen.note(f'{verb} "{started.entry}" for {slot}.')
    if started.passed_over:
        skipped = counted(started.passed_over, "missed slot")
        rather = "; without a terminal, or with --keep-missed, they are caught up" if dry_run else ""
        screen.note(f"{'Would skip' if dry_run else 'Skipped'} {skipped} (manual_run){rather}.")
    if started.run is not None and started.run.state == "waiting":
        screen.note("It waits: a run of the entry is active.")
    if not dry_run and started.dispatch == "outbox":
        screen.note("The leading beat publishes it with its next tick.")
