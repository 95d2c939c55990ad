"""Ledger, chain and leases on a real server against a model of sixty lines, by random steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from celery_catchup.model import RunState
from celery_catchup.store import Replay
from celery_catchup.store.leases import ClaimOutcome, ReportOutcome
from celery_catchup.testing import FakeClock
from tests.integration.beats import OPEN, Beat

MINUTE = 60_000
WORKERS = st.sampled_from(["a", "b", "c"])
ENDS = st.sampled_from([RunState.SUCCEEDED, RunState.FAILED, RunState.REVOKED])
POSITIONS = st.integers(0, 30)


class Model:
    """What should be known of the runs of one entry under ``all``, ``max_active_runs`` of them at once."""

    def __init__(self, capacity: int, attempts: int) -> None:
        self.capacity, self.attempts = capacity, attempts
        self.states: list[str] = []
        self.owners: dict[int, str] = {}
        self.failures: dict[int, int] = {}
        self.losses: dict[int, int] = {}
        self.retrying: set[int] = set()

    def add(self, count: int) -> None:
        self.states += ["waiting"] * count
        self.release()

    def release(self) -> None:
        """Oldest first, and never more than allowed; a run that waits for its retry keeps its place."""
        for number, state in enumerate(self.states):
            active = [
                s for n, s in enumerate(self.states) if s in ("queued", "running") or n in self.retrying
            ]
            if state == "waiting" and number not in self.retrying and len(active) < self.capacity:
                self.states[number] = "queued"

    def claim(self, number: int, worker: str) -> ClaimOutcome:
        match self.states[number]:
            case "queued":
                self.states[number], self.owners[number] = "running", worker
                return ClaimOutcome.GRANTED
            case "running":
                return ClaimOutcome.GRANTED if self.owners[number] == worker else ClaimOutcome.HELD
            case "waiting":
                return ClaimOutcome.HELD
            case _:
                return ClaimOutcome.ENDED

    def finish(self, number: int, worker: str, end: RunState) -> ReportOutcome:
        if self.states[number] not in ("waiting", "queued", "running"):
            return ReportOutcome.ENDED
        if self.owners.get(number) != worker:
            return ReportOutcome.SUPERSEDED
        del self.owners[number]
        if end is RunState.FAILED:
            self.failures[number] = self.failures.get(number, 0) + 1
            if self.failures[number] < self.attempts:
                self.states[number] = "waiting"
                self.retrying.add(number)
                return ReportOutcome.RECORDED
        self.states[number] = "dead" if end is RunState.FAILED else str(end)
        self.release()
        return ReportOutcome.RECORDED

    def lapse(self) -> None:
        """Every lease runs out, every retry is due."""
        for number in sorted(self.retrying):
            self.states[number] = "queued"
        self.retrying.clear()
        for number in sorted(self.owners):
            del self.owners[number]
            self.losses[number] = self.losses.get(number, 0) + 1
            self.states[number] = "dead" if self.losses[number] > self.attempts + 2 else "queued"
        self.release()

    def replay(self, number: int) -> Replay:
        if self.states[number] in ("waiting", "queued", "running"):
            return Replay.IN_FLIGHT
        self.states[number] = "waiting"
        self.failures.pop(number, None)
        self.losses.pop(number, None)
        self.release()
        return Replay.REPLAYED


class LedgerMachine(RuleBasedStateMachine):
    """The steps that beats, workers and people take."""

    url = ""

    @initialize(capacity=st.integers(1, 3), attempts=st.integers(1, 2))
    def begin(self, capacity: int, attempts: int) -> None:
        policy: dict[str, Any] = {"window": "30d", "overlap_policy": "all", "max_active_runs": capacity}
        if attempts > 1:
            policy |= {"max_attempts": attempts, "retry_delay": "1s"}
        self.model = Model(capacity, attempts)
        self.clock = FakeClock("2026-02-07T09:00:30Z")
        self.beat = Beat(self.url, self.clock, {"etl": ("* * * * *", policy)})
        self.beat.client.flushall()
        self.beat.tick()

    def teardown(self) -> None:
        while OPEN:
            OPEN.pop().close()

    def run_id(self, number: int) -> str:
        return str(self.beat.ledger.runs_of("etl")[number]["id"])

    @rule(minutes=st.integers(1, 4))
    def time_passes(self, minutes: int) -> None:
        self.clock.advance(minutes=minutes)
        self.beat.tick()
        self.model.add(minutes)

    @rule(minutes=st.integers(1, 4))
    def beat_is_replaced(self, minutes: int) -> None:
        self.beat.engine.resign()
        self.clock.advance(minutes=minutes)
        declared = self.beat.engine.declared
        policy = (
            declared[0].build(0).policy.model_dump(include={"window", "overlap_policy", "max_active_runs"})
        )
        extra = declared[0].build(0).policy
        if extra.max_attempts > 1:
            policy |= {"max_attempts": extra.max_attempts, "retry_delay": extra.retry_delay}
        self.beat = Beat(self.url, self.clock, {"etl": ("* * * * *", policy)})
        self.beat.tick()
        self.model.add(minutes)

    @precondition(lambda self: self.model.states)
    @rule(position=POSITIONS, worker=WORKERS)
    def a_message_arrives(self, position: int, worker: str) -> None:
        number = position % len(self.model.states)
        answer = self.beat.leases.claim(self.run_id(number), owner=worker, task="proj.etl", worker="w").answer
        assert answer is self.model.claim(number, worker)

    @precondition(lambda self: self.model.owners)
    @rule(position=POSITIONS, worker=WORKERS, end=ENDS, honest=st.integers(0, 9))
    def a_worker_reports(self, position: int, worker: str, end: RunState, honest: int) -> None:
        number = sorted(self.model.owners)[position % len(self.model.owners)]
        owner = self.model.owners[number] if honest else worker
        outcome = self.beat.leases.finish(self.run_id(number), entry="etl", owner=owner, state=end).outcome
        assert outcome is self.model.finish(number, owner, end)

    @precondition(lambda self: self.model.states)
    @rule()
    def leases_run_out(self) -> None:
        later = int(time.time() * 1000) + 2 * MINUTE
        self.beat.recovery.now_ms = later
        self.beat.engine.services.reaper.reap(later)
        self.beat.recovery.now_ms = 0
        self.model.lapse()

    @precondition(lambda self: self.model.states)
    @rule(position=POSITIONS)
    def somebody_replays(self, position: int) -> None:
        number = position % len(self.model.states)
        assert self.beat.controls.replay(self.run_id(number), entry="etl") is self.model.replay(number)

    @invariant()
    def the_ledger_is_as_the_model_says(self) -> None:
        if hasattr(self, "beat"):
            assert [run["state"] for run in self.beat.ledger.runs_of("etl")] == self.model.states

    @invariant()
    def never_more_are_active_than_allowed(self) -> None:
        if hasattr(self, "beat"):
            assert len(self.beat.ledger.active("etl")) <= self.model.capacity


@pytest.fixture
def play(redis_url: str) -> Iterator[Callable[..., None]]:
    def run(*, examples: int, steps: int) -> None:
        machine = type("Machine", (LedgerMachine,), {"url": redis_url})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )

    yield run
    while OPEN:
        OPEN.pop().close()


def test_random_steps_leave_ledger_and_model_alike(play: Callable[..., None]) -> None:
    play(examples=40, steps=30)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_many_random_steps_leave_ledger_and_model_alike(play: Callable[..., None]) -> None:
    play(examples=500, steps=50)
