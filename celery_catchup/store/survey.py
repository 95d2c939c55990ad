"""Survey many runs at once for timelines: the server summarises them instead of sending their records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from celery_catchup.model import Instant, RunState, Trigger
from celery_catchup.store.store import StorePart

MOST_RUNS = 120_000
"""Runs that one survey reads, shared by its entries: a day of fifty entries that run every 40 seconds."""

_AT_ONCE = 2000
"""Runs that one call reads: the server serves no other client meanwhile, for five to forty milliseconds."""

UNREPORTED = "unreported"
_STATES, _TRIGGERS = frozenset((*RunState, UNREPORTED)), frozenset(Trigger)


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Neighbouring runs of one schedule, state and trigger; a single run has its id and start.

    ``state`` is a `RunState`, or `UNREPORTED` for a queued run whose end no worker reports.
    """

    slots: Sequence[Instant]
    state: str
    trigger: str
    schedule: int
    run_id: str | None = None
    started: Instant | None = None


@dataclass(slots=True)
class SurveyedRuns:
    """An entry's runs, the oldest first; ``skipped`` older ones of the range were not read."""

    skipped: int
    groups: list[RunGroup] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of an entry's runs that one call reads."""

    entry: str
    skipped: int
    count: int
    grouped: bool


class Survey(StorePart):
    """Summarises runs of the ledger."""

    def runs(
        self, entries: Sequence[str], first: Instant, last: Instant, *, single: int
    ) -> dict[str, SurveyedRuns]:
        """Survey the runs of these entries with slots from ``first`` to ``last``.

        Neighbours that are alike are grouped if an entry has more than ``single`` runs.
        """
        counts = self._ask(entries, lambda pipe, name: pipe.zcount(self._keys.runs_of(name), first, last))
        dense = sum(count > single for count in counts.values())
        share = max(MOST_RUNS // max(dense, 1), single)  # of sparse entries all runs are read
        found = {name: SurveyedRuns(max(count - share, 0)) for name, count in counts.items()}
        parts = (
            _Part(name, skipped, min(_AT_ONCE, count - skipped), count > single)
            for name, count in counts.items()
            for skipped in range(found[name].skipped, count, _AT_ONCE)
        )
        for batch in _batches(parts):
            answers = self._store.call(
                "survey",
                {"first_ms": first, "last_ms": last},
                more_keys=[self._keys.runs_of(one.entry) for one in batch],
                more_args=[arg for one in batch for arg in (one.skipped, one.count, int(one.grouped))],
            )
            for one, answer in zip(batch, answers, strict=True):
                found[one.entry].groups += _groups(*answer)
        return found


def _batches(parts: Iterable[_Part]) -> Iterator[list[_Part]]:
    """Gather as many parts for each call as the server has time for."""
    batch: list[_Part] = []
    for one in parts:
        if batch and sum(each.count for each in batch) + one.count > _AT_ONCE:
            yield batch
            batch = []
        batch.append(one)
    if batch:
        yield batch


def _groups(slots: bytes, groups: bytes) -> Iterator[RunGroup]:
    instants = list(map(int, slots.split(b","))) if slots else []
    end = 0
    for state, trigger, schedule, count, *single in json.loads(groups):
        begin, end = end, end + count
        if state in _STATES and trigger in _TRIGGERS:  # a newer version may write others
            yield RunGroup(instants[begin:end], state, trigger, int(schedule), *single)
