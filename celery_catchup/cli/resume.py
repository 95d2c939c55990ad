"""``celery catchup resume``: dispatch paused entries again, and catch up what they missed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery_catchup.cli.command import operator_command
from celery_catchup.cli.parameters import dry_run_option, entries_argument, json_option, option, zone_option
from celery_catchup.cli.preview_table import show_preview, summary
from celery_catchup.cli.screen import Screen, clean

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
    if screen.printed_as_json(found):
        return
    for one in found.entries:
        if not one.changed:
            screen.note(f'"{one.entry}" is not paused.')
        elif not dry_run:
            screen.out(clean(f"Resumed {one.entry}"))
    for preview in found.previews:
        if dry_run:
            show_preview(screen, preview)
        else:
            runs = summary(preview.dispatched, preview.skipped).replace("would be", "will be")
            screen.note(f'"{preview.entry}": {runs}')
