"""Climates: what is the same all week, as the seed says; weather comes and goes on top of it."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.simulation.expectations import HOUR


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
    def drawn(cls, draw: Random) -> Climate:
        return cls(
            concurrency=draw.choice((1, 2, 4, 16)),
            prefetch=draw.choice((1, 4)),
            plugin=draw.random() >= 0.08,
            mixed=draw.random() < 0.25,
            workers_from=draw.choice((0, 0, 0, 0, 0, 14 * HOUR)),
        )
