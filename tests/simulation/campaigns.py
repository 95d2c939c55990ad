"""Campaigns: many seeds, on every core; what they came to in figures."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from tests.simulation.mutants import MUTANTS
from tests.simulation.world import Outcome, private_simulator

PART = 10
"""Seeds that a process plays on one server."""


@dataclass
class Figures:
    """What a campaign came to."""

    seeds: int = 0
    executions: int = 0
    commands: int = 0
    faults: int = 0
    virtual_hours: float = 0.0
    violations: list[str] = field(default_factory=list)

    def add(self, one: Outcome) -> None:
        self.seeds += 1
        self.executions += one.executions
        self.commands += one.commands
        self.faults += one.faults
        self.virtual_hours += one.virtual_hours
        if one.violation:
            self.violations.append(how_to_repeat(one))

    @property
    def virtual_years(self) -> float:
        return round(self.virtual_hours / 24 / 365.25, 1)


def how_to_repeat(one: Outcome, *, mutant: str = "") -> str:
    """What was broken, how it came to that, and the command that shows it again."""
    planted = f" --mutant {mutant}" if mutant else ""
    lines = "\n".join(one.tail[-60:])
    return f"seed {one.seed}: {one.violation}\n{lines}\nagain: python -m tests.simulation {one.seed}{planted}"


def _play(seeds: range) -> list[Outcome]:
    with private_simulator() as simulator:
        return [simulator.play(seed) for seed in seeds]


def campaign(first: int, last: int) -> Figures:
    """Play every seed from first to last, a virtual week each; ``pytest -s`` shows how far it has come, and
    each violation at once."""
    parts = [range(start, min(start + PART, last + 1)) for start in range(first, last + 1, PART)]
    figures = Figures()
    for outcomes in _on_every_core(_play, parts):
        for one in outcomes:
            figures.add(one)
            if one.violation:
                print(figures.violations[-1], flush=True)
        print(f"{figures.seeds} weeks played, {len(figures.violations)} with a violation", flush=True)
    return figures


def _hunt(name: str, *, most: int) -> tuple[str, int, str]:
    with private_simulator() as simulator:
        for seed in range(1, most + 1):
            one = simulator.play(seed, mutant=MUTANTS[name])
            if one.violation:
                return name, seed, one.violation
    return name, 0, ""


def hunts(*, most: int) -> list[tuple[str, int, str]]:
    """For each mutant the first seed that finds it, 0 for none, and what was broken."""
    return list(_on_every_core(partial(_hunt, most=most), list(MUTANTS)))


def _on_every_core(work: object, items: Iterable[object]) -> Iterable[object]:
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawning) as pool:
        yield from pool.map(work, items)  # type: ignore[arg-type]
