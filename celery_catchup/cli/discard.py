"""``celery catchup discard``: skip catch-ups that were held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery_catchup.cli.command import operator_command
from celery_catchup.cli.matches import show_matches
from celery_catchup.cli.parameters import (
    dry_run_option,
    entries_argument,
    force_option,
    json_option,
    zone_option,
)
from celery_catchup.cli.preview_table import show_resumption
from celery_catchup.cli.screen import Screen
from celery_catchup.error_text import counted

if TYPE_CHECKING:
    from celery_catchup.operations import Operator


@operator_command("discard", short_help="Skip catch-ups that were held.")
@entries_argument(required=True)
@force_option
@dry_run_option
@zone_option
@json_option
def command(operator: Operator, screen: Screen, *, entries: tuple[str, ...], dry_run: bool) -> None:
    """Skip the missed slots of entries that are held, with the reason 'discarded'. New slots run again.

    A backfill can run the slots later.
    """
    from celery_catchup.operations.pauses import discard_held

    found = discard_held(operator, entries, dry_run=True)
    skipped = sum(preview.skipped for preview in found.previews)
    if not dry_run:
        slots = counted(skipped, "slot")
        names = [one.entry for one in found.entries]
        show_matches(screen, entries, names)
        screen.confirm(f"Skip {slots} of {counted(len(names), 'entry', 'entries')}?", action=f"skip {slots}")
        found = discard_held(operator, names)
    if not screen.printed_as_json(found):
        show_resumption(screen, found, done="Discarded", unchanged="is not held any more", dry_run=dry_run)
