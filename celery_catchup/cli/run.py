"""``celery catchup run``: start a manual run."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from celery_catchup.cli.command import operator_command
from celery_catchup.cli.parameters import (
    TimeParam,
    dry_run_option,
    entry_argument,
    json_option,
    option,
    zone_option,
)
from celery_catchup.cli.screen import Screen

if TYPE_CHECKING:
    from celery_catchup.operations import Operator


@operator_command("run", short_help="Start a manual run, for now or for a slot.")
@entry_argument
@option("--at", group="Slot", type=TimeParam(), metavar="SLOT", help="Run this slot; by default, now.")
@dry_run_option
@zone_option
@json_option
def command(operator: Operator, screen: Screen, *, entry: str, at: datetime | None, dry_run: bool) -> None:
    """Start a manual run of ENTRY: it is recorded, claimed and retried like any other, and its id is printed.

    A manual run counts: earlier slots that were still to be caught up are considered done.
    Use 'backfill' to run slots without that effect.
    """
    from celery_catchup.operations.manual_runs import start_run

    started = start_run(operator, entry, at=at, dry_run=dry_run)
    if not screen.printed_as_json(started):
        screen.out(started.run_id)
    verb, slot = "Would start" if dry_run else "Started", screen.time(started.scheduled_time)
    screen.note(f'{verb} "{entry}" for {slot}.')
    if started.run is not None and started.run.state == "waiting":
        screen.note("It waits: a run of the entry is active.")
    if not dry_run and started.dispatch == "outbox":
        screen.note("The leading beat publishes it with its next tick.")
