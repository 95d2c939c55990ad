"""A guard that is taken away is missed: a simulator that finds no bug would find none of these either."""

from __future__ import annotations

import pytest

from tests.results import Recorder
from tests.simulation.campaigns import hunts
from tests.simulation.mutants import MUTANTS, Mutant, client_that_repeats
from tests.simulation.world import Simulator

MOST = 100
"""Seeds within which each has to be found."""


@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if mutant.seed])
def test_a_planted_bug_is_found(simulator: Simulator, name: str) -> None:
    one = simulator.play(MUTANTS[name].seed, mutant=MUTANTS[name])

    assert one.violation, f"{MUTANTS[name].why}: not found by seed {one.seed}"


def test_a_client_that_repeats_commands_does_no_harm(simulator: Simulator) -> None:
    """Every script may be repeated; that is the second line behind a client that never does it."""
    one = simulator.play(8, mutant=Mutant("as redis-py does by default", changes=client_that_repeats))

    assert not one.violation


@pytest.mark.soak
@pytest.mark.timeout(2 * 3600)
def test_every_planted_bug_is_found_within_a_hundred_seeds(record_result: Recorder) -> None:
    found = hunts(most=MOST)

    latest = max(seed for _, seed, _ in found)
    record_result(
        "planted bugs", planted=len(found), found=sum(bool(s) for _, s, _ in found), latest_seed=latest
    )
    assert not [name for name, seed, _ in found if not seed]
