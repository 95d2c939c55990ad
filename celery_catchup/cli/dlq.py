"""``celery catchup dlq``: list, replay and discard dead letters."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

import click

from celery_catchup.cli.command import operator_command
from celery_catchup.cli.handled_runs import handle_runs
from celery_catchup.cli.parameters import (
    complete_entry,
    dry_run_option,
    force_option,
    json_option,
    option,
    zone_option,
)
from celery_catchup.cli.run_tables import checkpoint_facts, decision_facts, show_run_facts
from celery_catchup.cli.screen import SHORT_ID, Screen, clean, precision
from celery_catchup.error_text import shortened

if TYPE_CHECKING:
    from celery_catchup.operations import Operator
    from celery_catchup.operations.dead_letters import DeadLetter, HandledRun

_CATEGORIES = click.Choice(["transient", "permanent", "unknown"])
_SEARCH = "Only those with this text in error, traceback, entry, task, worker or id."
_ERROR_LENGTH = 60  # characters of an error in a table; 'dlq show' prints all of it


@click.group("dlq", short_help="Show, replay or discard runs that failed for good.")
def command() -> None:
    """Show, replay or discard dead letters: runs that have used up their attempts.

    The first characters of an id are enough.
    """


@operator_command("list", parent=command, short_help="List dead letters.")
@click.argument("entry", metavar="[ENTRY]", required=False, shell_complete=complete_entry)
@option("--category", group="Filter", type=_CATEGORIES, help="Only failures of this category.")
@option("--search", group="Filter", metavar="TEXT", default="", help=_SEARCH)
@zone_option
@json_option
def _list(
    operator: Operator, screen: Screen, *, entry: str | None, category: str | None, search: str
) -> None:
    """List dead letters, the latest first."""
    from celery_catchup.operations.dead_letters import Category, list_dead

    chosen = Category(category) if category else None
    found = list_dead(operator, [entry] if entry else [], category=chosen, search=search)
    if screen.printed_as_json({"deadLetters": found}):
        return
    head = ("Run ID", "Entry", "Scheduled For", "Died At", "Attempt", "Category", "Error")
    screen.table(head, map(_row, found), timespec=precision(one.run.scheduled_time for one in found))
    if found:
        screen.hint("To replay the first", "dlq", "replay", found[0].run.run_id)
    else:
        screen.note("No dead letters.")


@operator_command("show", parent=command, short_help="Show one dead letter with its decision and traceback.")
@click.argument("run_id", metavar="RUN")
@zone_option
@json_option
def _show(operator: Operator, screen: Screen, *, run_id: str) -> None:
    """Show one dead letter: the run, the decision and its policy, the last checkpoint, the traceback."""
    from celery_catchup.operations.dead_letters import show_dead

    letter = show_dead(operator, run_id)
    if screen.printed_as_json(letter):
        return
    show_run_facts(screen, letter.run)
    screen.facts(
        (
            ("Died At", letter.died_at),
            ("Category", letter.category),
            ("Exception", letter.exception),
            *decision_facts(letter.decision),
            *checkpoint_facts(letter.last_checkpoint),
            *((name.capitalize(), value) for name, value in letter.details.items()),
        )
    )
    if letter.traceback:
        screen.out()
        screen.out(clean(letter.traceback.rstrip(), lines=True))


def _selection(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the parameters that select dead letters."""
    decorators: list[Callable[..., Any]] = [
        click.argument("run_ids", metavar="RUN...", nargs=-1),
        option("--all", "everything", group="Filter", is_flag=True, help="All dead letters."),
        option("--entry", group="Filter", shell_complete=complete_entry, help="With --all: of this entry."),
        option("--category", group="Filter", type=_CATEGORIES, help="With --all: of this category."),
        option("--search", group="Filter", metavar="TEXT", default="", help=f"With --all: {_SEARCH.lower()}"),
        dry_run_option,
        force_option,
        zone_option,
        json_option,
    ]
    return reduce(lambda decorated, decorate: decorate(decorated), reversed(decorators), function)


@operator_command("replay", parent=command, short_help="Attempt them again, with the same inputs.")
@_selection
def _replay(operator: Operator, screen: Screen, **given: Any) -> int:
    """Attempt dead runs again: the same run and inputs, a new attempt, in its place in the chain.

    A run that is replayed already is left alone; one that runs, or has succeeded, is refused.
    """
    from celery_catchup.operations.dead_letters import replay

    return _apply(operator, screen, replay, "replay", **given)


@operator_command(
    "discard", parent=command, short_help="Remove them from the list; they stay recorded as failed."
)
@_selection
def _discard(operator: Operator, screen: Screen, **given: Any) -> int:
    """Remove runs from the dead letters. They stay in the ledger, as failed."""
    from celery_catchup.operations.dead_letters import discard

    return _apply(operator, screen, discard, "discard", **given)


@operator_command("bury", parent=command, short_help="Give up runs that have not started.")
@click.argument("run_ids", metavar="RUN...", nargs=-1, required=True)
@dry_run_option
@force_option
@zone_option
@json_option
def _bury(operator: Operator, screen: Screen, **given: Any) -> int:
    """Make waiting or queued runs dead letters: their messages are refused, their chains continue.

    Beat never gives up a run that no worker has started, however long it waits.
    """
    from celery_catchup.operations.dead_letters import bury

    return _apply(operator, screen, bury, "bury", **given)


def _apply(
    operator: Operator,
    screen: Screen,
    operation: Callable[..., list[HandledRun]],
    verb: str,
    *,
    run_ids: tuple[str, ...],
    dry_run: bool,
    everything: bool = False,
    entry: str | None = None,
    category: str | None = None,
    search: str = "",
) -> int:
    """Apply an operation to the selected dead letters."""
    from celery_catchup.operations.dead_letters import Category, select_dead

    if bool(run_ids) == everything:
        raise click.UsageError("name the runs, or use --all")
    if run_ids and (entry or category or search):
        raise click.UsageError("--entry, --category and --search need --all; omit them to name runs")
    records = select_dead(
        operator,
        run_ids,
        entries=[entry] if entry else [],
        category=Category(category) if category else None,
        search=search,
    )
    if not records:
        screen.note("No dead letters.")
    return handle_runs(operator, screen, records, operation, verb, dry_run=dry_run)


def _row(one: DeadLetter) -> list[object]:
    error = clean(one.run.error or one.exception or "-")
    return [
        one.run.run_id[:SHORT_ID],
        one.run.entry,
        one.run.scheduled_time,
        one.died_at,
        one.run.attempt,
        one.category,
        shortened(error, _ERROR_LENGTH),
    ]
