"""``celery catchup purge``: delete everything that is stored in the app's namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery_catchup.cli.command import operator_command
from celery_catchup.cli.parameters import dry_run_option, force_option, json_option
from celery_catchup.cli.screen import Screen, clean
from celery_catchup.error_text import counted

if TYPE_CHECKING:
    from celery_catchup.operations import Operator


@operator_command("purge", short_help="Delete everything that is stored in the app's namespace.")
@dry_run_option
@force_option
@json_option
def command(operator: Operator, screen: Screen, *, dry_run: bool) -> None:
    """Delete every key of the app's namespace: watermarks, runs, dead letters, backfills, stored entries.

    All beats of the namespace have to be stopped. Messages that are already in queues stay there. The next
    beat starts as the first one: nothing is caught up. The audit trail stays, with the record of this.
    """
    from celery_catchup.operations.clean_up import purge

    found = purge(operator, dry_run=True)
    entries = counted(found.entries, "entry", "entries")
    what = f"{counted(found.keys, 'key')} ({entries}, {counted(found.runs, 'run')})"
    if not dry_run:
        screen.confirm(f'Delete {what} of namespace "{found.namespace}"?', action=f"delete {what}")
        found = purge(operator)
    if not screen.printed_as_json(found):
        verb = "Would delete" if dry_run else "Deleted"
        screen.out(clean(f"{verb} {what} of namespace {found.namespace}"))
