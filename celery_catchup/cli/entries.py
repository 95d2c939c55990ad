"""``celery catchup entries``: list the declared entries and their state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery_catchup.cli.command import operator_command
from celery_catchup.cli.parameters import json_option, zone_option
from celery_catchup.cli.screen import Screen

if TYPE_CHECKING:
    from celery_catchup.operations import Operator
    from celery_catchup.operations.entries import EntryView

_HEAD = ("Entry", "Schedule", "Catch-up", "Overlap", "Watermark", "Next", "State")


@operator_command("entries", short_help="List the beat schedule: policies, watermarks, pauses.")
@zone_option
@json_option
def command(operator: Operator, screen: Screen) -> None:
    """List every entry of the beat schedule: its policy, its watermark, its next slot and its state.

    An entry with a dash under Catch-up has no policy: it runs as under Celery's own scheduler.
    """
    from celery_catchup.operations.entries import list_entries

    found = list_entries(operator)
    if not screen.printed_as_json({"entries": found}):
        screen.table(_HEAD, map(_row, found))


def _row(one: EntryView) -> list[object]:
    catchup = "off" if one.catchup == "off" else " ".join(filter(None, (one.catchup, one.window)))
    overlap = one.overlap_policy or None
    return [one.name, one.schedule, catchup or None, overlap, one.watermark, one.next, _state(one)]


def _state(one: EntryView) -> str:
    if one.failing is not None:
        return f"failing ({one.failing})"
    if one.held:
        return f"held ({one.held} runs)"
    if one.paused:
        return f"paused ({one.pause_reason})" if one.pause_reason else "paused"
    parts = [
        f"stopped by {', '.join(one.stopped_by)}" if one.stopped_by else "",
        f"{one.active} active" if one.active else "",
        f"{one.waiting} waiting" if one.waiting else "",
    ]
    return ", ".join(filter(None, parts)) or "idle"
