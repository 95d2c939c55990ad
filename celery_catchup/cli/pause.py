"""``celery catchup pause``: stop dispatching entries until they are resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery_catchup.cli.command import operator_command
from celery_catchup.cli.parameters import dry_run_option, entries_argument, json_option, option
from celery_catchup.cli.screen import Screen

if TYPE_CHECKING:
    from celery_catchup.operations import Operator


@operator_command("pause", short_help="Stop dispatching entries until they are resumed.")
@entries_argument(required=True)
@option("--reason", group="Changes", default="", metavar="TEXT", help="The reason; 'entries' shows it.")
@dry_run_option
@json_option
def command(
    operator: Operator, screen: Screen, *, entries: tuple[str, ...], reason: str, dry_run: bool
) -> None:
    """Dispatch nothing of these entries until they are resumed. Active runs continue.

    Slots missed in the meantime are caught up when the entries are resumed, as far as the window reaches.
    """
    from celery_catchup.operations.pauses import pause

    found = pause(operator, entries, reason=reason, dry_run=dry_run)
    if screen.printed_as_json({"entries": found}):
        return
    for one in found:
        if one.changed:
            screen.out(f"{'Would pause' if dry_run else 'Paused'} {one.entry}")
        else:
            screen.note(f'"{one.entry}" is paused already.')
