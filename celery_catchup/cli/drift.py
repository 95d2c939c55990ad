"""``celery catchup drift``: how the declared entries differ from the set that beat last accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from celery_catchup.cli.command import EX_MISSED, dry_run_option, json_option, verb
from celery_catchup.cli.groups import DefaultGroup
from celery_catchup.cli.screen import Screen, clean, counted

if TYPE_CHECKING:
    from celery_catchup.operations import Operator
    from celery_catchup.operations.drift import Drift


@click.group(
    "drift", cls=DefaultGroup, default="show", short_help="Entries that differ from the accepted ones."
)
def command() -> None:
    """Entries that were added, removed or changed since a beat accepted the declared set.

    With catchup_on_drift 'refuse' a beat does not start while there are any; 'adopt' and 'warn' accept them.
    The exit code is 3 when there is a difference.
    """


@verb("show", hidden=True)
@json_option
def shown(operator: Operator, screen: Screen, *, as_json: bool) -> int:
    """Entries that were added, removed or changed since a beat accepted the declared set."""
    from celery_catchup.operations.drift import show_drift

    found = show_drift(operator)
    if as_json:
        screen.json(found)
    elif found.entries is None:
        screen.out("No set of entries was accepted yet; the first beat to start does it.")
    else:
        _show(screen, found)
    return EX_MISSED if found.differences else 0


@verb("accept", short_help="Store the declared entries as the accepted ones.")
@dry_run_option
@json_option
def accepted(operator: Operator, screen: Screen, *, dry_run: bool, as_json: bool) -> None:
    """Store the declared entries as the accepted ones, so that a beat that refuses drift starts with them."""
    from celery_catchup.operations.drift import accept_drift

    found = accept_drift(operator, dry_run=dry_run)
    if as_json:
        screen.json(found)
        return
    _show(screen, found)
    screen.out("Nothing was changed." if dry_run else "The declared entries are accepted.")


def _show(screen: Screen, found: Drift) -> None:
    if found.differences:
        rows = [[one.entry, one.change.value, clean(one.says)] for one in found.differences]
        screen.table(("Entry", "Change", "Difference"), rows)
        screen.out()
    screen.out(f"{counted(len(found.differences), 'difference')} (catchup_on_drift: {found.on_drift}).")


command.add_command(shown)
command.add_command(accepted)
