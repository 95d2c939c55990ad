"""Climates: what is the same all week, as the seed says; weather comes and goes on top of it."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.simulation.expectations import HOUR

LATE = ("late_workers", "strangers_first")
"""Misfortunes in which the beats run for hours before the first worker with the plugin starts."""


@dataclass(frozen=True)
class Climate:
    """What kind of workers there are, and since when."""

    concurrency: int
    prefetch: int
    plugin: bool
    mixed: bool
    """Whether a worker without the plugin joins for a while, now and then."""
    workers_from: int
    """Milliseconds after the beats at which the workers are started for the first time."""

    @classmethod
    def drawn(cls, draw: Random, stress: str) -> Climate:
        """As the seed says; ``stress`` is what there is to be more of."""
        rare, mixed = draw.random() < 0.08, draw.random() < 0.25
        return cls(
            concurrency=draw.choice((1, 2, 4, 16)),
            prefetch=draw.choice((1, 4)),
            plugin=not rare,
            mixed=mixed or stress in ("stranger_joins", "strangers_first"),
            workers_from=14 * HOUR if draw.random() < 0.15 or stress in LATE else 0,
        )
