"""Every slot of days full of faults: ``why`` tells the truth, and ``whatif`` repeats what was decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from celery_catchup.model import SkipReason, to_datetime
from celery_catchup.operations import Operator
from celery_catchup.operations.slot_answers import SlotVerdict
from celery_catchup.operations.whatif import whatif
from celery_catchup.operations.why import why
from celery_catchup.planning.why import NoSlotReason
from celery_catchup.store import Actor, Origin
from celery_catchup.testing import FakeClock
from tests.results import Recorder
from tests.simulation.expectations import HOUR
from tests.simulation.world import START, Simulator, World, private_simulator

DAYS = 24 * HOUR
SOAKED = (1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20)
"""Seeds without a server that forgets: nobody knows then what was decided."""


@contextmanager
def operator(world: World) -> Iterator[Operator]:
    """Somebody who asks when everything is over, without a simulated network."""
    clock = FakeClock(to_datetime(world.hub.now))
    world.app.now = clock.now
    kind = type("Operator", (Operator,), {"clock": clock})
    found: Operator = kind(world.app, actor=Actor("somebody", Origin.CLI))
    try:
        yield found
    finally:
        found.close()


def lies(world: World) -> tuple[list[str], Counter[str]]:
    """What ``why`` says about each slot that is not true, and how often it said what."""
    found, said = [], Counter[str]()
    with operator(world) as asked:
        for expected in world.oracle.entries.values():
            for slot in expected.slots(world.oracle.first_seen, world.hub.now - HOUR):
                if expected.kind == "plain":
                    continue
                told = why(asked, expected.name, to_datetime(slot))
                scheduled = [
                    one for one in told.answers if one.run is None or str(one.run.trigger_type) != "manual"
                ]
                excluded = [str(one.reason) for one in scheduled] == ["excluded"]
                if excluded and told.no_slot is NoSlotReason.EXCLUDED:
                    said["excluded"] += 1
                    if not expected.is_excluded(slot):
                        found.append(f"{expected.name} {told.time}: excluded, but it is not")
                    continue
                most = world.witness.decisions(expected, slot)
                if not told.is_slot or not 1 <= len(scheduled) <= most:
                    found.append(f"{expected.name} {told.time}: {len(scheduled)} answers")
                    continue
                for one in scheduled:
                    said[str(one.reason or one.verdict)] += 1
                    wrong = (
                        world.witness.judge(expected, slot, one)
                        if one.verdict in (SlotVerdict.RUN, SlotVerdict.SKIPPED)
                        else f"{one.verdict}"
                    )
                    if wrong:
                        found.append(f"{expected.name} {told.time}: {wrong}")
    return found, said


def differences(world: World) -> tuple[list[str], int]:
    """Where a replay under the policy in force differs from what was recorded, and how many slots it has."""
    found, count = [], 0
    with operator(world) as asked:
        for expected in world.oracle.entries.values():
            if expected.kind == "plain":
                continue
            told = whatif(asked, expected.name, since=to_datetime(START))
            slots = [slot for outage in told.outages for slot in outage.slots]
            count += len(slots)
            found += [
                f"{expected.name} {slot.scheduled_time}: {slot.action} {slot.reason}, "
                f"recorded {slot.recorded} {slot.recorded_reason}"
                for slot in (*slots, *told.live)
                if slot.differs or (slot.reason and str(slot.reason) != slot.recorded_reason)
            ]
            if told.runs != told.recorded_runs:
                found.append(f"{expected.name}: {told.runs} runs instead of {told.recorded_runs}")
    return found, count


def play(simulator: Simulator, seed: int, *, length: int) -> World:
    one = simulator.play(seed, length=length)
    assert not one.violation, one.violation
    assert simulator.world is not None
    return simulator.world


@pytest.mark.parametrize("seed", [1, 5])  # 5: clocks are put back, and slots decided again
def test_every_slot_of_two_days_of_faults_has_its_true_reason_and_is_decided_so_again(
    simulator: Simulator, seed: int
) -> None:
    world = play(simulator, seed, length=2 * DAYS)

    wrong, said = lies(world)
    others, count = differences(world)

    assert wrong == []
    assert others == []
    assert count > 10
    assert {str(SkipReason.GUARD_BLOCKED), "run"} <= set(said)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_slot_of_weeks_of_faults_has_its_true_reason_and_is_decided_so_again(
    record_result: Recorder,
) -> None:
    slots, wrong, others, replayed = Counter[str](), [], [], 0
    with private_simulator() as simulator:
        for seed in SOAKED:
            world = play(simulator, seed, length=7 * DAYS)
            found, said = lies(world)
            slots += said
            wrong += [f"seed {seed}: {one}" for one in found]
            again, count = differences(world)
            others += [f"seed {seed}: {one}" for one in again]
            replayed += count

    figures = {"slots": slots.total(), "replayed": replayed, "replayed_differently": len(others)}
    record_result("explained weeks", seeds=len(SOAKED), **figures)
    assert wrong == []
    assert others == []
