"""``celery catchup resume``: slots are decided again, and what was missed is caught up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery_catchup.cli.command import dry_run_option, entries_argument, json_option, option, verb
from celery_catchup.cli.preview_table import show_preview, summary, title
from celery_catchup.cli.screen import Screen, clean

if TYPE_CHECKING:
    from celery_catchup.operations import Operator


@verb("resume", short_help="Go on with paused entries, and catch up what they missed.")
@entries_argument(required=True)
@option("--no-catchup", group="Changes", is_flag=True, help="Skip what was missed while paused.")
@dry_run_option
@json_option
def command(
    operator: Operator,
    screen: Screen,
    *,
    entries: tuple[str, ...],
    no_catchup: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Dispatch these entries again. What they missed while paused is caught up as their policies say.

    Look with -n first: it shows what would be dispatched at once.
    """
    from celery_catchup.operations.pauses import resume

    found = resume(operator, entries, catchup=not no_catchup, dry_run=dry_run)
    if as_json:
        screen.json(found)
        return
    for one in found.entries:
        if not one.changed:
            screen.note(f'"{one.entry}" is not paused.')
        elif not dry_run:
            screen.out(clean(f"Resumed {one.entry}"))
    for preview in found.previews:
        if dry_run:
            show_preview(screen, preview, heading=title(preview))
        else:
            told = summary(preview.dispatched, preview.skipped).replace("would be", "will be")
            screen.note(f'"{preview.entry}": {told}')
