"""List the slots that have missed their deadline (`expect_within`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from celery_catchup.model import RunState, to_datetime
from celery_catchup.operations.operator import Operator
from celery_catchup.store.listing import OverdueSlot, Record

MOST_COUNTED = 10_000
"""Overdue slots that are read for counts and lists; those with the earliest deadlines."""


@dataclass(frozen=True, slots=True)
class Overdue:
    """A slot whose run has not succeeded by ``deadline``; ``overdue_for`` is how long ago that was. Without a
    run, ``run_id`` and ``state`` are null: the slot is undecided, or it was lost."""

    entry: str
    scheduled_time: datetime
    deadline: datetime
    overdue_for: timedelta
    run_id: str | None
    state: RunState | None


def list_overdue(operator: Operator, entries: Sequence[str] = (), *, limit: int = 50) -> list[Overdue]:
    """List overdue slots, the earliest deadline first."""
    wanted = set(operator.known(entries))
    found = (
        one for one in operator.deadlines.overdue(limit=MOST_COUNTED) if not wanted or one.entry in wanted
    )
    slots, now = list(islice(found, limit)), operator.now()
    runs = _runs_of(operator, slots)
    return [
        Overdue(
            one.entry,
            to_datetime(one.slot),
            to_datetime(one.deadline),
            timedelta(milliseconds=max(0, now - one.deadline)),
            None if (run := runs.get(one)) is None else run["id"],
            None if run is None else RunState(run["state"]),
        )
        for one in slots
    ]


def count_overdue(operator: Operator) -> Mapping[str, int]:
    """Count the overdue slots of each entry that has any."""
    return Counter(one.entry for one in operator.deadlines.overdue(limit=MOST_COUNTED))


def _runs_of(operator: Operator, slots: Sequence[OverdueSlot]) -> dict[OverdueSlot, Record]:
    """Return the run of each slot that has one."""
    places = operator.listing.runs_at((one.entry, one.slot) for one in slots)
    records = operator.listing.records([run_id for ids in places.values() for run_id in ids])
    by_id = {record["id"]: record for record in records}
    found = {}
    for one in slots:
        for run_id in places[one.entry, one.slot]:
            record = by_id.get(run_id)
            if record is not None and record.get("schedule", 0) == one.schedule:
                found[one] = record
    return found
