"""The life of runs after they were dispatched: claims, ends, attempts, losses, replays, retention."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from celery_catchup.errors import UnfitStoreError
from celery_catchup.events import (
    CatchupCompleted,
    CatchupStarted,
    RunDied,
    RunResent,
    RunSkipped,
)
from celery_catchup.model import RunState, Slot, run_id, to_instant
from celery_catchup.store import Replay
from celery_catchup.store.leases import ClaimOutcome, ReportOutcome
from celery_catchup.store.listing import Listing
from celery_catchup.store.templates import Template
from celery_catchup.testing import FakeClock
from tests.integration.beats import NAMESPACE, Beat, Broker

HOURLY = "0 * * * *"
TEN, ELEVEN, NOON = (f"2026-02-07T{hour}:00:00Z" for hour in (10, 11, 12))
MINUTE = 60_000

Start = Callable[..., Beat]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock("2026-02-07T09:04:00Z")


@pytest.fixture
def outage(redis_url: str, clock: FakeClock) -> Start:
    def play(**policy: Any) -> Beat:
        """A beat that comes back at 12:02 after an outage since 09:04."""
        entries = {"etl": (HOURLY, {"window": "6h", "overlap_policy": "all", **policy})}
        first = Beat(redis_url, clock, entries)
        first.tick()
        first.engine.resign()
        clock.set("2026-02-07T12:02:00Z")
        second = Beat(redis_url, clock, entries)
        second.tick()
        return second

    return play


def claim(beat: Beat, run_id: str, owner: str = "worker-a", task: str = "proj.etl") -> ClaimOutcome:
    return beat.leases.claim(run_id, owner=owner, task=task, worker="w1").answer


def end(beat: Beat, run_id: str, state: RunState, owner: str = "worker-a", **more: Any) -> ReportOutcome:
    return beat.leases.finish(run_id, entry="etl", owner=owner, state=state, **more)[0]


def work(beat: Beat, state: RunState = RunState.SUCCEEDED) -> list[str]:
    """A worker that executes every message there is and that comes; the slots in order."""
    done: list[str] = []
    while len(beat.messages()) > len(done):
        message = beat.messages()[len(done)]
        run_id = message["id"][:36]
        claim(beat, run_id)
        end(beat, run_id, state)
        done.append(message["slot"])
    return done


def by_hand(slot: int, template: Template) -> dict[str, Any]:
    """The record of a run that somebody starts."""
    fixed = {"entry": "etl", "task": "proj.etl", "schedule": 0, "trigger": "manual"}
    return {**fixed, "slot": slot, "template": template.id}


def states(beat: Beat) -> list[str]:
    return [run["state"] for run in beat.ledger.runs_of("etl")]


def lapse(beat: Beat, *, minutes: int) -> None:
    """Let the leader look at what is overdue, so much later by the server's clock."""
    later = int(time.time() * 1000) + minutes * MINUTE
    beat.recovery.now_ms = later
    beat.engine.services.reaper.reap(later)


def test_a_chain_runs_in_order_one_after_another(outage: Start) -> None:
    beat = outage()

    assert work(beat) == [TEN, ELEVEN, NOON]
    assert states(beat) == ["succeeded"] * 3


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.REVOKED])
def test_a_chain_goes_on_when_a_run_does_not_succeed(outage: Start, state: RunState) -> None:
    assert work(outage(), state) == [TEN, ELEVEN, NOON]


def test_a_chain_stops_at_a_failure_when_the_policy_says_so(outage: Start) -> None:
    beat = outage(on_failure="stop")

    assert work(beat, RunState.FAILED) == [TEN]
    assert states(beat) == ["dead", "waiting", "waiting"]


def test_as_many_runs_are_active_as_the_policy_allows(outage: Start) -> None:
    beat = outage(max_active_runs=2)

    assert beat.sent() == [TEN, ELEVEN]
    (first, _, _) = beat.ledger.runs_of("etl")
    claim(beat, first["id"])
    end(beat, first["id"], RunState.SUCCEEDED)
    assert beat.sent() == [TEN, ELEVEN, NOON]


