"""The explanation of one slot, which the pages of an entry and of a run show: the answers of `why`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from celery_catchup.errors import CatchupError
from celery_catchup.flower.markup import Markup, Times, duration, element
from celery_catchup.operations import Operator
from celery_catchup.operations.slot_answers import SlotAnswer, facts_of
from celery_catchup.operations.why import why


@dataclass(frozen=True, slots=True)
class ShownAnswer:
    """An answer as the page shows it: facts by name, and commands with their purposes."""

    words: str
    sentence: str
    facts: tuple[tuple[str, Markup], ...]
    commands: tuple[tuple[str, str], ...]


def explain(
    operator: Operator, entry: str, at: datetime | None, times: Times, *, run_id: str | None = None
) -> list[ShownAnswer]:
    """Explain the slots of an entry at a time, or only that of a run; nothing if that is not possible."""
    if at is None:
        return []
    with suppress(CatchupError):  # the page shows the slot without it
        found = why(operator, entry, at)
        answers = [one for one in found.answers if run_id is None or (one.run and one.run.run_id == run_id)]
        commands = tuple((one.purpose, one.command) for one in found.advice) if run_id is None else ()
        return [ShownAnswer(one.words, one.sentence, tuple(_facts(one, times)), commands) for one in answers]
    return []


def _facts(one: SlotAnswer, times: Times) -> Iterator[tuple[str, Markup]]:
    for name, value in facts_of(one):
        match value:
            case None:
                continue
            case datetime():
                yield name, times.timestamp(value)
            case timedelta():
                yield name, element("span", duration(value))
            case _:
                yield name, element("span", str(value))
