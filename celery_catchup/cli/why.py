"""``celery catchup why``: explain one slot of an entry."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from celery_catchup.cli.command import operator_command
from celery_catchup.cli.parameters import TimeParam, entry_argument, json_option, zone_option
from celery_catchup.cli.run_tables import decision_facts, show_attempts
from celery_catchup.cli.screen import Screen, clean

if TYPE_CHECKING:
    from celery_catchup.operations import Operator
    from celery_catchup.operations.slot_answers import SlotAnswer, Why


@operator_command("why", short_help="Explain why a slot ran, waits or was skipped.")
@entry_argument
@click.argument("time", metavar="TIME", type=TimeParam())
@zone_option
@json_option
def command(operator: Operator, screen: Screen, *, entry: str, time: datetime) -> None:
    """Explain one time of an entry: is it a slot, what was decided, when and by which leader, by which rule
    with which values, what became of the run, and what to do.

    For a time to come it says what will happen; for any other time, why it is not a slot, and which slots are
    the nearest.
    """
    from celery_catchup.operations.why import why

    found = why(operator, entry, time)
    if not screen.printed_as_json(found):
        _show(screen, found)


def _show(screen: Screen, found: Why) -> None:
    for index, one in enumerate(found.answers):
        if index:
            screen.out()
        _show_answer(screen, found, one)
    if not found.is_slot and (found.before or found.after):
        screen.facts((("Slot before", found.before), ("Slot after", found.after)))
    for advice in found.advice:
        screen.note(f"{advice.purpose}: {advice.command}")


def _show_answer(screen: Screen, found: Why, one: SlotAnswer) -> None:
    from celery_catchup.operations.slot_answers import facts_of

    screen.out(clean(f'"{found.entry}" at {screen.time(found.time)}: {one.words}'))
    screen.out(clean(f"  {one.sentence}"))
    screen.out()
    screen.facts(facts_of(one))
    if one.run is not None:
        screen.facts(
            (
                ("Run ID", one.run.run_id),
                ("Started At", one.run.started_at),
                ("Lag", one.run.lag),
                ("Finished At", one.run.finished_at),
                ("Error", one.run.error),
                *decision_facts(one.decision),
            )
        )
        show_attempts(screen, one.attempts)