def test_a_run_is_given_to_one_worker_only(outage: Start) -> None:
    beat = outage()
    run_id = beat.ledger.runs_of("etl")[0]["id"]

    answers = [claim(beat, run_id, owner) for owner in ("worker-a", "worker-b", "worker-a")]

    assert answers == [ClaimOutcome.GRANTED, ClaimOutcome.HELD, ClaimOutcome.GRANTED]
    end(beat, run_id, RunState.SUCCEEDED)
    assert claim(beat, run_id, "worker-c") is ClaimOutcome.ENDED


def test_another_task_cannot_borrow_a_run_and_a_forged_one_is_unknown(outage: Start) -> None:
    beat = outage()
    run_id = beat.ledger.runs_of("etl")[0]["id"]

    assert claim(beat, run_id, task="proj.other") is ClaimOutcome.FOREIGN
    assert claim(beat, "0" * 36) is ClaimOutcome.UNKNOWN


@pytest.mark.parametrize(
    ("task_id", "answer"),
    [
        ("{run}", ClaimOutcome.GRANTED),
        ("{run}-2", ClaimOutcome.GRANTED),
        ("{run}-2x", ClaimOutcome.FOREIGN),
        ("{run}-", ClaimOutcome.FOREIGN),
        ("{run}2", ClaimOutcome.FOREIGN),
        ("8c1f4c9e-56a5-4f4c-8f0e-0f6f5f4c1d11", ClaimOutcome.FOREIGN),
    ],
)
def test_a_message_is_the_runs_own_by_its_task_id(outage: Start, task_id: str, answer: ClaimOutcome) -> None:
    beat = outage()
    run_id = beat.ledger.runs_of("etl")[0]["id"]

    claimed = beat.leases.claim(
        run_id, owner="w", task="proj.etl", worker="w1", task_id=task_id.format(run=run_id)
    )

    assert claimed.answer is answer
    assert states(beat)[0] == ("running" if answer is ClaimOutcome.GRANTED else "queued")


def test_a_run_with_a_message_of_the_users_own_belongs_to_the_first_that_claims_it(outage: Start) -> None:
    beat = outage()
    slot = to_instant(beat.clock.now())
    beat.controls.record_manual_run("r1", {**by_hand(slot, Template("")), "template": ""}, now=slot)

    def claim_as(task_id: str, owner: str) -> ClaimOutcome:
        return beat.leases.claim("r1", owner=owner, task="proj.etl", worker="w1", task_id=task_id).answer

    assert claim_as("mine", "worker-a") is ClaimOutcome.GRANTED
    assert claim_as("a child with the same headers", "worker-b") is ClaimOutcome.FOREIGN
    # Nobody can send it again, so its message must not be acknowledged.
    assert claim_as("mine", "worker-b") is ClaimOutcome.LATER
    assert end(beat, "r1", RunState.SUCCEEDED) is ReportOutcome.RECORDED
    assert claim_as("mine", "worker-b") is ClaimOutcome.ENDED


def test_a_worker_of_an_older_version_does_not_touch_newer_records(outage: Start) -> None:
    beat = outage()
    run_id = beat.ledger.runs_of("etl")[0]["id"]
    record = json.dumps({**(beat.ledger.run(run_id) or {}), "newer": {"list": [], "id": 12345678901234567}})
    beat.client.hset(beat.keys.ledger, run_id, record)
    beat.client.hset(beat.keys.meta, "schema", 99)

    with pytest.raises(UnfitStoreError, match="has schema 99, this version of celery_catchup knows"):
        claim(beat, run_id)
    with pytest.raises(UnfitStoreError, match="upgrade it"):
        end(beat, run_id, RunState.SUCCEEDED)

    assert beat.client.hget(beat.keys.ledger, run_id) == record.encode()


def test_an_end_is_recorded_once_and_only_by_the_owner(outage: Start) -> None:
    beat = outage()
    run_id = beat.ledger.runs_of("etl")[0]["id"]
    claim(beat, run_id)

    assert end(beat, run_id, RunState.SUCCEEDED, owner="worker-b") is ReportOutcome.SUPERSEDED
    assert end(beat, run_id, RunState.SUCCEEDED) is ReportOutcome.RECORDED
    assert end(beat, run_id, RunState.FAILED) is ReportOutcome.ENDED
    assert states(beat)[0] == "succeeded"


