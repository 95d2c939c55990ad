"""``celery catchup backfill``: run a range of slots; the scheduler does it."""

from __future__ import annotations

import contextlib
import time
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click

from celery_catchup.cli.command import operator_command
from celery_catchup.cli.groups import DefaultCommandGroup
from celery_catchup.cli.matches import show_matches
from celery_catchup.cli.parameters import (
    DurationParam,
    TimeParam,
    dry_run_option,
    entry_argument,
    force_option,
    json_option,
    option,
    zone_option,
)
from celery_catchup.cli.preview_table import show_preview
from celery_catchup.cli.screen import Screen, precision
from celery_catchup.error_text import counted

if TYPE_CHECKING:
    from celery_catchup.operations import Operator
    from celery_catchup.operations.backfills import BackfillView

_POLL = 0.5  # seconds between two reads of the progress
_REPROCESS = click.Choice(["none", "failed", "completed"])
_COUNT = click.IntRange(1, 1000)


@click.group(
    "backfill", cls=DefaultCommandGroup, default="create", short_help="Run the slots of a past range."
)
def command() -> None:
    """Run the slots of ENTRY from --start to --end, both included; a date as --end means the end of that
    day. The scheduler does the work: it continues when you close this terminal.

    A pattern such as 'sync[*]' makes a backfill of each entry that it matches; they take turns.
    A backfill moves no watermark and ignores window and pause. It skips slots that have a run, unless
    --reprocess includes them. With --span, one run stands for many slots: it is that of the newest, its data
    interval reaches over all of them, and the others are skipped as covered. Use -n first to see what it
    would do.
    """


@operator_command("create", parent=command, hidden=True)
@entry_argument
@option("--start", group="Range", type=TimeParam(), required=True, help="The first slot.")
@option("--end", group="Range", type=TimeParam(whole_day=True), required=True, help="The last slot or day.")
@option("--reprocess", group="Range", type=_REPROCESS, default="none", help="Existing runs to run again.")
@option(
    "--max-active", group="Pace", type=_COUNT, default=1, help="Number of runs that may be active at once."
)
@option(
    "--max-slots",
    group="Range",
    type=click.IntRange(min=1),
    default=100_000,
    help="Refuse a range with more slots.",
)
@option(
    "--span",
    group="Range",
    type=DurationParam(fine=True),
    help="Make one run for the slots of up to this time, such as 1d, instead of one for each.",
)
@option("--newest-first", group="Pace", is_flag=True, help="Begin with the newest slot.")
@option("--follow", group="Output", is_flag=True, help="Show the progress until it has ended.")
@dry_run_option
@force_option
@zone_option
@json_option
def _create(operator: Operator, screen: Screen, *, follow: bool, dry_run: bool, **range_: Any) -> None:
    """Run a range of slots."""
    from celery_catchup.operations.backfills import (
        BackfillRequest,
        backfill_names,
        count_slots,
        create_backfill,
        preview_backfill,
    )
    from celery_catchup.planning.scope import Reprocess

    written = BackfillRequest(**{**range_, "reprocess": Reprocess(range_["reprocess"])})
    names = backfill_names(operator, written.entry)
    requests = [written.changed(entry=name) for name in names]
    single = names == (written.entry,)
    between = f"{screen.time(written.start)} to {screen.time(written.end)}"
    if dry_run:
        previews = [preview_backfill(operator, one) for one in requests]
        if not screen.printed_as_json(previews[0] if single else {"previews": previews}):
            for preview in previews:
                heading = (
                    f'Backfill preview for "{preview.entry}" ({between}, reprocess: {written.reprocess})'
                )
                show_preview(screen, preview, heading=heading)
        return
    total = counted(count_slots(operator, requests), "slot")
    show_matches(screen, [written.entry], names)
    of = f'"{written.entry}"' if single else f"{len(names)} entries"
    screen.confirm(f"Backfill {total} of {of} from {between}?", action=f"backfill {total}")
    made = [create_backfill(operator, one) for one in requests]
    for one in made:
        if not screen.as_json:
            screen.out(one.id)
    screen.hint("To watch it", "backfill", "show", made[0].id, "--follow")
    if follow:
        made = [_follow(operator, screen, one) for one in made]
    screen.printed_as_json(made[0] if single else {"backfills": made})


