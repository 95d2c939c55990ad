"""Survey: what became of many runs at once, told by the server without sending their records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from celery_catchup.model import Instant, RunState, Trigger
from celery_catchup.store.store import StorePart

LOOKED_AT = 120_000
"""Runs that one survey looks at, shared by its entries: a day of fifty entries that run every 40 seconds."""
_AT_ONCE = 2000
"""Runs that one call looks at: the server does nothing else meanwhile, for five to forty milliseconds."""

Marks = Mapping[tuple[RunState, Trigger, bool], str]
"""What to call runs by their state, their trigger, and whether they are unreported."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Runs of one of an entry's schedules that follow each other and have one mark; of a lone one
    also its id and when it started."""

    slots: Sequence[Instant]
    mark: str
    schedule: int | None
    run_id: str | None = None
    started: Instant | None = None


@dataclass(frozen=True, slots=True)
class _Look:
    """A part of an entry's runs: how many to pass over, and how many to look at."""

    name: str
    skipped: int
    count: int


class Survey(StorePart):
    """Reads the ledger for drawings."""

    def counts(self, entries: Iterable[str], first: Instant, last: Instant) -> dict[str, int]:
        """How many runs each entry has with slots from ``first`` to ``last``."""
        names = list(entries)
        with self._client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.zcount(self._keys.runs_of(name), first, last)
            return dict(zip(names, pipe.execute(), strict=True))

    def stretches(
        self, counts: Mapping[str, int], first: Instant, last: Instant, *, marks: Marks
    ) -> dict[str, list[Stretch]]:
        """These entries' runs with slots from ``first`` to ``last``, the oldest first; of more than an
        entry's `share` the newest. ``counts`` is how many each has, ``marks`` what they mean."""
        told = json.dumps({_kind(*kind): mark for kind, mark in marks.items()})
        found: dict[str, list[Stretch]] = {name: [] for name in counts}
        for looks in _calls(_looks(counts)):
            keys = [self._keys.runs_of(one.name) for one in looks]
            answers = self._store.call(
                "survey",
                {"first_ms": first, "last_ms": last, "marks": told},
                more_keys=keys,
                more_args=[number for one in looks for number in (one.skipped, one.count)],
            )
            for one, answer in zip(looks, answers, strict=True):
                found[one.name] += _read(*answer)
        return found


def share(entries: int) -> int:
    """How many runs of each entry a survey of so many looks at."""
    return LOOKED_AT // max(entries, 1)


def _looks(counts: Mapping[str, int]) -> Iterator[_Look]:
    most = share(len(counts))
    for name, count in counts.items():
        for skipped in range(max(count - most, 0), count, _AT_ONCE):
            yield _Look(name, skipped, min(_AT_ONCE, count - skipped))


def _calls(looks: Iterable[_Look]) -> Iterator[list[_Look]]:
    """As many looks in each call as the server has time for."""
    held: list[_Look] = []
    for one in looks:
        if held and sum(each.count for each in held) + one.count > _AT_ONCE:
            yield held
            held = []
        held.append(one)
    if held:
        yield held


def _kind(state: RunState, trigger: Trigger, unreported: bool) -> str:  # noqa: FBT001
    return f"{state} {trigger}{' unreported' if unreported else ''}"


def _read(slots: bytes, stretches: bytes) -> Iterator[Stretch]:
    instants = list(map(int, slots.split(b","))) if slots else []
    begin = 0
    for mark, schedule, count, *alone in json.loads(stretches):
        yield Stretch(instants[begin : begin + count], mark, schedule, *alone)
        begin += count