def test_a_silent_worker_loses_its_run_and_learns_of_it(outage: Start) -> None:
    beat = outage()
    run_id = beat.ledger.runs_of("etl")[0]["id"]
    claim(beat, run_id)

    lapse(beat, minutes=2)

    (again,) = beat.told(RunResent)
    assert (again.run_id, again.reason) == (run_id, "its worker was lost")
    assert beat.messages()[-1]["id"] == f"{run_id}-2"
    assert claim(beat, run_id, "worker-b") is ClaimOutcome.GRANTED
    assert beat.leases.renew([(run_id, "worker-a")]) == [run_id]
    assert end(beat, run_id, RunState.SUCCEEDED, owner="worker-a") is ReportOutcome.SUPERSEDED
    assert end(beat, run_id, RunState.SUCCEEDED, owner="worker-b") is ReportOutcome.RECORDED


def test_a_run_that_kills_its_workers_is_given_up_and_the_chain_goes_on(outage: Start) -> None:
    beat = outage()
    run_id = beat.ledger.runs_of("etl")[0]["id"]

    for attempt in range(1, 5):
        claim(beat, run_id, owner=f"worker-{attempt}")
        lapse(beat, minutes=2 * attempt)

    assert len(beat.told(RunResent)) == 3
    assert len(beat.told(RunDied)) == 1
    assert states(beat) == ["dead", "queued", "waiting"]


def test_a_failed_run_is_attempted_again_in_its_place_then_dead(outage: Start) -> None:
    beat = outage(max_attempts=2, retry_delay="5m")
    run_id = beat.ledger.runs_of("etl")[0]["id"]
    claim(beat, run_id)
    end(beat, run_id, RunState.FAILED, error="ValueError: no")

    before = (states(beat), len(beat.messages()))
    lapse(beat, minutes=4)
    early = len(beat.messages())
    lapse(beat, minutes=6)

    assert before == (["waiting", "waiting", "waiting"], 1)
    assert early == 1
    assert [message["id"] for message in beat.messages()] == [run_id, f"{run_id}-2"]
    claim(beat, run_id, "worker-b")
    end(
        beat,
        run_id,
        RunState.FAILED,
        owner="worker-b",
        error="ValueError: no",
        letter='{"category": "permanent"}',
    )
    assert states(beat) == ["dead", "queued", "waiting"]
    ((dead, letter, _),) = Listing(beat.store).dead()
    assert (dead["id"], dead["error"], letter) == (
        run_id,
        "ValueError: no",
        {"category": "permanent"},
    )


def test_a_dead_run_pauses_its_entry_when_the_policy_says_so(outage: Start, clock: FakeClock) -> None:
    beat = outage(pause_on_failure=True)
    work(beat, RunState.FAILED)

    clock.set("2026-02-07T13:00:00Z")
    beat.tick()

    assert "2026-02-07T13:00:00Z" not in beat.dispatched("etl")


def test_a_replay_is_a_new_attempt_of_the_same_run(outage: Start) -> None:
    beat = outage(overlap_policy="allow")
    run_id = beat.ledger.runs_of("etl")[0]["id"]
    assert beat.controls.replay(run_id, entry="etl") is Replay.IN_FLIGHT
    work(beat, RunState.FAILED)

    answer = beat.controls.replay(run_id, entry="etl")

    assert answer is Replay.REPLAYED
    assert beat.messages()[-1] == {**beat.messages()[0], "id": f"{run_id}-2"}
    assert beat.controls.replay(run_id, entry="etl") is Replay.IN_FLIGHT
    assert beat.controls.replay("0" * 36, entry="etl") is Replay.UNKNOWN
    assert len(list(Listing(beat.store).dead())) == 2


def test_a_discarded_dead_letter_stays_in_the_ledger_as_failed(outage: Start) -> None:
    beat = outage()
    work(beat, RunState.FAILED)
    *_, (oldest, _, _) = Listing(beat.store).dead()
    run_id = oldest["id"]

    assert tuple(beat.controls.discard(run_id, entry="etl") for _ in range(2)) == (True, False)
    assert states(beat) == ["failed", "dead", "dead"]


