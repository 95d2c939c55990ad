"""``celery catchup drift``: compare the declared entries with the set that beat accepted last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from celery_catchup.cli.command import EX_MISSED, operator_command
from celery_catchup.cli.groups import DefaultCommandGroup
from celery_catchup.cli.parameters import dry_run_option, json_option
from celery_catchup.cli.screen import Screen, clean
from celery_catchup.error_text import counted

if TYPE_CHECKING:
    from celery_catchup.operations import Operator
    from celery_catchup.operations.drift import Drift


@click.group(
    "drift",
    cls=DefaultCommandGroup,
    default="show",
    short_help="Show entries that differ from the accepted ones.",
)
def command() -> None:
    """Show entries that were added, removed or changed since a beat accepted the declared set.

    With catchup_on_drift 'refuse' a beat does not start while there are any; 'adopt' and 'warn' accept them.
    The exit code is 3 if there is a difference.
    """


@operator_command("show", parent=command, hidden=True)
@json_option
def _show(operator: Operator, screen: Screen) -> int:
    """Show entries that were added, removed or changed since a beat accepted the declared set."""
    from celery_catchup.operations.drift import show_drift

    found = show_drift(operator)
    if not screen.printed_as_json(found):
        if found.entries is None:
            screen.out("No set of entries was accepted yet; the first beat that starts accepts one.")
        else:
            _print(screen, found)
    return EX_MISSED if found.differences else 0


@operator_command("accept", parent=command, short_help="Store the declared entries as the accepted ones.")
@dry_run_option
@json_option
def _accept(operator: Operator, screen: Screen, *, dry_run: bool) -> None:
    """Store the declared entries as the accepted ones, so that a beat that refuses drift starts with them."""
    from celery_catchup.operations.drift import accept_drift

    found = accept_drift(operator, dry_run=dry_run)
    if not screen.printed_as_json(found):
        _print(screen, found)
        screen.out("Nothing was changed." if dry_run else "The declared entries are accepted.")


def _print(screen: Screen, found: Drift) -> None:
    if found.differences:
        rows = [[one.entry, one.change.value, clean(one.says)] for one in found.differences]
        screen.table(("Entry", "Change", "Difference"), rows)
        screen.out()
    screen.out(f"{counted(len(found.differences), 'difference')} (catchup_on_drift: {found.on_drift}).")
