"""``celery catchup preview``: what the next catch-up would do."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from celery_catchup.cli.command import (
    EX_MISSED,
    Length,
    Moment,
    entries_argument,
    json_option,
    option,
    verb,
)
from celery_catchup.cli.preview_table import show_preview, summary, title
from celery_catchup.cli.screen import Screen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from celery_catchup.operations import Operator
    from celery_catchup.operations.previews import Preview


@verb("preview", short_help="What the next catch-up would do, slot by slot.")
@entries_argument()
@option("--window", group="What if", type=Length(), metavar="DURATION", help="With this window, such as 6h.")
@option(
    "--policy",
    group="What if",
    type=click.Choice(["all", "latest", "skip", "off"]),
    help="With this policy: every slot in order, the newest, the first, or none.",
)
@option("--at", group="What if", type=Moment(), metavar="TIME", help="If beat were back at this time.")
@option("--exit-code", group="Output", is_flag=True, help="Exit with 3 when slots were missed.")
@json_option
def command(
    operator: Operator,
    screen: Screen,
    *,
    entries: tuple[str, ...],
    window: timedelta | None,
    policy: str | None,
    at: datetime | None,
    exit_code: bool,
    as_json: bool,
) -> int:
    """What the next catch-up would do with each slot that was missed, and changes nothing.

    It is the plan that beat would carry out if it came back now. --window and --policy ask what would
    happen under another policy, also for entries that have none. Without ENTRY, every entry that
    missed something is shown.
    """
    from celery_catchup.operations.previews import PolicyChoice, preview

    choice = None if policy is None else PolicyChoice(policy)
    found = preview(operator, entries, window=window, policy=choice, at=at)
    if as_json:
        screen.json({"previews": found})
    else:
        _show(screen, found, everything=bool(entries))
    return EX_MISSED if exit_code and any(one.missed for one in found) else 0


def _show(screen: Screen, found: Sequence[Preview], *, everything: bool) -> None:
    shown = [one for one in found if everything or len(one.slots) or one.expired or one.error]
    for index, one in enumerate(shown):
        if index:
            screen.out()
        show_preview(screen, one, heading=title(one))
    if not shown:
        screen.out(f"Nothing was missed: {summary(0, 0)}")
    if len(shown) > 1:
        total = summary(sum(one.dispatched for one in shown), sum(one.skipped for one in shown))
        screen.out(f"\nIn all: {total}")
