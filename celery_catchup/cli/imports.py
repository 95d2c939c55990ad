"""``celery catchup import``: continue where another scheduler stopped, so that the switch loses no slot."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from celery_catchup.cli.command import operator_command
from celery_catchup.cli.parameters import dry_run_option, json_option, option, zone_option
from celery_catchup.cli.preview_table import summary
from celery_catchup.cli.screen import Screen
from celery_catchup.error_text import counted

if TYPE_CHECKING:
    from celery_catchup.operations import Operator
    from celery_catchup.operations.import_state import Definition, ImportedEntry, LastRun

_REASONS = {
    "known already": "already known here, and left alone",
    "not declared": "not in this app's beat_schedule",
    "in the future": "its last run is in the future; compare the clocks",
    "discards": "its policy discards slots missed before a resume; use a backfill",
}


@click.group("import", short_help="Continue where another scheduler stopped.")
def command() -> None:
    """Import from another scheduler when entries last ran: their watermarks start there.

    Stop the other scheduler, import, then start this one: slots due in between are caught up as each
    policy says. Entries that are already known here are left alone, so you can repeat the import.

    Entries that exist only there become stored entries: redbeat's own, and with --copy Django's rows.
    """


_catchup_option = option(
    "--catchup",
    "policy",
    group="Changes",
    metavar="JSON",
    default='{"select": "latest", "window": "7d"}',
    help="The policy of entries that are stored here.",
)


@operator_command("shelve", parent=command, short_help="Import from the schedule file of Celery's own beat.")
@option("-s", "--schedule", "path", group="Source", metavar="FILE", help="The file; as beat's own -s.")
@dry_run_option
@zone_option
@json_option
def _shelve(operator: Operator, screen: Screen, *, path: str | None, dry_run: bool) -> None:
    """Import from the file of Celery's own scheduler, by default celerybeat-schedule.

    It is read as beat reads it, by unpickling: import only a file that your own beat has written.
    """
    from celery_catchup.operations.predecessors import celery_beat_runs

    _import(operator, screen, celery_beat_runs(operator, path), dry_run=dry_run)


@operator_command("redbeat", parent=command, short_help="Import from celery-redbeat's keys.")
@option(
    "--url", group="Source", metavar="URL", help="Its server; by default redbeat_redis_url or the broker."
)
@_catchup_option
@dry_run_option
@zone_option
@json_option
def _redbeat(operator: Operator, screen: Screen, *, url: str | None, policy: str, dry_run: bool) -> None:
    """Import from celery-redbeat's keys in Redis; the package need not be installed any more.

    Entries that are not declared become stored entries, with their schedules, arguments, options and last
    runs. The default policy makes one late run of what was missed, as redbeat does.
    """
    from celery_catchup.operations.predecessors import redbeat_entries

    _import_entries(operator, screen, redbeat_entries(operator, url), policy, dry_run=dry_run)


@operator_command("django", parent=command, short_help="Import from django-celery-beat's tables.")
@option("--copy", group="Changes", is_flag=True, help="Copy the rows into stored entries, to leave Django.")
@_catchup_option
@dry_run_option
@zone_option
@json_option
def _django(operator: Operator, screen: Screen, *, copy: bool, policy: str, dry_run: bool) -> None:
    """Import from the periodic tasks that django-celery-beat keeps in the project's database."""
    from celery_catchup.operations.predecessors import django_celery_beat_entries, django_celery_beat_runs

    if copy:
        _import_entries(operator, screen, django_celery_beat_entries(operator), policy, dry_run=dry_run)
    else:
        _import(operator, screen, django_celery_beat_runs(operator), dry_run=dry_run)


def _import_entries(
    operator: Operator, screen: Screen, found: Mapping[str, Definition], policy: str, *, dry_run: bool
) -> None:
    """Store the entries that exist only there, then continue those that are declared here, too."""
    from celery_catchup.operations.import_state import import_definitions, import_last_runs

    try:
        given = json.loads(policy)
    except ValueError as error:
        raise click.UsageError(f"--catchup: expected JSON, got {policy!r}: {error}") from None
    runs = {
        name: one.last_run
        for name, one in found.items()
        if name in operator.declared_schedule and one.last_run is not None
    }
    entries = [
        *import_last_runs(operator, runs, dry_run=dry_run),
        *import_definitions(operator, found, policy=given, dry_run=dry_run),
    ]
    _print(screen, entries, dry_run=dry_run)


def _import(operator: Operator, screen: Screen, found: Mapping[str, LastRun], *, dry_run: bool) -> None:
    from celery_catchup.operations.import_state import import_last_runs

    _print(screen, import_last_runs(operator, found, dry_run=dry_run), dry_run=dry_run)


def _print(screen: Screen, entries: Sequence[ImportedEntry], *, dry_run: bool) -> None:
    from celery_catchup.operations.import_state import ImportResult

    if screen.printed_as_json({"entries": entries}):
        return
    taken = [one for one in entries if one.fate in (ImportResult.TAKEN_OVER, ImportResult.STORED)]
    if taken:
        rows = [[one.entry, one.last_run_at, _since_then(one)] for one in taken]
        screen.table(("Entry", "Last Run", "Since Then"), rows, timespec="seconds")
        screen.out()
    screen.out(f"{counted(len(taken), 'entry', 'entries')} {'would be ' if dry_run else ''}taken over.")
    for one in entries:
        if one.fate in _REASONS or one.problem:
            screen.note(f'"{one.entry}": {one.problem or _REASONS[one.fate]}.')


def _since_then(one: ImportedEntry) -> str:
    if one.dispatched is None:
        return "a stored entry" if one.fate == "stored" else "as under Celery's own scheduler"
    return summary(one.dispatched, one.skipped or 0)
