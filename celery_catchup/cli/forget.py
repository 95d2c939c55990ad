"""``celery catchup forget``: forget everything that is stored of an entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from celery_catchup.cli.command import operator_command
from celery_catchup.cli.parameters import dry_run_option, force_option, json_option
from celery_catchup.cli.screen import Screen, clean, counted

if TYPE_CHECKING:
    from celery_catchup.operations import Operator


@operator_command("forget", short_help="Forget everything that is stored of an entry.")
@click.argument("entry", metavar="ENTRY")
@dry_run_option
@force_option
@json_option
def command(operator: Operator, screen: Screen, *, entry: str, dry_run: bool) -> None:
    """Forget the watermark, pause, counts, skipped slots and runs of ENTRY, such as one that was removed.

    An entry that is still declared starts as if it had never been seen: nothing is caught up. It is refused
    while runs of the entry have not ended.
    """
    from celery_catchup.operations.clean_up import forget_entry

    found = forget_entry(operator, entry, dry_run=True)
    runs = counted(found.runs, "run")
    if not dry_run:
        screen.confirm(f'Forget "{entry}" and its {runs}?', action=f"forget an entry and its {runs}")
        found = forget_entry(operator, entry)
    if not screen.printed_as_json(found):
        screen.out(clean(f"{'Would forget' if dry_run else 'Forgot'} {found.entry} and {runs}"))
    if found.declared:
        screen.note("It is declared: beat continues with it as with a new entry.")