def test_a_paused_entry_catches_up_when_it_is_resumed(redis_url: str, clock: FakeClock) -> None:
    beat = Beat(redis_url, clock, {"etl": (HOURLY, {"window": "6h", "overlap_policy": "allow"})})
    beat.tick()
    assert beat.controls.pause("etl", now=beat.engine.now(), reason="migration")
    assert not beat.controls.pause("etl", now=beat.engine.now())
    beat.run_for(seconds=3 * 3600, step=60)
    paused = beat.sent()

    assert beat.controls.resume("etl")
    beat.tick()

    assert paused == []
    assert beat.sent() == [TEN, ELEVEN, NOON]
    assert not beat.controls.resume("etl")
    clock.set("2026-02-07T13:00:00Z")
    beat.tick()
    assert beat.sent()[-1] == "2026-02-07T13:00:00Z"


@pytest.mark.parametrize("policy", [{"on_resume": "discard"}, {}])
def test_what_was_missed_while_paused_can_be_discarded(
    redis_url: str, clock: FakeClock, policy: dict[str, Any]
) -> None:
    beat = Beat(redis_url, clock, {"etl": (HOURLY, {"window": "6h", "overlap_policy": "allow", **policy})})
    beat.tick()
    beat.controls.pause("etl", now=beat.engine.now())
    beat.run_for(seconds=3 * 3600, step=60)

    beat.controls.resume("etl", discard=not policy)
    beat.tick()

    assert beat.sent() == []
    assert [event.skip.count for event in beat.told(RunSkipped)] == [3]
    assert beat.skipped("etl")[0][3] == "paused"


def test_a_manual_run_counts_for_what_was_missed_before_it(redis_url: str, clock: FakeClock) -> None:
    entries = {"etl": (HOURLY, {"window": "6h", "overlap_policy": "allow"})}
    first = Beat(redis_url, clock, entries)
    first.tick()
    first.engine.resign()
    clock.set("2026-02-07T10:30:00Z")
    template = Template('{"slot": "@catchup:scheduled_time@", "entry": "etl"}', queue="celery", db=0)
    now = first.engine.now()
    record = by_hand(now, template)
    assert first.controls.start("m1", record, template, now=now)
    assert not first.controls.start("m1", record, template, now=now)
    clock.set("2026-02-07T12:02:00Z")
    beat = Beat(redis_url, clock, entries)

    beat.tick()

    assert beat.sent() == ["2026-02-07T10:30:00Z", ELEVEN, NOON]


def test_a_slot_is_skipped_after_a_manual_success_when_the_policy_says_so(
    redis_url: str, clock: FakeClock
) -> None:
    entries = {"etl": (HOURLY, {"window": "6h", "overlap_policy": "allow", "skip_if_successful": True})}
    beat = Beat(redis_url, clock, entries)
    beat.tick()
    clock.set("2026-02-07T09:30:00Z")
    template = Template(
        '{"slot": "@catchup:scheduled_time@", "entry": "etl", "id": "m"}', queue="celery", db=0
    )
    now = beat.engine.now()
    record = by_hand(now, template)
    beat.controls.start("m1", record, template, now=now)
    claim(beat, "m1")
    end(beat, "m1", RunState.SUCCEEDED)

    for at in (TEN, ELEVEN):
        clock.set(at)
        beat.tick()

    assert beat.dispatched("etl") == [ELEVEN]
    assert beat.skipped("etl") == [(TEN, TEN, 1, "guard_blocked")]


def test_ended_runs_are_forgotten_after_their_time_and_live_ones_are_not(outage: Start) -> None:
    beat = outage(overlap_policy="allow")
    first = beat.ledger.runs_of("etl")[0]["id"]
    claim(beat, first)
    end(beat, first, RunState.SUCCEEDED)
    in_40_days = int(time.time() * 1000) + 40 * 24 * 60 * MINUTE

    beat.housekeeping().sweep(in_40_days, 0, entries=["etl"])

    assert [run["slot"] for run in beat.ledger.runs_of("etl")] == [1770462000000, 1770465600000]
    assert beat.ledger.run(first) is None


def test_more_ended_runs_than_one_sweep_takes_are_forgotten_tick_by_tick(outage: Start) -> None:
    beat = outage(overlap_policy="allow")
    ended = {f"old{number}": json.dumps({"entry": "etl", "state": "succeeded"}) for number in range(1200)}
    beat.client.hset(beat.keys.ledger, mapping=ended)
    beat.client.zadd(beat.keys.ended, dict.fromkeys(ended, 1))
    a_minute_later, left = int(time.time() * 1000) + MINUTE, []
    housekeeping = beat.housekeeping(ttl_days=1)

    for tick in range(4):
        housekeeping.sweep(a_minute_later + tick, 0, entries=["etl"])
        left.append(beat.client.zcard(beat.keys.ended))

    assert left == [700, 200, 0, 0]


