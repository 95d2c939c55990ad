"""One entry: everything that its page tells beside its runs and its timeline."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from celery_catchup.engine.tracked_entries import TrackedEntry
from celery_catchup.model import Instant, Trigger, to_datetime, to_instant
from celery_catchup.operations.dead_letters import DeadLetter, list_dead
from celery_catchup.operations.entries import next_slots, slot_after
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.outages import Outage, list_outages
from celery_catchup.operations.overview import EntryRow, rows_of
from celery_catchup.operations.tracked_entries import lines_of
from celery_catchup.planning.entry import Role

WEEK = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class EntryPage:
    """An entry's facts. ``runs`` are those decided on in the last seven days, by trigger; ``lag`` is how
    old the first slot is that is due and not decided. ``outages`` reach back as far."""

    entry: EntryRow
    lag: timedelta | None
    next: tuple[datetime, ...]
    runs: dict[Trigger, int]
    dead_letters: tuple[DeadLetter, ...]
    outages: tuple[Outage, ...]


def entry_page(operator: Operator, name: str, *, slots: int = 3, letters: int = 20) -> EntryPage:
    """What is known of a declared entry; `UnknownEntryError` for another."""
    operator.in_schedule([name])
    now = operator.now()
    (row,) = rows_of(operator, [name])
    line = lines_of(operator, operator.look([name]), now, {name}).get(name)
    since = to_datetime(now) - WEEK
    tally = operator.history.tallies([name], since=to_instant(since))[name]
    return EntryPage(
        entry=row,
        lag=_lag(row, line, now),
        next=tuple(next_slots(line, now, count=slots)),
        runs={trigger: tally.dispatched(trigger) for trigger in Trigger},
        dead_letters=tuple(list_dead(operator, [name], limit=letters)),
        outages=tuple(list_outages(operator, since=since)),
    )


def _lag(row: EntryRow, line: TrackedEntry | None, now: Instant) -> timedelta | None:
    """How old the first slot is that is due and not decided; none is no lag."""
    if line is None or row.catchup is None:
        return None
    decided = to_instant(row.watermark or row.first_seen_at or to_datetime(now))
    waiting = [
        at
        for index, schedule in enumerate(line.entry.schedules)
        if schedule.role is not Role.STOP
        and (at := slot_after(line.entry, index, decided)) is not None
        and at <= now
    ]
    return timedelta(milliseconds=now - min(waiting, default=now))
