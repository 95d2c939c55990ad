"""Growth: what becomes of each figure when the entries grow in number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import log, log2

from benchmarks.measuring import Findings, Row, Sample, Table

Results = Mapping[tuple[str, int, str], Sample]

_GROWING = {"startup": "start to first tick", "seconds": "all due, until sent", "memory": "memory"}
_FLAT = {"idle": "idle tick", "one": "tick with one due"}
_SMALL = 1_000
"""Entries below which fixed costs hide the growth."""
_NOISE = 1.25
"""What a machine that does other things too may add."""


def growth(results: Results, sizes: Sequence[int]) -> Findings:
    """A table with the factor per doubling, and the bars for the last tenfold: nothing worse than
    N log N, what is to be flat flat."""
    steps = [(small, large) for small, large in pairwise(sizes) if small >= _SMALL]
    if not steps:
        return Findings()
    headers = ("celery-catchup", *(f"{small:,} → {large:,}" for small, large in steps))
    rows = [
        [
            title,
            *(f"{_factor(results, name, *step) ** (1 / log2(step[1] / step[0])):,.2f} ×" for step in steps),
        ]
        for name, title in {**_GROWING, **_FLAT}.items()
    ]
    note = "The factor by which each grows when the number of entries doubles."
    return Findings([Table("Growth", headers, rows, note)], _bars(results, sizes))


def _bars(results: Results, sizes: Sequence[int]) -> list[Row]:
    large = max(sizes)
    small = max(size for size in sizes if size * 10 <= large)
    bars = []
    for name, title in {**_GROWING, **_FLAT}.items():
        factor, allowed = _factor(results, name, small, large), _NOISE
        if name in _GROWING:
            allowed *= large * log(large) / (small * log(small))
        wanted = "flat" if name in _FLAT else "no worse than N log N"
        bar = f"growth of: {title}, {small:,} → {large:,} entries"
        bars.append(Row(bar, f"{factor:,.2f} ×", wanted, factor <= allowed))
    return bars


def _factor(results: Results, name: str, small: int, large: int) -> float:
    before, after = results["ours", small, name].median, results["ours", large, name].median
    return float(after / max(before, 1e-9))
