"""``celery catchup backfill``: a range of slots, run by the scheduler."""

from __future__ import annotations

import contextlib
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from celery_catchup.cli.command import (
    Moment,
    dry_run_option,
    entry_argument,
    force_option,
    json_option,
    option,
    verb,
)
from celery_catchup.cli.groups import DefaultGroup
from celery_catchup.cli.preview_table import show_preview
from celery_catchup.cli.screen import Screen, clean, counted, moment, precision, stamp

if TYPE_CHECKING:
    from celery_catchup.operations import Operator
    from celery_catchup.operations.backfills import BackfillRequest, BackfillView

_POLL = 0.5  # seconds between two looks at the progress


@click.group(
    "backfill",
    cls=DefaultGroup,
    default="create",
    short_help="Run a range of slots again, or for the first time.",
)
def command() -> None:
    """Run the slots of ENTRY from --start to --end, both included. The scheduler does it: progress
    survives this terminal.

    A backfill moves no watermark and ignores window and pause. Slots that have a run are skipped,
    unless --reprocess says otherwise. Look with -n first.
    """


@verb("create", hidden=True)
@entry_argument
@option("--start", group="Range", type=Moment(), required=True, metavar="TIME", help="The first slot.")
@option(
    "--end",
    group="Range",
    type=Moment(whole_day=True),
    required=True,
    metavar="TIME",
    help="The last slot; a date is the end of that day.",
)
@option(
    "--reprocess",
    group="Range",
    type=click.Choice(["none", "failed", "completed"]),
    default="none",
    show_default=True,
    help="Which slots that have a run are run again.",
)
@option(
    "--max-active",
    group="Pace",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="How many of its runs may be active at once.",
)
@option("--newest-first", group="Pace", is_flag=True, help="Begin with the newest slot.")
@option("--follow", group="Output", is_flag=True, help="Stay and show the progress.")
@dry_run_option
@force_option
@json_option
def created(
    operator: Operator,
    screen: Screen,
    *,
    entry: str,
    follow: bool,
    dry_run: bool,
    force: bool,
    as_json: bool,
    **range_: Any,
) -> None:
    """Run a range of slots."""
    from celery_catchup.operations.backfills import count_slots, create_backfill, preview_backfill

    asked = _asked(entry, **range_)
    if dry_run:
        found = preview_backfill(operator, asked)
        if as_json:
            screen.json(found)
        else:
            show_preview(screen, found, heading=_title(asked))
        return
    total = counted(count_slots(operator, asked), "slot")
    question = f'Backfill {total} of "{entry}" from {stamp(asked.start)} to {stamp(asked.end)}?'
    screen.confirm(question, force=force, doing=f"backfill {total}")
    one = create_backfill(operator, asked)
    if not as_json:
        screen.out(one.id)
    screen.note(f"Watch it: celery catchup backfill show {one.id} --follow")
    if follow:
        one = _follow(operator, screen, one)
    if as_json:
        screen.json(one)


@verb("list", short_help="All backfills, the newest first.")
@json_option
def listed(operator: Operator, screen: Screen, *, as_json: bool) -> None:
    """All backfills, the newest first."""
    from celery_catchup.operations.backfills import list_backfills

    found = list_backfills(operator)
    if as_json:
        screen.json({"backfills": found})
        return
    form = precision([*(one.start for one in found), *(one.end for one in found)])
    head = ("ID", "Entry", "From", "To", "Slots", "Dispatched", "Skipped", "State")
    screen.table(
        head,
        [
            [
                one.id,
                one.entry,
                moment(one.start, form),
                moment(one.end, form),
                one.total,
                one.dispatched,
                one.skipped,
                one.state,
            ]
            for one in found
        ],
    )


@verb("show", short_help="One of them, and how far it is.")
@click.argument("backfill_id", metavar="ID")
@option("--follow", group="Output", is_flag=True, help="Stay until it has ended, and show the progress.")
@json_option
def shown(operator: Operator, screen: Screen, *, backfill_id: str, follow: bool, as_json: bool) -> None:
    """A backfill, and how far it is."""
    from celery_catchup.operations.backfills import show_backfill

    one = show_backfill(operator, backfill_id)
    if follow:
        one = _follow(operator, screen, one)
    _tell(screen, one, as_json=as_json)


def _directing(name: str, state: str, text: str, *, asks: bool = False) -> click.Command:
    """Pause, resume and cancel differ in a word."""

    @verb(name, help=text, short_help=text)
    @click.argument("backfill_id", metavar="ID")
    @dry_run_option
    @force_option
    @json_option
    def directed(
        operator: Operator, screen: Screen, *, backfill_id: str, dry_run: bool, force: bool, as_json: bool
    ) -> None:
        from celery_catchup.operations.backfills import set_backfill_state

        one = set_backfill_state(operator, backfill_id, state, dry_run=True)
        if not dry_run:
            if asks and one.state != state:
                left = counted(one.total - one.decided + one.waiting, "slot")
                question = f"Cancel backfill {one.id}? {left} of it will not run."
                screen.confirm(question, force=force, doing="cancel a backfill")
            one = set_backfill_state(operator, one.id, state)
        screen.note(f"{'Would be' if dry_run else 'It is'} {state}.")
        _tell(screen, one, as_json=as_json)

    return directed


command.add_command(created, "create")
command.add_command(listed, "list")
command.add_command(shown, "show")
command.add_command(_directing("pause", "paused", "Start no more of its runs, until it is resumed."), "pause")
command.add_command(_directing("resume", "running", "Go on with a paused backfill."), "resume")
command.add_command(
    _directing("cancel", "cancelled", "End it: what waits will not run.", asks=True), "cancel"
)


def _asked(
    entry: str, *, start: datetime, end: datetime, reprocess: str, max_active: int, newest_first: bool
) -> BackfillRequest:
    from celery_catchup.operations.backfills import BackfillRequest
    from celery_catchup.planning.scope import Reprocess

    return BackfillRequest(
        entry=entry,
        start=start,
        end=end,
        reprocess=Reprocess(reprocess),
        max_active=max_active,
        newest_first=newest_first,
    )


def _title(asked: BackfillRequest) -> str:
    between = f"{stamp(asked.start)} to {stamp(asked.end)}"
    return f'Backfill preview for "{asked.entry}" ({between}, reprocess: {asked.reprocess})'


def _follow(operator: Operator, screen: Screen, one: BackfillView) -> BackfillView:
    """Show how far it is until it has ended, or somebody has seen enough; it goes on all the same."""
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


def _tell(screen: Screen, one: BackfillView, *, as_json: bool) -> None:
    if as_json:
        screen.json(one)
        return
    order = "newest first" if one.newest_first else "oldest first"
    screen.facts(
        (
            ("Backfill", one.id),
            ("Entry", one.entry),
            ("State", one.state),
            ("From", stamp(one.start)),
            ("To", stamp(one.end)),
            ("Slots", one.total),
            ("Dispatched", one.dispatched),
            ("Skipped", one.skipped),
            ("Waiting", one.waiting),
            ("Order", f"{order}, {one.max_active} active at once"),
            ("Reprocess", one.reprocess.value),
            ("Created At", clean(stamp(one.created_at) or "")),
        )
    )
