"""``celery catchup entries``: what is declared, and what is known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery_catchup.cli.command import json_option, verb
from celery_catchup.cli.screen import Screen, moment, precision

if TYPE_CHECKING:
    from celery_catchup.operations import Operator
    from celery_catchup.operations.entries import EntryView

_HEAD = ("Entry", "Schedule", "Catch-up", "Overlap", "Watermark", "Next", "State")


@verb("entries", short_help="The beat schedule: policies, watermarks, who is paused.")
@json_option
def command(operator: Operator, screen: Screen, *, as_json: bool) -> None:
    """Every entry of the beat schedule: its policy, up to where it is decided, and when it is next.

    An entry with a dash under Catch-up has no policy: it runs as under Celery's own scheduler.
    """
    from celery_catchup.operations.entries import list_entries

    found = list_entries(operator)
    if as_json:
        screen.json({"entries": found})
        return
    form_of_time = precision([*(one.next for one in found), *(one.watermark for one in found)])
    screen.table(_HEAD, [_row(one, form_of_time) for one in found])


def _row(one: EntryView, form: str) -> list[str]:
    catchup = " ".join(part for part in (one.catchup, one.window) if part) if one.catchup != "off" else "off"
    return [
        one.name,
        one.schedule,
        catchup or "-",
        one.overlap_policy or "-",
        moment(one.watermark, form),
        moment(one.next, form),
        _state(one),
    ]


def _state(one: EntryView) -> str:
    if one.failing is not None:
        return f"failing ({one.failing})"
    if one.paused:
        return f"paused ({one.pause_reason})" if one.pause_reason else "paused"
    stopped = [f"stopped by {', '.join(one.stopped_by)}"] * bool(one.stopped_by)
    busy = [f"{one.active} active"] * bool(one.active) + [f"{one.waiting} waiting"] * bool(one.waiting)
    return ", ".join(stopped + busy) or "idle"
