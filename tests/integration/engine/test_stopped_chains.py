"""`on_failure: stop`: a chain waits for its failed run until that has succeeded, or somebody discards it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from celery_catchup.model import RunState, Slot, run_id, to_instant
from celery_catchup.operations.dead_letters import Outcome, discard, select_dead
from celery_catchup.operations.entries import list_entries
from celery_catchup.store.leases import ReportOutcome
from celery_catchup.store.templates import Template
from celery_catchup.testing import FakeClock
from tests.integration.beats import NAMESPACE, Beat
from tests.integration.operating import ALL, Project

HOURLY = "0 * * * *"
DAY = 86_400_000
Start = Callable[..., Beat]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock("2026-02-07T09:59:30Z")


@pytest.fixture
def stopped(redis_url: str, clock: FakeClock) -> Start:
    def play(*, ends: str = "failed", **policy: Any) -> Beat:
        """A beat whose run of 10:00 has failed, while those of 11:00 and noon wait for it."""
        beat = begin(redis_url, clock, **policy)
        for hour in (10, 11, 12):
            clock.set(f"2026-02-07T{hour}:00:00Z")
            beat.tick()
        end(beat, 0, RunState(ends))
        return beat

    return play


def begin(url: str, clock: FakeClock, **policy: Any) -> Beat:
    chosen = {"window": "6h", "overlap_policy": "all", "on_failure": "stop", **policy}
    beat = Beat(url, clock, {"etl": (HOURLY, chosen)})
    beat.tick()
    return beat


def run_ids(beat: Beat) -> list[str]:
    return [run["id"] for run in beat.ledger.runs_of("etl")]


def end(beat: Beat, index: int, state: RunState) -> ReportOutcome:
    run_id = run_ids(beat)[index]
    beat.leases.claim(run_id, owner="w", task="proj.etl", worker="w1")
    return beat.leases.finish(run_id, entry="etl", owner="w", state=state).outcome


def states(beat: Beat) -> list[str]:
    return [run["state"] for run in beat.ledger.runs_of("etl")]


@pytest.mark.parametrize("ends", ["failed", "revoked"])
def test_a_stopped_chain_waits_across_slots_and_restarts(
    stopped: Start, redis_url: str, clock: FakeClock, ends: str
) -> None:
    beat = stopped(ends=ends)
    over = "dead" if ends == "failed" else "revoked"

    clock.set("2026-02-07T13:00:00Z")
    beat.tick()
    beat.engine.resign()
    clock.set("2026-02-07T15:05:00Z")
    begin(redis_url, clock)

    assert states(beat) == [over, *["waiting"] * 5]


def test_nothing_that_joins_a_stopped_chain_starts(stopped: Start, clock: FakeClock) -> None:
    beat = stopped(jitter="10m")
    template = Template("{}", queue="celery", db=0)
    slot = to_instant(clock.now()) + 60_000
    record = {"entry": "etl", "task": "proj.etl", "schedule": 0, "trigger": "manual", "slot": slot}

    by_hand = run_id(NAMESPACE, "etl", Slot(slot))
    beat.controls.start(by_hand, {**record, "template": template.id}, template, now=slot)
    clock.set("2026-02-07T13:00:00Z")
    beat.tick()
    clock.set("2026-02-07T13:15:00Z")  # a delayed run may go now
    beat.tick()

    assert states(beat) == ["dead", *["waiting"] * 4]


def test_the_success_of_the_replayed_run_lets_the_chain_go_on(stopped: Start, clock: FakeClock) -> None:
    beat = stopped()
    first = run_ids(beat)[0]

    beat.controls.replay(first, entry="etl")
    assert states(beat) == ["queued", "waiting", "waiting"]
    end(beat, 0, RunState.FAILED)
    assert states(beat) == ["dead", "waiting", "waiting"]
    beat.controls.replay(first, entry="etl")
    clock.set("2026-02-07T13:00:00Z")
    beat.tick()
    assert states(beat) == ["queued", "waiting", "waiting", "waiting"]
    end(beat, 0, RunState.SUCCEEDED)

    assert states(beat) == ["succeeded", "queued", "waiting", "waiting"]
    assert beat.client.exists(beat.keys.stopped) == 0


@pytest.mark.parametrize("ends", ["failed", "revoked"])
def test_a_discarded_run_lets_the_chain_go_on(stopped: Start, ends: str) -> None:
    beat = stopped(ends=ends)
    first = run_ids(beat)[0]

    assert beat.controls.discard(first, entry="etl")

    assert states(beat)[1:] == ["queued", "waiting"]
    assert not beat.controls.discard(first, entry="etl")


def test_a_replayed_run_that_is_under_way_cannot_be_discarded(stopped: Start) -> None:
    beat = stopped()
    first = run_ids(beat)[0]
    beat.controls.replay(first, entry="etl")

    assert not beat.controls.discard(first, entry="etl")
    assert states(beat) == ["queued", "waiting", "waiting"]


def test_a_chain_that_two_runs_have_stopped_waits_for_both(stopped: Start) -> None:
    beat = stopped(max_active_runs=2)
    end(beat, 1, RunState.FAILED)
    assert states(beat) == ["dead", "dead", "waiting"]

    beat.controls.discard(run_ids(beat)[0], entry="etl")
    assert states(beat) == ["failed", "dead", "waiting"]
    beat.controls.replay(run_ids(beat)[1], entry="etl")
    end(beat, 1, RunState.SUCCEEDED)

    assert states(beat) == ["failed", "succeeded", "queued"]


@pytest.mark.parametrize("how", ["too old", "too many"])
def test_a_dead_letter_that_is_swept_lets_the_chain_go_on(stopped: Start, clock: FakeClock, how: str) -> None:
    beat = stopped()
    first, second, _ = run_ids(beat)
    later = int(time.time() * 1000) + (40 * DAY if how == "too old" else 61_000)

    housekeeping = beat.housekeeping(most_dead=0 if how == "too many" else 99)
    housekeeping.sweep(later, to_instant(clock.now()), entries=["etl"])

    assert (beat.ledger.run(first) or {}).get("state") == (None if how == "too old" else "failed")
    assert (beat.ledger.run(second) or {})["state"] == "queued"


def test_a_run_whose_workers_are_lost_too_often_stops_its_chain(stopped: Start, clock: FakeClock) -> None:
    beat = stopped(max_attempts=1)
    beat.controls.discard(run_ids(beat)[0], entry="etl")
    beat.leases.claim(run_ids(beat)[1], owner="w", task="proj.etl", worker="w1")
    now = int(time.time() * 1000)
    for lost in range(1, 6):
        beat.recovery.now_ms = beat.leases.now_ms = now + lost * DAY
        beat.engine.services.reaper.reap(beat.recovery.now_ms)
        beat.leases.claim(run_ids(beat)[1], owner=f"w{lost}", task="proj.etl", worker="w1")
    clock.set("2026-02-07T13:00:00Z")
    beat.tick()

    assert states(beat) == ["failed", "dead", "waiting", "waiting"]


def test_a_record_that_cannot_be_read_stops_its_chain(stopped: Start, clock: FakeClock) -> None:
    beat = stopped()
    beat.controls.discard(run_ids(beat)[0], entry="etl")
    broken = run_ids(beat)[1]
    beat.client.hset(beat.keys.ledger, broken, "{")
    beat.client.zadd(beat.keys.leases, {broken: 0})
    beat.engine.services.reaper.reap(int(time.time() * 1000), entries=["etl"])
    clock.set("2026-02-07T13:00:00Z")
    beat.tick()

    assert states(beat) == ["failed", "dead", "waiting", "waiting"]


@pytest.mark.parametrize("overlap", ["skip", "buffer_one"])
def test_a_stopped_entry_loses_no_slot_without_a_reason(
    stopped: Start, clock: FakeClock, overlap: str
) -> None:
    beat = stopped(overlap_policy=overlap)
    for hour in (13, 14):
        clock.set(f"2026-02-07T{hour}:00:00Z")
        beat.tick()

    assert (states(beat)[0], set(states(beat)[1:])) == ("dead", {"waiting"})
    skipped = sum(span["count"] for span in beat.ledger.skips_of("etl"))
    assert skipped + len(states(beat)) == 5


def test_a_policy_that_does_not_stop_any_more_lets_the_chain_go_on(
    stopped: Start, redis_url: str, clock: FakeClock
) -> None:
    stopped().engine.resign()

    beat = begin(redis_url, clock, on_failure="continue")
    clock.set("2026-02-07T13:00:00Z")
    beat.tick()

    assert states(beat) == ["dead", "queued", "waiting", "waiting"]


def test_without_a_chain_nothing_is_stopped(stopped: Start, clock: FakeClock) -> None:
    beat = stopped(overlap_policy="allow")

    assert states(beat) == ["dead", "queued", "queued"]
    clock.set("2026-02-07T13:00:00Z")
    beat.tick()
    assert states(beat)[-1] == "queued"


def test_a_run_that_a_restart_has_ended_does_not_stop_the_chain(redis_url: str, clock: FakeClock) -> None:
    policy = {"window": "6h", "overlap_policy": "all", "on_failure": "stop"}
    schedule = {"start": "0 10 * * *", "restart": "0 11 * * *"}
    beat = Beat(redis_url, clock, {"etl": (schedule, policy)})
    beat.tick()
    clock.set("2026-02-07T10:00:00Z")
    beat.tick()
    beat.leases.claim(run_ids(beat)[0], owner="w", task="proj.etl", worker="w1")
    clock.set("2026-02-07T11:00:00Z")
    beat.tick()

    assert end(beat, 0, RunState.REVOKED) is ReportOutcome.RECORDED

    assert states(beat) == ["revoked", "queued"]


def test_entries_status_and_discard_tell_by_which_run_a_chain_is_stopped(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = Project(redis_url, desk_clock, policies={"hourly-etl": {**ALL, "on_failure": "stop"}})
    project.tick()
    desk_clock.set("2026-02-07T12:02:00Z")
    project.tick()
    (run_id,) = project.execute("hourly-etl", state=RunState.FAILED)
    with project.operator() as operator:
        (entry,) = list_entries(operator, ["hourly-etl"])
        assert entry.stopped_by == (run_id,)
        assert f"stopped by {run_id}" in project.text("entries")
        assert "Stopped by a failed run: hourly-etl" in " ".join(project.text("status").split())

        (done,) = discard(operator, select_dead(operator, [run_id]))

        assert done.outcome is Outcome.DISCARDED
        (entry,) = list_entries(operator, ["hourly-etl"])
        assert entry.stopped_by == ()
