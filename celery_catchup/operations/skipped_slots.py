"""List skipped slots as spans, with those of them that have a run since."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import nlargest
from typing import Any

from celery_catchup.model import Instant, SkipReason, to_datetime, to_instant
from celery_catchup.operations.operator import Operator
from celery_catchup.store.listing import Record
from celery_catchup.store.store import portions


@dataclass(frozen=True, slots=True)
class Skipped:
    """Neighbouring slots of an entry that were decided not to run; ``run_id`` is the run that they were
    skipped for, if there is one. ``recovered`` of the slots have a run since, such as one of a backfill."""

    entry: str
    first: datetime
    last: datetime
    count: int
    reason: SkipReason | str
    run_id: str | None = None
    recovered: int = 0


def list_skips(
    operator: Operator,
    entries: Sequence[str] = (),
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 50,
) -> list[Skipped]:
    """List slots that were decided not to run, as spans, the newest first."""
    names = operator.known(entries) or tuple(operator.read_stored().first_seen)
    bounds = {
        name: None if at is None else to_instant(at) for name, at in (("since", since), ("until", until))
    }
    spans = (
        (name, span)
        for part in portions(names)
        for name, some in operator.listing.skips(part, **bounds).items()
        for span in some
    )
    found = nlargest(limit, spans, key=lambda one: (one[1]["last"], one[0]))
    by_entry = defaultdict[str, list[Record]](list)
    for name, span in found:
        by_entry[name].append(span)
    recovered = recovered_slots(operator, by_entry)
    return [_skipped(name, span, recovered[name]) for name, span in found]


def recovered_slots(
    operator: Operator, spans: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[str, list[Instant]]:
    """Return the slots of skipped spans that have a run now which has not failed, by entry."""
    ranges = {
        name: (min(int(one["first"]) for one in some) - 1, max(int(one["last"]) for one in some))
        for name, some in spans.items()
        if some
    }
    recorded = operator.states.recorded_of(ranges) if ranges else {}
    return {
        name: [
            run.at
            for run in recorded.get(name, ())
            if not run.state.failed and any(one["first"] <= run.at <= one["last"] for one in some)
        ]
        for name, some in spans.items()
    }


def _skipped(entry: str, span: Mapping[str, Any], recovered: Sequence[Instant]) -> Skipped:
    reason = span["reason"]
    return Skipped(
        entry,
        to_datetime(span["first"]),
        to_datetime(span["last"]),
        int(span["count"]),
        SkipReason(reason) if reason in list(SkipReason) else str(reason),
        span.get("run_id"),
        sum(span["first"] <= slot <= span["last"] for slot in recovered),
    )
