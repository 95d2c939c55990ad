"""The memory that our keys take, as far as the server tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis import Redis

from celery_catchup.store.keys import Keys

_OF_RUNS = ("ledger", "runs", "templates", "template_uses", "ended", "dead", "letters", "notes")
"""Keys that grow with the runs that are kept."""
_SAMPLES = 50
"""Members of each key, and entries, from which the rest is estimated."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of what is kept of runs, and of everything else; how many runs there are."""

    of_runs: int
    other: int
    runs: int

    @property
    def total(self) -> int:
        """Bytes in all."""
        return self.of_runs + self.other

    @property
    def per_run(self) -> float:
        """Bytes of one run."""
        return self.of_runs / self.runs if self.runs else 0.0


def measure(client: Redis, keys: Keys, entries: Sequence[str]) -> Footprint:
    """Ask the server; of many entries some are asked for, and the others taken to be alike."""
    some = entries[:: max(1, len(entries) // _SAMPLES)]
    common = {name: key for name, key in vars(keys).items() if name != "prefix"}
    with client.pipeline(transaction=False) as pipe:
        for key in common.values():
            pipe.memory_usage(key, samples=_SAMPLES)
        for entry in some:
            for key in keys.of_commit(entry):
                pipe.memory_usage(key, samples=_SAMPLES)
        pipe.hlen(keys.ledger)
        *answers, runs = pipe.execute()
    sizes: list[Any] = [size or 0 for size in answers]
    by_name, of_entries = dict(zip(common, sizes, strict=False)), sizes[len(common) :]
    scale = len(entries) / len(some) if some else 0.0
    own = sum(of_entries[:: len(keys.of_commit(""))]) * scale
    of_runs = sum(by_name[name] for name in _OF_RUNS)
    return Footprint(
        of_runs=round(of_runs + own),
        other=round(sum(by_name.values()) - of_runs + sum(of_entries) * scale - own),
        runs=int(runs),
    )
