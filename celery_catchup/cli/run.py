"""``celery catchup run``: a manual run."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from celery_catchup.cli.command import Moment, dry_run_option, entry_argument, json_option, option, verb
from celery_catchup.cli.screen import Screen, stamp

if TYPE_CHECKING:
    from celery_catchup.operations import Operator


@verb("run", short_help="Start a run by hand, now or for a slot.")
@entry_argument
@option("--at", group="Which", type=Moment(), metavar="SLOT", help="The run of this slot; else one for now.")
@dry_run_option
@json_option
def command(
    operator: Operator, screen: Screen, *, entry: str, at: datetime | None, dry_run: bool, as_json: bool
) -> None:
    """Start a run of ENTRY by hand: it is recorded, claimed and retried as any other.

    A manual run counts: slots before this moment that were still to be caught up are taken as done.
    Use 'backfill' to run slots without that. The id of the run is printed.
    """
    from celery_catchup.operations.manual_runs import start_run

    started = start_run(operator, entry, at=at, dry_run=dry_run)
    if as_json:
        screen.json(started)
    else:
        screen.out(started.run_id)
    doing = "Would start" if dry_run else "Started"
    screen.note(f'{doing} "{entry}" for {stamp(started.scheduled_time)}.')
    if started.run is not None and started.run.state == "waiting":
        screen.note("It waits: a run of the entry is active.")
    if not dry_run and started.dispatch == "outbox":
        screen.note("The leading beat publishes it with its next tick.")
