"""Measurements, their bars, and the tables that show both."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from tabulate import tabulate

REPEATS = 5


@dataclass(frozen=True)
class Row:
    """One bar: what was measured, the figures, and whether they meet it; None when nobody measured."""

    what: str
    figures: str
    bar: str
    ok: bool | None

    @classmethod
    def at_most(cls, what: str, value: float, bar: float, *, unit: str, figures: str = "") -> Row:
        return cls(what, figures or f"{value:,.3f} {unit}", f"≤ {bar:.3g} {unit}".rstrip(), value <= bar)

    @classmethod
    def at_least(cls, what: str, value: float, bar: float, *, unit: str, figures: str = "") -> Row:
        return cls(what, figures or f"{value:,.1f} {unit}", f"≥ {bar:.3g} {unit}".rstrip(), value >= bar)

    @classmethod
    def unknown(cls, what: str, why: str) -> Row:
        return cls(what, why, "", None)

    @property
    def verdict(self) -> str:
        return {True: "met", False: "NOT MET", None: "not measured"}[self.ok]


class Sample:
    """The values of one measurement, repeated: their median counts, their spread is shown."""

    def __init__(self, values: Iterable[float] = ()) -> None:
        self.values = list(values)

    def add(self, value: float) -> None:
        self.values.append(value)

    def __bool__(self) -> bool:
        return bool(self.values)

    @property
    def median(self) -> float:
        return median(self.values)

    def shown(self, digits: int = 0, *, scale: float = 1.0) -> str:
        """``12 (11–14)``; a dash when nothing was measured."""
        if not self.values:
            return "–"
        text = f"{self.median * scale:,.{digits}f}"
        if len(self.values) == 1:
            return text
        return f"{text} ({min(self.values) * scale:,.{digits}f}–{max(self.values) * scale:,.{digits}f})"


@dataclass(frozen=True)
class Table:
    """Figures for people."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass
class Findings:
    """What a benchmark brings home."""

    tables: list[Table] = field(default_factory=list)
    bars: list[Row] = field(default_factory=list)

    def extend(self, other: Findings) -> None:
        self.tables += other.tables
        self.bars += other.bars


def ratio_bar(what: str, ours: Sample, theirs: Sample, bar: float, *, note: str = "") -> Row:
    """At least so many times theirs, where more is better; the medians are compared."""
    if not (ours and theirs):
        return Row.unknown(what, "one of the two did not take part")
    ratio = ours.median / theirs.median
    return Row.at_least(what, ratio, bar, unit="×", figures=f"{ratio:,.2f} ×{note}")


def share_bar(what: str, ours: Sample, theirs: Sample, bar: float) -> Row:
    """At most such a part of theirs, where less is better; the medians are compared."""
    if not (ours and theirs):
        return Row.unknown(what, "one of the two did not take part")
    ratio = ours.median / theirs.median
    return Row.at_most(what, ratio, bar, unit="×", figures=f"{ratio:,.3f} ×")


def limit_bar(what: str, ours: Sample, bar: float, *, unit: str) -> Row:
    """At most so much."""
    if not ours:
        return Row.unknown(what, "not part of this run")
    return Row.at_most(what, ours.median, bar, unit=unit)


def best_of(action: Callable[[], object], *, repeats: int = REPEATS) -> float:
    """Seconds of processor time of the fastest of some runs, so that a busy machine does not count."""
    times = []
    gc.collect()
    for _ in range(repeats):
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


def bars_table(title: str, rows: Sequence[Row]) -> Table:
    """Bars as a table."""
    shown = [(row.what, row.figures, row.bar, row.verdict) for row in rows]
    return Table(title, ("bar", "measured", "wanted", "verdict"), shown)


def printed(table: Table) -> str:
    """A table for the terminal."""
    body = tabulate(table.rows, headers=table.headers, disable_numparse=True)
    return "\n".join(part for part in (f"\n{table.title}", body, table.note) if part)
