"""``celery catchup preview``: show what the next catch-up would do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from celery_catchup.cli.command import EX_MISSED, operator_command
from celery_catchup.cli.parameters import (
    TimeParam,
    entries_argument,
    json_option,
    option,
    policy_option,
    window_option,
    zone_option,
)
from celery_catchup.cli.preview_table import show_preview, summary
from celery_catchup.cli.screen import Screen

if TYPE_CHECKING:
    from celery_catchup.operations import Operator
    from celery_catchup.operations.previews import Preview


@operator_command("preview", short_help="Show what the next catch-up would do, slot by slot.")
@entries_argument()
@window_option
@policy_option
@option("--at", group="What if", type=TimeParam(), help="Assume that beat returns then.")
@option("--exit-code", group="Output", is_flag=True, help="Exit with 3 if slots were missed.")
@zone_option
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
) -> int:
    """Show what the next catch-up would do with each missed slot, and change nothing.

    It is the plan that beat would carry out if it came back now. --window and --policy show what would
    happen under another policy, also for entries that have none. Without ENTRY, every entry that
    missed slots is shown.
    """
    from celery_catchup.config.policy_choice import PolicyChoice
    from celery_catchup.operations.previews import preview

    choice = PolicyChoice(policy) if policy else None
    found = preview(operator, entries, window=window, policy=choice, at=at)
    if not screen.printed_as_json({"previews": found}):
        _print(screen, found, everything=bool(entries))
    return EX_MISSED if exit_code and any(one.missed for one in found) else 0


def _print(screen: Screen, found: Sequence[Preview], *, everything: bool) -> None:
    shown = [one for one in found if everything or len(one.slots) or one.expired or one.error]
    for index, one in enumerate(shown):
        if index:
            screen.out()
        show_preview(screen, one)
    if not shown:
        screen.out(f"Nothing was missed: {summary(0, 0)}")
    if len(shown) > 1:
        total = summary(sum(one.dispatched for one in shown), sum(one.skipped for one in shown))
        screen.out(f"\nIn all: {total}")
