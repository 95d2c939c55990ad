"""``celery catchup pause``: no slot of an entry is decided until it is resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery_catchup.cli.command import dry_run_option, entries_argument, json_option, option, verb
from celery_catchup.cli.screen import Screen

if TYPE_CHECKING:
    from celery_catchup.operations import Operator


@verb("pause", short_help="Stop dispatching entries until they are resumed.")
@entries_argument(required=True)
@option("--reason", group="Changes", default="", metavar="TEXT", help="Why; shown by 'entries'.")
@dry_run_option
@json_option
def command(
    operator: Operator, screen: Screen, *, entries: tuple[str, ...], reason: str, dry_run: bool, as_json: bool
) -> None:
    """Dispatch nothing of these entries until they are resumed. Runs that are under way go on.

    What they miss meanwhile is caught up when they are resumed, as far as their window reaches.
    """
    from celery_catchup.operations.pauses import pause

    found = pause(operator, entries, reason=reason, dry_run=dry_run)
    if as_json:
        screen.json({"entries": found})
        return
    for one in found:
        if one.changed:
            screen.out(f"{'Would pause' if dry_run else 'Paused'} {one.entry}")
        else:
            screen.note(f'"{one.entry}" is paused already.')
