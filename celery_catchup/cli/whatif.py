"""``celery catchup whatif``: play recorded outages again under another policy."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from celery_catchup.cli.command import operator_command
from celery_catchup.cli.parameters import (
    TimeParam,
    entry_argument,
    json_option,
    option,
    policy_option,
    window_option,
    zone_option,
)
from celery_catchup.cli.screen import Screen, clean, length
from celery_catchup.error_text import counted

if TYPE_CHECKING:
    from celery_catchup.operations import Operator
    from celery_catchup.operations.whatif import WhatIf, WhatIfSlot

_MOST_LINES = 60


@operator_command("whatif", short_help="Play recorded outages again under another policy.")
@entry_argument
@window_option
@policy_option
@option(
    "--since",
    group="Filter",
    type=TimeParam(since=True),
    default="90d",
    help="Outages since: a time, or an age such as 90d.",
)
@zone_option
@json_option
def command(
    operator: Operator,
    screen: Screen,
    *,
    entry: str,
    window: timedelta | None,
    policy: str | None,
    since: datetime,
) -> None:
    """Show which slots of the recorded outages would have run under another policy, when, and how many at
    once. It is beat's own plan with what was recorded; nothing is changed.

    Without --window and --policy it is the policy in force, which shows what was recorded.
    """
    from celery_catchup.config.policy_choice import PolicyChoice
    from celery_catchup.operations.whatif import whatif

    choice = PolicyChoice(policy) if policy else None
    found = whatif(operator, entry, window=window, policy=choice, since=since)
    if not screen.printed_as_json(found):
        _show(screen, found)
        if found.since > since:
            screen.note(
                f"Older outages are not kept: this is what was decided since {screen.time(found.since)}."
            )


def _show(screen: Screen, found: WhatIf) -> None:
    policy = (
        f"select: {found.select}, overlapPolicy: {found.overlap_policy}, window: {found.window or 'none'}"
    )
    screen.out(clean(f'What if "{found.entry}" had had another policy? ({policy})'))
    slots = [*(slot for outage in found.outages for slot in outage.slots), *found.live]
    if slots:
        screen.out()
        screen.table(
            ("Scheduled For", "Recorded", "What if", "Starts", "Ends"),
            [
                (one.scheduled_time, _recorded(one), _action(one), one.starts_at, one.ends_at)
                for one in slots[:_MOST_LINES]
            ],
        )
    if len(slots) > _MOST_LINES:
        screen.note(f"{counted(len(slots) - _MOST_LINES, 'more slot')}: -j prints all of them.")
    screen.out()
    screen.out(
        f"{counted(len(found.outages), 'outage')}: {counted(found.runs, 'run')} instead of "
        f"{found.recorded_runs}, at most {found.most_at_once} at once."
    )
    if any(one.starts_at for one in slots if one.recorded != "dispatch"):
        screen.note(f"Runs that were not there are assumed to take {length(found.usual_duration)}.")


def _action(one: WhatIfSlot) -> str:
    return one.action if one.reason is None else f"{one.action} ({one.reason})"


def _recorded(one: WhatIfSlot) -> str | None:
    return one.recorded if one.recorded_reason is None else f"{one.recorded} ({one.recorded_reason})"
