"""Weeks of faults over the shipped code: every promise is kept, and every week can be repeated."""

from __future__ import annotations

import pytest

from tests.results import Recorder
from tests.simulation.campaigns import campaign, how_to_repeat
from tests.simulation.expectations import HOUR
from tests.simulation.world import Simulator

DAYS = 24 * HOUR


@pytest.mark.parametrize("seed", [1, 2, 3, 6])
def test_days_of_faults_lose_nothing_and_complete_nothing_twice(simulator: Simulator, seed: int) -> None:
    one = simulator.play(seed, length=2 * DAYS)

    assert not one.violation, how_to_repeat(one)
    assert one.executions > 100
    assert one.faults > 10


def test_a_seed_gives_the_same_trace_again_and_another_seed_another(simulator: Simulator) -> None:
    once, again, other = (simulator.play(seed, length=DAYS // 2) for seed in (9, 9, 10))

    assert once.digest == again.digest
    assert once.digest != other.digest


@pytest.mark.soak
@pytest.mark.timeout(2 * 3600)
def test_a_thousand_weeks_of_faults_lose_nothing_and_complete_nothing_twice(record_result: Recorder) -> None:
    figures = campaign(1, 1000)

    record_result(
        "simulated weeks",
        seeds=figures.seeds,
        virtual_years=figures.virtual_years,
        faults=figures.faults,
        executions=figures.executions,
        commands=figures.commands,
        violations=len(figures.violations),
    )
    assert not figures.violations, "\n\n".join(figures.violations[:5])
