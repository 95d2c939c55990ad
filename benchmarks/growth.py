"""Growth: what becomes of each figure when the entries double in number."""

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
"""What flat may mean on a machine that does other things too, per doubling of the entries."""


def growth(results: Results, sizes: Sequence[int]) -> Findings:
    """A table with the factor per doubling, and the bars: nothing worse than N log N, what is to be
    flat flat."""
    steps = [(small, large) for small, large in pairwise(sizes) if small >= _SMALL]
    if not steps:
        return Findings()
    headers = ("celery-catchup", *(f"{small:,} → {large:,}" for small, large in steps))
    rows, bars = [], []
    for name, title in {**_GROWING, **_FLAT}.items():
        factors = [_factor(results, name, *step) for step in steps]
        rows.append([title, *(f"{factor:,.2f} ×" for factor in factors)])
        allowed = [_NOISE if name in _FLAT else _linearithmic(*step) * _NOISE for step in steps]
        ok = all(factor <= most for factor, most in zip(factors, allowed, strict=True))
        wanted = "flat" if name in _FLAT else "no worse than N log N"
        bars.append(Row(f"growth of: {title}", f"{max(factors):,.2f} × per doubling", wanted, ok))
    rows.append(["memory per entry", *(f"{_factor(results, 'memory', *step) / 2:,.2f} ×" for step in steps)])
    note = "The factor by which each grows when the number of entries doubles."
    return Findings([Table("Growth", headers, rows, note)], bars)


def _factor(results: Results, name: str, small: int, large: int) -> float:
    """Per doubling, from two sizes that may lie further apart."""
    before, after = results["ours", small, name].median, results["ours", large, name].median
    return float((after / max(before, 1e-9)) ** (1 / log2(large / small)))


def _linearithmic(small: int, large: int) -> float:
    return float((large * log(large) / (small * log(small))) ** (1 / log2(large / small)))
