"""``celery catchup audit``: list who changed what."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

import click

from celery_catchup.cli.command import operator_command
from celery_catchup.cli.parameters import TimeParam, complete_entry, json_option, option, zone_option
from celery_catchup.cli.screen import Screen
from celery_catchup.error_text import shortened

if TYPE_CHECKING:
    from celery_catchup.operations import Operator
    from celery_catchup.operations.audit import AuditRecord

_NAMED = 3  # entries and targets that a row names; JSON has more


@operator_command("audit", short_help="List who changed what, when, and from where.")
@option(
    "--entry",
    "entries",
    group="Filter",
    multiple=True,
    shell_complete=complete_entry,
    help="Only changes of this entry.",
)
@option("--actor", group="Filter", metavar="TEXT", default="", help="Only by names with this text.")
@option(
    "--since", group="Filter", type=TimeParam(since=True), help="Oldest change: a time, or an age such as 6h."
)
@option("--limit", group="Filter", type=click.IntRange(1, 10_000), default=50, help="Number of changes.")
@zone_option
@json_option
def command(
    operator: Operator,
    screen: Screen,
    *,
    entries: tuple[str, ...],
    actor: str,
    since: datetime | None,
    limit: int,
) -> None:
    """List changes by people and programs, the newest first: pauses, runs, replays, backfills, entries.

    Each change is recorded in the step that makes it, with the user of the command, the login in Flower or
    Django, or the name that a program gives. Kept are 10,000 changes, for catchup_audit_ttl.
    """
    from celery_catchup.operations.audit import list_changes

    found = list_changes(operator, entries=entries, actor=actor, since=since, limit=limit)
    if screen.printed_as_json(found):
        return
    head = ("Time", "Actor", "From", "Action", "Of", "With", "Outcome")
    screen.table(head, map(_row, found.records), timespec="seconds")
    if found.cursor is not None:
        screen.note(f"There are more: use --limit {limit * 2}, or a narrower filter.")
    if not found.records:
        screen.note("No such changes.")


def _row(one: AuditRecord) -> list[object]:
    named = [*one.entries[:_NAMED], *(one.targets if one.target_count <= 1 else ())]
    more = one.entry_count - min(len(one.entries), _NAMED)
    of = ", ".join([*named, *([f"{more} more"] if more else [])])
    runs = {"targets": one.target_count} if one.target_count > 1 else {}
    given = {**runs, **one.parameters}
    return [
        one.at,
        one.actor or "-",
        one.origin,
        one.action,
        of or "-",
        " ".join(f"{name}={_text(value)}" for name, value in given.items()) or "-",
        one.outcome,
    ]


def _text(value: object) -> str:
    return shortened(value if isinstance(value, str) else json.dumps(value), 40)
