"""``celery catchup watermark``: up to where everything is decided; shown and moved."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from celery_catchup.cli.command import (
    Moment,
    dry_run_option,
    entries_argument,
    entry_argument,
    entry_names,
    force_option,
    json_option,
    option,
    refuse_usage,
    verb,
)
from celery_catchup.cli.preview_table import summary
from celery_catchup.cli.screen import Screen, clean, moment, precision, stamp

if TYPE_CHECKING:
    from celery_catchup.operations import Operator
    from celery_catchup.operations.watermarks import WatermarkMove


@click.group("watermark", short_help="Up to where everything is decided; show and move it.")
def command() -> None:
    """The instant up to which everything is decided: slots behind it are still to be dispatched or skipped.

    Moving one back makes the next tick decide those slots again, as far as the window reaches;
    slots that have a run keep it. Moving one forward lets them go.
    """


@verb("show", short_help="The scheduler's watermark, and each entry's.")
@entries_argument()
@json_option
def shown(operator: Operator, screen: Screen, *, entries: tuple[str, ...], as_json: bool) -> None:
    """The scheduler's watermark, and of each entry the last decision and where a catch-up would begin."""
    from celery_catchup.operations.watermarks import show_watermarks

    found = show_watermarks(operator, entries)
    if as_json:
        screen.json(found)
        return
    screen.out(f"Scheduler: {stamp(found.scheduler) or 'none'}")
    screen.out()
    form = precision([*(one.watermark for one in found.entries), *(one.replay_from for one in found.entries)])
    head = ("Entry", "Watermark", "Catch-up From", "First Seen", "Paused At", "Manual Run")
    screen.table(
        head,
        [
            [
                one.entry,
                moment(one.watermark, form),
                moment(one.replay_from, form),
                moment(one.first_seen_at, form),
                moment(one.paused_at, form),
                moment(one.manual_start, form),
            ]
            for one in found.entries
        ],
    )


@verb("set", short_help="Let an entry go on behind a time.")
@entry_argument
@click.argument("at", metavar="TIME", type=Moment())
@dry_run_option
@force_option
@json_option
def moved(
    operator: Operator, screen: Screen, *, entry: str, at: datetime, dry_run: bool, force: bool, as_json: bool
) -> None:
    """Let ENTRY go on behind TIME. Earlier slots are let go, later ones caught up as the policy says."""
    from celery_catchup.operations.watermarks import set_watermark

    move = set_watermark(operator, entry, at, dry_run=True)
    _tell(screen, move)
    if not dry_run:
        screen.confirm("Move the watermark?", force=force, doing="move a watermark")
        move = set_watermark(operator, entry, at)
    _done(screen, move, dry_run=dry_run, as_json=as_json)


@verb("reset", short_help="Let go what was missed: go on from now.")
@entries_argument()
@option("--all", "everything", group="Changes", is_flag=True, help="All entries, and the scheduler's own.")
@dry_run_option
@force_option
@json_option
def reset(
    operator: Operator,
    screen: Screen,
    *,
    entries: tuple[str, ...],
    everything: bool,
    dry_run: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Let go what these entries missed: they go on from now. Backfill can still run the slots."""
    from celery_catchup.operations.watermarks import reset_watermarks

    if bool(entries) == everything:
        raise refuse_usage("name the entries, or say --all")
    move = reset_watermarks(operator, entries, everything=everything, dry_run=True)
    _tell(screen, move)
    if not dry_run:
        screen.confirm("Let it go?", force=force, doing="reset watermarks")
        move = reset_watermarks(operator, entries, everything=everything)
    _done(screen, move, dry_run=dry_run, as_json=as_json)


@verb("rename", short_help="Let an entry go on where its old name stopped.")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW", shell_complete=entry_names)
@force_option
def renamed(operator: Operator, screen: Screen, *, old: str, new: str, force: bool) -> None:
    """Let NEW go on where OLD stopped: an entry that was renamed in beat_schedule loses no slot.

    OLD is not declared any more, NEW is, with a policy. Runs of OLD stay listed under that name.
    """
    from celery_catchup.operations.watermarks import rename_entry

    screen.confirm(
        f'Let "{clean(new)}" go on where "{clean(old)}" stopped?', force=force, doing="rename an entry"
    )
    rename_entry(operator, old, new)
    screen.out(clean(f"{new} goes on where {old} stopped"))


command.add_command(shown, "show")
command.add_command(renamed, "rename")
command.add_command(moved, "set")
command.add_command(reset, "reset")


def _tell(screen: Screen, move: WatermarkMove) -> None:
    """What the next catch-up would have done, and what it will do."""
    for before, after in zip(move.before, move.after, strict=True):
        then = summary(after.dispatched, after.skipped)
        now = summary(before.dispatched, before.skipped)
        screen.note(f'"{after.entry}": now {now} Then {then}')
        if after.since > move.watermark:
            screen.note(f"  It begins at {stamp(after.since)}: the window, or a manual run, bounds it.")


def _done(screen: Screen, move: WatermarkMove, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        screen.json(move)
        return
    doing = "Would move" if dry_run else "Moved"
    for name in move.entries:
        screen.out(clean(f"{doing} {name} to {stamp(move.watermark)}"))
    if move.scheduler:
        screen.out(f"{doing} the scheduler to {stamp(move.watermark)}")
