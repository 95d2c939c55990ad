"""Exponential back-off, the one formula for every retry of beat and the engine."""

from __future__ import annotations


def backoff(failures: int, *, shortest: int, longest: int) -> int:
    """Return the delay after a number of failures in a row: ``shortest``, then doubled up to ``longest``."""
    return min(shortest << min(failures - 1, 32), longest)
