"""``celery catchup forget``: forget everything that is stored of an entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from celery_catchup.cli.command import operator_command
from celery_catchup.cli.matches import show_matches
from celery_catchup.cli.parameters import dry_run_option, force_option, json_option
from celery_catchup.cli.screen import Screen, clean
from celery_catchup.error_text import counted

if TYPE_CHECKING:
    from celery_catchup.operations import Operator


@operator_command("forget", short_help="Forget everything that is stored of an entry.")
@click.argument("entry", metavar="ENTRY")
@dry_run_option
@force_option
@json_option
def command(operator: Operator, screen: Screen, *, entry: str, dry_run: bool) -> None:
    """Forget the watermark, pause, counts, skipped slots and runs of ENTRY, such as one that was removed.
    A pattern such as 'sync[*]' forgets every entry that it matches.

    An entry that is still declared starts as if it had never been seen: nothing is caught up. It is refused
    while runs of the entry have not ended.
    """
    from celery_catchup.operations.clean_up import forget_entry

    names = operator.known([entry])
    found = [forget_entry(operator, name, dry_run=True) for name in names]
    if not dry_run:
        runs = counted(sum(one.runs for one in found), "run")
        show_matches(screen, [entry], names)
        what = f'"{entry}" and its' if names == (entry,) else f"{len(names)} entries and their"
        screen.confirm(f"Forget {what} {runs}?", action=f"forget an entry and its {runs}")
        found = [forget_entry(operator, name) for name in names]
    as_json = screen.printed_as_json(found[0] if names == (entry,) else {"entries": found})
    for one in found:
        if not as_json:
            runs = counted(one.runs, "run")
            screen.out(clean(f"{'Would forget' if dry_run else 'Forgot'} {one.entry} and {runs}"))
        if one.declared:
            screen.note(f'"{one.entry}" is declared: beat continues with it as with a new entry.')
