"""Measurements, their bars, and the table that shows both."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

from tabulate import tabulate

REPEATS = 5


@dataclass(frozen=True)
class Row:
    """One measurement: what was measured, the figures, and whether it meets its bar."""

    what: str
    figures: str
    bar: str
    ok: bool

    @classmethod
    def at_most(cls, what: str, value: float, bar: float, *, unit: str, figures: str = "") -> Row:
        return cls(what, figures or f"{value:,.3f} {unit}", f"≤ {bar:g} {unit}", value <= bar)

    @classmethod
    def at_least(cls, what: str, value: float, bar: float, *, unit: str, figures: str = "") -> Row:
        return cls(what, figures or f"{value:,.1f} {unit}", f"≥ {bar:g} {unit}", value >= bar)


def best_of(action: Callable[[], object], *, repeats: int = REPEATS) -> float:
    """Seconds of processor time of the fastest of some runs, so that a busy machine does not count."""
    times = []
    for _ in range(repeats):
        gc.collect()
        begun = time.process_time()
        action()
        times.append(time.process_time() - begun)
    return min(times)


def memory_of(action: Callable[[], object]) -> int:
    """The most bytes that Python had allocated at once for the action, over what it had before."""
    gc.collect()
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def report(title: str, rows: list[Row], note: str = "") -> int:
    """Print the table; the number of bars missed."""
    print(f"\n{title}")
    shown = [(row.what, row.figures, row.bar, "ok" if row.ok else "MISSED") for row in rows]
    print(tabulate(shown, headers=("measured", "figures", "bar", ""), disable_numparse=True))
    if note:
        print(note)
    return sum(not row.ok for row in rows)
