"""``celery catchup dlq``: runs that have used up their attempts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from celery_catchup.cli.command import (
    EX_FAILURE,
    dry_run_option,
    entry_names,
    force_option,
    json_option,
    option,
    refuse_usage,
    verb,
)
from celery_catchup.cli.run_tables import checkpoint_facts, decision_facts, show_facts
from celery_catchup.cli.screen import SHORT_ID, Screen, clean, counted, moment, precision, stamp

if TYPE_CHECKING:
    from celery_catchup.operations import Operator
    from celery_catchup.operations.dead_letters import DeadLetter, HandledRun

_CATEGORIES = click.Choice(["transient", "permanent", "unknown"])
_SEARCHED = "Only those whose error, traceback, entry, task, worker or id has this text."
_ERROR_LENGTH = 60  # characters of an error in a table; 'dlq show' has all of it


@click.group("dlq", short_help="Runs that failed for good: look, replay, discard.")
def command() -> None:
    """Dead letters: runs that have used up their attempts and wait for somebody to decide.

    The first characters of an id are enough.
    """


@verb("list", short_help="What failed for good.")
@click.argument("entry", metavar="[ENTRY]", required=False, shell_complete=entry_names)
@option("--category", group="Which", type=_CATEGORIES, help="Whether trying again may help.")
@option("--search", group="Which", metavar="TEXT", default="", help=_SEARCHED)
@json_option
def listed(
    operator: Operator, screen: Screen, *, entry: str | None, category: str | None, search: str, as_json: bool
) -> None:
    """Dead letters, those that died last first."""
    from celery_catchup.operations.dead_letters import Category, list_dead

    chosen = None if category is None else Category(category)
    found = list_dead(operator, [entry] if entry else [], category=chosen, search=search)
    if as_json:
        screen.json({"deadLetters": found})
        return
    form = precision(one.run.scheduled_time for one in found)
    head = ("Run ID", "Entry", "Scheduled For", "Died At", "Attempt", "Category", "Error")
    screen.table(head, [_row(one, form) for one in found])
    if found:
        screen.note("Attempt one again: celery catchup dlq replay RUN")
    else:
        screen.note("No dead letters.")


@verb("show", short_help="One of them, with what was decided and its traceback.")
@click.argument("run_id", metavar="RUN")
@json_option
def shown(operator: Operator, screen: Screen, *, run_id: str, as_json: bool) -> None:
    """A dead letter: the run, what was decided and by which policy, its last checkpoint, its traceback."""
    from celery_catchup.operations.dead_letters import show_dead

    letter = show_dead(operator, run_id)
    if as_json:
        screen.json(letter)
        return
    show_facts(screen, letter.run)
    screen.facts(
        (
            ("Died At", stamp(letter.died_at)),
            ("Category", letter.category.value),
            ("Exception", letter.exception),
            *decision_facts(letter.decision),
            *checkpoint_facts(letter.last_checkpoint),
            *((name.capitalize(), value) for name, value in letter.details.items()),
        )
    )
    if letter.traceback:
        screen.out()
        screen.out(clean(letter.traceback.rstrip(), lines=True))


def _choosing(function: Callable[..., Any]) -> Callable[..., Any]:
    """The parameters by which runs are chosen."""
    decorators = (
        click.argument("run_ids", metavar="RUN...", nargs=-1),
        option("--all", "everything", group="Which", is_flag=True, help="All dead letters."),
        option("--entry", group="Which", shell_complete=entry_names, help="With --all: of this entry."),
        option("--category", group="Which", type=_CATEGORIES, help="With --all: of this category."),
        option(
            "--search", group="Which", metavar="TEXT", default="", help=f"With --all: {_SEARCHED.lower()}"
        ),
        dry_run_option,
        force_option,
        json_option,
    )
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


@verb("replay", short_help="Attempt them again, with the same inputs.")
@_choosing
def replayed(operator: Operator, screen: Screen, **given: Any) -> int:
    """Attempt dead runs again: the same run and inputs, a new attempt, in its place in the chain.

    A run that was replayed before is left alone; one that runs, or has succeeded, is refused.
    """
    from celery_catchup.operations.dead_letters import replay

    return _handle(operator, screen, replay, "replay", **given)


@verb("discard", short_help="Take them off the list; they stay recorded as failed.")
@_choosing
def discarded(operator: Operator, screen: Screen, **given: Any) -> int:
    """Take runs off the dead letters. They stay in the ledger, as failed."""
    from celery_catchup.operations.dead_letters import discard

    return _handle(operator, screen, discard, "discard", **given)


@verb("bury", short_help="Give up runs that have not started.")
@click.argument("run_ids", metavar="RUN...", nargs=-1, required=True)
@dry_run_option
@force_option
@json_option
def buried(operator: Operator, screen: Screen, **given: Any) -> int:
    """Make runs that wait or are queued dead letters: their messages are refused, their chains go on.

    Beat never gives up a run that no worker has started, however long it waits.
    """
    from celery_catchup.operations.dead_letters import bury

    chosen: dict[str, Any] = {"everything": False, "entry": None, "category": None, "search": ""}
    return _handle(operator, screen, bury, "bury", **chosen, **given)


command.add_command(listed, "list")
command.add_command(shown, "show")
command.add_command(replayed, "replay")
command.add_command(discarded, "discard")
command.add_command(buried, "bury")


def _handle(
    operator: Operator,
    screen: Screen,
    operation: Callable[..., list[HandledRun]],
    word: str,
    *,
    run_ids: tuple[str, ...],
    everything: bool,
    entry: str | None,
    category: str | None,
    search: str,
    dry_run: bool,
    force: bool,
    as_json: bool,
) -> int:
    from celery_catchup.operations.dead_letters import Category, select_dead

    if bool(run_ids) == everything:
        raise refuse_usage("name the runs, or say --all")
    if run_ids and (entry or category or search):
        raise refuse_usage("--entry, --category and --search narrow down --all; leave them out")
    chosen = None if category is None else Category(category)
    entries = [entry] if entry else []
    records = select_dead(operator, run_ids, entries=entries, category=chosen, search=search)
    if records and not dry_run:
        question = f"{word.capitalize()} {counted(len(records), 'run')}?"
        screen.confirm(question, force=force, doing=f"{word} {counted(len(records), 'run')}")
    with screen.progress(len(records), label=word.capitalize()) as step:
        handled = operation(operator, records, dry_run=dry_run, progress=step)
    return _tell(screen, handled, as_json=as_json)


def _tell(screen: Screen, handled: Sequence[HandledRun], *, as_json: bool) -> int:
    refused = [one for one in handled if one.outcome.value == "refused"]
    if as_json:
        screen.json({"runs": handled})
    for one in handled:
        if one in refused:
            screen.note(f"Error: run {one.run_id}: {one.reason}")
        elif not as_json:
            screen.out(
                f"{one.run_id[:SHORT_ID]}  {clean(one.entry)}  {stamp(one.scheduled_time)}  {one.outcome}"
            )
            if one.reason:
                screen.note(f"Run {one.run_id}: {one.reason}")
    if not handled:
        screen.note("No dead letters.")
    return EX_FAILURE if refused else 0


def _row(one: DeadLetter, form: str) -> list[object]:
    error = clean(one.run.error or one.exception or "-")
    return [
        one.run.run_id[:SHORT_ID],
        one.run.entry,
        moment(one.run.scheduled_time, form),
        moment(one.died_at, form),
        one.run.attempt,
        one.category.value,
        error if len(error) <= _ERROR_LENGTH else f"{error[:_ERROR_LENGTH]}…",
    ]
