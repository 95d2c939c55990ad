"""``celery catchup resume``: dispatch paused entries again, and catch up what they missed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery_catchup.cli.command import operator_command
from celery_catchup.cli.parameters import dry_run_option, entries_argument, json_option, option, zone_option
from celery_catchup.cli.preview_table import show_resumption
from celery_catchup.cli.screen import Screen

if TYPE_CHECKING:
    from celery_catchup.operations import Operator


@operator_command("resume", short_help="Resume paused entries, and catch up what they missed.")
@entries_argument(required=True)
@option("--no-catchup", group="Changes", is_flag=True, help="Skip the slots missed while paused.")
@dry_run_option
@zone_option
@json_option
def command(
    operator: Operator, screen: Screen, *, entries: tuple[str, ...], no_catchup: bool, dry_run: bool
) -> None:
    """Dispatch these entries again. Slots missed while paused are caught up as their policies say.

    Use -n first to see what would be dispatched at once.
    """
    from celery_catchup.operations.pauses import resume

    found = resume(operator, entries, catchup=not no_catchup, dry_run=dry_run)
    if not screen.printed_as_json(found):
        show_resumption(screen, found, done="Resumed", unchanged="is not paused", dry_run=dry_run)