@operator_command("list", parent=command, short_help="List all backfills, newest first.")
@zone_option
@json_option
def _list(operator: Operator, screen: Screen) -> None:
    """List all backfills, newest first."""
    from celery_catchup.operations.backfills import list_backfills

    found = list_backfills(operator)
    if screen.printed_as_json({"backfills": found}):
        return
    head = ("ID", "Entry", "From", "To", "Slots", "Dispatched", "Skipped", "State")
    row = attrgetter("id", "entry", "start", "end", "total", "dispatched", "skipped", "state")
    timespec = precision(time for one in found for time in (one.start, one.end))
    screen.table(head, map(row, found), timespec=timespec)


@operator_command("show", parent=command, short_help="Show one backfill and its progress.")
@click.argument("backfill_id", metavar="ID")
@option("--follow", group="Output", is_flag=True, help="Show the progress until it has ended.")
@zone_option
@json_option
def _show(operator: Operator, screen: Screen, *, backfill_id: str, follow: bool) -> None:
    """Show one backfill and its progress."""
    from celery_catchup.operations.backfills import show_backfill

    one = show_backfill(operator, backfill_id)
    _print(screen, _follow(operator, screen, one) if follow else one)


def _add_state_command(name: str, state: str, text: str) -> None:
    """Add the command that brings a backfill into a state."""

    @operator_command(name, parent=command, help=text, short_help=text)
    @click.argument("backfill_id", metavar="ID")
    @dry_run_option
    @force_option
    @zone_option
    @json_option
    def direct(operator: Operator, screen: Screen, *, backfill_id: str, dry_run: bool) -> None:
        from celery_catchup.operations.backfills import set_backfill_state

        one = set_backfill_state(operator, backfill_id, state, dry_run=True)
        if not dry_run:
            if name == "cancel" and one.state != state:
                left = counted(one.total - one.decided + one.waiting, "slot")
                question = f"Cancel backfill {one.id}? {left} of it will not run."
                screen.confirm(question, action="cancel a backfill")
            one = set_backfill_state(operator, one.id, state)
        screen.note(f"{'Would be' if dry_run else 'It is'} {state}.")
        _print(screen, one)


_add_state_command("pause", "paused", "Start none of its runs until it is resumed.")
_add_state_command("resume", "running", "Continue a paused backfill.")
_add_state_command("cancel", "cancelled", "End it: waiting slots will not run.")


def _follow(operator: Operator, screen: Screen, one: BackfillView) -> BackfillView:
    """Show the progress until the backfill has ended, or until Ctrl-C; the backfill continues."""
    from celery_catchup.operations.backfills import show_backfill

    with contextlib.suppress(KeyboardInterrupt), screen.progress(one.total, label=one.id) as step:
        shown = 0
        while True:
            step(one.sent - shown)
            shown = one.sent
            if one.ended:
                return one
            time.sleep(_POLL)
            one = show_backfill(operator, one.id)
    return one


def _print(screen: Screen, one: BackfillView) -> None:
    from celery_catchup.config.durations import format_duration

    if screen.printed_as_json(one):
        return
    order = "newest first" if one.newest_first else "oldest first"
    screen.facts(
        (
            ("Backfill", one.id),
            ("Entry", one.entry),
            ("State", one.state),
            ("From", one.start),
            ("To", one.end),
            ("Slots", one.total),
            ("Dispatched", one.dispatched),
            ("Skipped", one.skipped),
            ("Waiting", one.waiting),
            ("Order", f"{order}, {one.max_active} active at once"),
            ("Reprocess", one.reprocess),
            *((("Span", format_duration(one.span)),) if one.span is not None else ()),
            ("Created At", one.created_at),
        )
    )
