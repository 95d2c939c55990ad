"""Whatever becomes of whichever call to the store: nothing is lost, nothing doubled, nothing torn."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.integration import beats
from tests.reliability.every_call import OUTCOMES, SCENARIOS, Fault, cases, play
from tests.results import Recorder

STRIDE = 23
"""The suite plays every so-many-th case, of which the soak plays all; a prime, so that calls and
outcomes are mixed."""


def played(name: str, url: str, *, stride: int) -> int:
    scenario, count = SCENARIOS[name], 0
    for at, outcome in islice(cases(scenario, url), None, None, stride):
        fault = Fault(at, outcome)
        try:
            play(scenario, url, fault)
        except AssertionError as error:
            raise AssertionError(f"{name}, call {at}, {outcome.name}: {error}") from error
        assert fault.struck, f"{name}, call {at} was not made"
        count += 1
        while beats.OPEN:
            beats.OPEN.pop().close()
    return count


def test_an_outcome_has_a_name_of_its_own() -> None:
    assert len({outcome.name for outcome in OUTCOMES}) == len(OUTCOMES)


@pytest.mark.parametrize("name", SCENARIOS)
def test_some_outcomes_of_some_calls(name: str, redis_url: str) -> None:
    assert played(name, redis_url, stride=STRIDE) > 2


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_every_outcome_of_every_call(redis_url: str, record_result: Recorder) -> None:
    counts = {name: played(name, redis_url, stride=1) for name in SCENARIOS}
    record_result("every call to the store × every outcome", cases=sum(counts.values()), **counts)

    assert sum(counts.values()) >= 2000
