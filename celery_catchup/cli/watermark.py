"""``celery catchup watermark``: show and move watermarks."""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING

import click

from celery_catchup.cli.command import operator_command
from celery_catchup.cli.parameters import (
    TimeParam,
    complete_entry,
    dry_run_option,
    entries_argument,
    entry_argument,
    force_option,
    json_option,
    option,
    zone_option,
)
from celery_catchup.cli.preview_table import summary
from celery_catchup.cli.screen import Screen, clean

if TYPE_CHECKING:
    from celery_catchup.operations import Operator
    from celery_catchup.operations.watermarks import WatermarkMove


@click.group("watermark", short_help="Show and move watermarks: up to when slots are decided.")
def command() -> None:
    """Show and move watermarks: the instant up to which every slot is dispatched or skipped.

    If you move a watermark back, the next tick decides the later slots again, as far as the window
    reaches; slots that have a run keep it. If you move it forward, the slots in between do not run.
    """


@operator_command("show", parent=command, short_help="Show the scheduler's watermark, and each entry's.")
@entries_argument()
@zone_option
@json_option
def _show(operator: Operator, screen: Screen, *, entries: tuple[str, ...]) -> None:
    """Show the scheduler's watermark, and of each entry the last decision and the start of a catch-up."""
    from celery_catchup.operations.watermarks import show_watermarks

    found = show_watermarks(operator, entries)
    if screen.printed_as_json(found):
        return
    screen.out(f"Scheduler: {screen.time(found.scheduler) if found.scheduler else 'none'}\n")
    head = ("Entry", "Watermark", "Catch-up From", "First Seen", "Paused At", "Manual Run")
    row = attrgetter("entry", "watermark", "replay_from", "first_seen_at", "paused_at", "manual_start")
    screen.table(head, map(row, found.entries))


@operator_command("set", parent=command, short_help="Move an entry's watermark to a time.")
@entry_argument
@click.argument("at", metavar="TIME", type=TimeParam())
@dry_run_option
@force_option
@zone_option
@json_option
def _set(operator: Operator, screen: Screen, *, entry: str, at: datetime, dry_run: bool) -> None:
    """Move the watermark of ENTRY to TIME. Earlier slots do not run; later ones follow the policy. A pattern
    such as 'sync[*]' moves those of every entry that it matches."""
    from celery_catchup.operations.watermarks import set_watermark

    move = set_watermark(operator, entry, at, dry_run=True)
    _print_effect(screen, move)
    if not dry_run:
        screen.confirm("Move the watermark?", action="move a watermark")
        move = set_watermark(operator, entry, at)
    _print_move(screen, move, dry_run=dry_run)


@operator_command("reset", parent=command, short_help="Drop missed slots: continue from now.")
@entries_argument()
@option("--all", "everything", group="Changes", is_flag=True, help="All entries, and the scheduler's own.")
@dry_run_option
@force_option
@zone_option
@json_option
def _reset(
    operator: Operator, screen: Screen, *, entries: tuple[str, ...], everything: bool, dry_run: bool
) -> None:
    """Drop the slots that these entries missed: they continue from now. Backfill can still run the slots."""
    from celery_catchup.operations.watermarks import reset_watermarks

    if bool(entries) == everything:
        raise click.UsageError("name the entries, or use --all")
    move = reset_watermarks(operator, entries, everything=everything, dry_run=True)
    _print_effect(screen, move)
    if not dry_run:
        screen.confirm("Drop the missed slots?", action="reset watermarks")
        move = reset_watermarks(operator, entries, everything=everything)
    _print_move(screen, move, dry_run=dry_run)


@operator_command("rename", parent=command, short_help="Continue an entry under a new name.")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW", shell_complete=complete_entry)
@force_option
def _rename(operator: Operator, screen: Screen, *, old: str, new: str) -> None:
    """Let NEW continue where OLD stopped, so that an entry renamed in beat_schedule loses no slot.

    OLD must no longer be declared; NEW must be, with a policy. Runs of OLD stay listed under that name.
    """
    from celery_catchup.operations.watermarks import rename_entry

    screen.confirm(f'Let "{clean(new)}" continue where "{clean(old)}" stopped?', action="rename an entry")
    rename_entry(operator, old, new)
    screen.out(clean(f"{new} continues where {old} stopped"))


def _print_effect(screen: Screen, move: WatermarkMove) -> None:
    """Print what the next catch-up would do before and after the move."""
    for before, after in zip(move.before, move.after, strict=True):
        then = summary(after.dispatched, after.skipped)
        now = summary(before.dispatched, before.skipped)
        screen.note(f'"{after.entry}": now {now} Then {then}')
        if after.entry in move.limits:
            screen.note(f"  It begins at {screen.time(after.since)}: {move.limits[after.entry]}.")
        if (before.since, then) == (after.since, now):
            screen.note("  The move changes nothing.")


def _print_move(screen: Screen, move: WatermarkMove, *, dry_run: bool) -> None:
    if screen.printed_as_json(move):
        return
    verb = "Would move" if dry_run else "Moved"
    for name in (*move.entries, *(["the scheduler"] if move.scheduler else [])):
        screen.out(clean(f"{verb} {name} to {screen.time(move.watermark)}"))
