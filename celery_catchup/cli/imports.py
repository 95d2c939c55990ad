"""``celery catchup import``: go on where another scheduler stopped, so that the switch loses no slot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from celery_catchup.cli.command import dry_run_option, json_option, option, verb
from celery_catchup.cli.preview_table import summary
from celery_catchup.cli.screen import Screen, counted, stamp

if TYPE_CHECKING:
    from celery_catchup.operations import Operator
    from celery_catchup.operations.import_state import ImportedEntry, LastRun

_REASONS = {
    "known already": "known here already, and left alone",
    "not declared": "not in this app's beat_schedule",
    "in the future": "its last run is in the future; compare the clocks",
    "discards": "its policy discards what was missed before a resume; use a backfill",
}


@click.group("import", short_help="Go on where another scheduler stopped.")
def command() -> None:
    """Take over when entries last ran from another scheduler: their watermarks begin there.

    Stop the other scheduler, import, then start this one: what was due in between is caught up as
    each policy says. Entries that are known here already are left alone, so it can be repeated.
    """


@verb("shelve", short_help="From the schedule file of Celery's own beat.")
@option("-s", "--schedule", "path", group="Source", metavar="FILE", help="The file; as beat's own -s.")
@dry_run_option
@json_option
def shelve(operator: Operator, screen: Screen, *, path: str | None, dry_run: bool, as_json: bool) -> None:
    """From the file of Celery's own scheduler, celerybeat-schedule if nothing else is said.

    It is read as beat reads it, by unpickling: import only a file that your own beat has written.
    """
    from celery_catchup.operations.predecessors import celery_beat_runs

    _import(operator, screen, celery_beat_runs(operator, path), dry_run=dry_run, as_json=as_json)


@verb("redbeat", short_help="From celery-redbeat's keys.")
@option("--url", group="Source", metavar="URL", help="Its server; redbeat_redis_url or the broker else.")
@dry_run_option
@json_option
def redbeat(operator: Operator, screen: Screen, *, url: str | None, dry_run: bool, as_json: bool) -> None:
    """From what celery-redbeat keeps in Redis; it need not be installed any more."""
    from celery_catchup.operations.predecessors import redbeat_runs

    _import(operator, screen, redbeat_runs(operator, url), dry_run=dry_run, as_json=as_json)


@verb("django", short_help="From django-celery-beat's tables.")
@dry_run_option
@json_option
def django(operator: Operator, screen: Screen, *, dry_run: bool, as_json: bool) -> None:
    """From the periodic tasks that django-celery-beat keeps in the project's database."""
    from celery_catchup.operations.predecessors import django_celery_beat_runs

    _import(operator, screen, django_celery_beat_runs(operator), dry_run=dry_run, as_json=as_json)


command.add_command(shelve, "shelve")
command.add_command(redbeat, "redbeat")
command.add_command(django, "django")


def _import(
    operator: Operator, screen: Screen, found: Mapping[str, LastRun], *, dry_run: bool, as_json: bool
) -> None:
    from celery_catchup.operations.import_state import ImportResult, import_last_runs

    told = import_last_runs(operator, found, dry_run=dry_run)
    if as_json:
        screen.json({"entries": told})
        return
    taken = [one for one in told if one.fate is ImportResult.TAKEN_OVER]
    if taken:
        rows = [[one.entry, stamp(one.last_run_at), _ahead(one)] for one in taken]
        screen.table(("Entry", "Last Run", "Since Then"), rows)
        screen.out()
    screen.out(f"{counted(len(taken), 'entry', 'entries')} {'would be ' if dry_run else ''}taken over.")
    for one in told:
        if one.fate in _REASONS:
            screen.note(f'"{one.entry}": {_REASONS[one.fate]}.')


def _ahead(one: ImportedEntry) -> str:
    if one.dispatched is None:
        return "as under Celery's own scheduler"
    return summary(one.dispatched, one.skipped or 0)
