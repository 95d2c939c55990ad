"""A guard that is taken away is missed: a simulator that finds no bug would find none of these either."""

from __future__ import annotations

import pytest

from tests.results import Recorder
from tests.simulation.campaigns import hunts
from tests.simulation.expectations import HOUR
from tests.simulation.mutants import MUTANTS, Repetitions, client_that_repeats
from tests.simulation.world import Simulator

DAYS = 24 * HOUR
SEEDS = range(1, 21)
"""The short form stops at the first that finds it, mostly the very first."""
RARE = {"no_compare_and_set", "waiting_lane_forgotten"}
"""Behind other guards, or seldom at risk: these take whole weeks, or show only at the end of one."""
MOST = 100
"""Seeds within which each has to be found."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(set(MUTANTS) - RARE))
def test_a_planted_bug_is_found(simulator: Simulator, name: str) -> None:
    mutant = MUTANTS[name]
    weeks = (simulator.play(seed, mutant=mutant, length=2 * DAYS, stress=mutant.stress) for seed in SEEDS)

    assert any(one.violation for one in weeks), f"{mutant.why}: not found"


def test_a_client_that_repeats_commands_does_no_harm(simulator: Simulator) -> None:
    """Every script may be repeated; that is the second line behind a client that never does it."""
    repetitions = Repetitions()
    one = simulator.play(3, mutant=client_that_repeats(repetitions), length=2 * DAYS)

    assert not one.violation
    assert repetitions.count > 10


@pytest.mark.soak
@pytest.mark.timeout(2 * 3600)
def test_every_planted_bug_is_found_within_a_hundred_seeds(record_result: Recorder) -> None:
    found = hunts(most=MOST)

    seeds = {name: seed for name, seed, _ in found}
    record_result(
        "planted bugs",
        planted=len(seeds),
        found=sum(map(bool, seeds.values())),
        latest_seed=max(seeds.values()),
    )
    assert not [name for name, seed in seeds.items() if not seed]
