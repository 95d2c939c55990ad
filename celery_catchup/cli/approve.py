"""``celery catchup approve``: run catch-ups that were held."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from celery_catchup.cli.command import operator_command
from celery_catchup.cli.parameters import dry_run_option, entries_argument, json_option, option, zone_option
from celery_catchup.cli.preview_table import show_resumption
from celery_catchup.cli.screen import Screen

if TYPE_CHECKING:
    from celery_catchup.operations import Operator


@operator_command("approve", short_help="Run catch-ups that were held.")
@entries_argument()
@option("--all", "everything", group="Changes", is_flag=True, help="All entries that are held.")
@dry_run_option
@zone_option
@json_option
def command(
    operator: Operator, screen: Screen, *, entries: tuple[str, ...], everything: bool, dry_run: bool
) -> None:
    """Run the catch-ups of entries that are held, because they have more runs than hold_above.

    Use -n first to see what would be dispatched. To skip the missed slots instead, use 'discard'.
    """
    from celery_catchup.operations.pauses import approve

    if bool(entries) == everything:
        raise click.UsageError("name the entries, or use --all")
    found = approve(operator, entries, dry_run=dry_run)
    if screen.printed_as_json(found):
        return
    if not found.entries:
        screen.note("No entry is held.")
    show_resumption(screen, found, done="Approved", unchanged="is not held any more", dry_run=dry_run)