def test_a_message_that_was_made_for_one_run_is_kept_as_long_as_the_run(
    redis_url: str, clock: FakeClock
) -> None:
    broker = Broker()
    broker.hooked = True
    beat = Beat(
        redis_url, clock, {"etl": (HOURLY, {"window": "6h", "overlap_policy": "allow"})}, broker=broker
    )
    for at in ("2026-02-07T09:59:00Z", TEN, "2026-02-07T10:59:00Z", ELEVEN):
        clock.set(at)
        beat.tick()
    first = beat.ledger.runs_of("etl")[0]["id"]
    claim(beat, first)
    end(beat, first, RunState.SUCCEEDED)
    assert beat.client.hlen(beat.keys.templates) == 2

    in_40_days = int(time.time() * 1000) + 40 * 24 * 60 * MINUTE
    beat.housekeeping().sweep(in_40_days, 0, entries=["etl"])

    (left,) = beat.ledger.runs_of("etl")
    assert beat.client.hkeys(beat.keys.templates) == [left["template"].encode()]


def test_a_slot_that_has_its_run_takes_no_other_slots_place(redis_url: str, clock: FakeClock) -> None:
    beat = Beat(redis_url, clock, {"etl": ("* * * * *", {"window": "6h", "overlap_policy": "skip"})})
    clock.set("2026-02-07T09:59:30Z")
    beat.tick()
    template = Template('{"slot": "@catchup:scheduled_time@", "entry": "etl"}', queue="celery", db=0)
    record = by_hand(to_instant(datetime.fromisoformat(TEN)), template)
    made = run_id(NAMESPACE, "etl", Slot(record["slot"]))
    beat.controls.start(made, record, template, now=record["slot"])
    claim(beat, made)
    end(beat, made, RunState.SUCCEEDED)
    beat.client.hdel(beat.keys.manual, "etl")  # as if it had been made in another way

    clock.set("2026-02-07T10:01:00Z")
    beat.tick()

    assert beat.dispatched("etl") == ["2026-02-07T10:01:00Z"]
    assert beat.skipped("etl") == [(TEN, TEN, 1, "already_exists")]


def test_restart_ends_the_active_run_and_starts_one(redis_url: str, clock: FakeClock) -> None:
    beat = Beat(redis_url, clock, {"etl": (HOURLY, {"window": "6h", "overlap_policy": "terminate_other"})})
    beat.tick()
    for at in (TEN, ELEVEN):
        clock.set(at)
        beat.tick()

    assert beat.sent() == [TEN, ELEVEN]
    assert beat.broker.ended == [beat.ledger.runs_of("etl")[0]["id"]]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"overlap_policy": "buffer_one"}, (["queued", "waiting"], 1)),
        ({"overlap_policy": "all", "max_pending": 1}, (["queued", "waiting"], 1)),
        ({"overlap_policy": "cancel_other"}, (["queued"], 2)),
        ({"overlap_policy": "allow"}, (["queued", "queued", "queued"], 0)),
    ],
)
def test_of_three_missed_slots_the_overlap_policy_keeps(
    outage: Start, policy: dict[str, Any], expected: tuple[list[str], int]
) -> None:
    beat = outage(**policy)

    assert (states(beat), sum(span[2] for span in beat.skipped("etl"))) == expected


def test_a_change_from_outside_does_not_restart_a_catch_up(redis_url: str, clock: FakeClock) -> None:
    entries = {
        "etl": ("* * * * *", {"window": "1d", "overlap_policy": "allow", "max_runs": 5}),
        "other": (HOURLY, {"window": "6h"}),
    }
    first = Beat(redis_url, clock, entries)
    first.tick()
    first.engine.resign()
    clock.advance(minutes=30)
    beat = Beat(redis_url, clock, entries, batch_size=2)
    beat.tick()

    beat.controls.pause("other", now=beat.engine.now())
    for _ in range(5):
        beat.tick()

    assert len(beat.sent("etl")) == 5
    assert beat.skipped("etl")[0][2:] == (25, "cap_exceeded")
    assert len(beat.told(CatchupStarted)) == len(beat.told(CatchupCompleted)) == 1
