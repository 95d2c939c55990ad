"""Measure the memory that the keys of a namespace use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from celery_catchup.store.keys import KINDS
from celery_catchup.store.store import Store

_OF_RUNS = ("ledger", "runs", "templates", "template_uses", "ended", "dead", "letters", "notes")
"""Keys that grow with the runs that are kept."""
_SAMPLES = 50
"""Members of each key, and entries, from which the total is estimated."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of runs and of everything else, and the number of runs."""

    of_runs: int
    other: int
    runs: int

    @property
    def total(self) -> int:
        """All bytes."""
        return self.of_runs + self.other

    @property
    def per_run(self) -> float:
        """Bytes of an average run."""
        return self.of_runs / self.runs if self.runs else 0.0


def measure(store: Store, entries: Sequence[str]) -> Footprint:
    """Ask the server for the size of each key; of many entries, measure some and scale up."""
    keys, some = store.keys, entries[:: max(1, len(entries) // _SAMPLES)]
    with store.client.pipeline(transaction=False) as pipe:
        for key in (*map(keys.named, KINDS), *(key for entry in some for key in keys.of_entry(entry))):
            pipe.memory_usage(key, samples=_SAMPLES)
        pipe.hlen(keys.ledger)
        *answers, runs = pipe.execute()
    sizes: list[Any] = [size or 0 for size in answers]
    by_name, of_entries = dict(zip(KINDS, sizes, strict=False)), sizes[len(KINDS) :]
    scale = len(entries) / len(some) if some else 0.0
    own = sum(of_entries[:: len(keys.of_entry(""))]) * scale
    of_runs = sum(by_name[name] for name in _OF_RUNS)
    return Footprint(
        of_runs=round(of_runs + own),
        other=round(sum(by_name.values()) - of_runs + sum(of_entries) * scale - own),
        runs=int(runs),
    )
