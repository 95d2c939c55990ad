"""New runs that replace the active ones, and schedules that stop them: what is decided is what is revoked."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from redis.exceptions import TimeoutError as RedisTimeoutError

from celery_catchup.model import RunState, Slot, run_id, to_instant
from celery_catchup.store import StartedCommit
from celery_catchup.store.leases import ClaimOutcome, ReportOutcome
from celery_catchup.store.templates import Template
from celery_catchup.store.workers import Workers
from celery_catchup.testing import FakeClock
from tests.integration.beats import NAMESPACE, Beat, Broker

HOURLY = "0 * * * *"
TEN, ELEVEN, NOON, ONE = (f"2026-02-07T{hour}:00:00Z" for hour in (10, 11, 12, 13))
POLICIES = ("skip", "all", "allow", "buffer_one", "cancel_other", "terminate_other")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock("2026-02-07T09:59:50Z")


Start = Callable[..., Beat]


@pytest.fixture
def start(redis_url: str, clock: FakeClock) -> Start:
    def begin(schedule: Any = HOURLY, *, broker: Broker | None = None, **policy: Any) -> Beat:
        beat = Beat(redis_url, clock, {"etl": (schedule, {"window": "6h", **policy})}, broker=broker)
        beat.tick()
        return beat

    return begin


def at(beat: Beat, *moments: str) -> None:
    for moment in moments:
        beat.clock.set(moment)
        beat.tick()


def records(beat: Beat) -> list[dict[str, Any]]:
    return beat.ledger.runs_of("etl")


def claim(beat: Beat, run_id: str, *, owner: str = "w", task_id: str | None = None) -> ClaimOutcome:
    return beat.leases.claim(run_id, owner=owner, task="proj.etl", worker="w1", task_id=task_id).answer


def end(beat: Beat, run_id: str, state: RunState, *, owner: str = "w") -> ReportOutcome:
    return beat.leases.finish(run_id, entry="etl", owner=owner, state=state).outcome


# -- every reply lost ----------------------------------------------------------------------------


class Lossy:
    """Loses the reply to every commit, whatever it says, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lost: set[Any] = set()
        result = StartedCommit.result

        def lost(commit: Any) -> Any:
            answer = result(commit)
            which = tuple((entry.decided, entry.busy) for entry in commit._batch.entries)
            if which not in self.lost:
                self.lost.add(which)
                raise RedisTimeoutError("Timeout reading from socket")
            return answer

        monkeypatch.setattr(StartedCommit, "result", lost)


def tick_on(beat: Beat, *, seconds: int) -> None:
    """Tick as a beat does that goes on whatever its store answers."""
    for _ in range(seconds):
        beat.clock.advance(seconds=1)
        try:
            beat.tick()
        except RedisTimeoutError:
            continue


def play(beat: Beat, *, hours: int, claimed: bool) -> list[str]:
    """Hours of a beat with a worker that takes every message and ends what it is told to terminate, and
    nothing else; the task ids that it executed."""
    executed: list[str] = []
    for _ in range(2 * hours):
        tick_on(beat, seconds=20)
        beat.clock.advance(minutes=29, seconds=40)
        for message in beat.messages()[len(executed) :]:
            executed.append(message["id"])
            if claimed:
                claim(beat, message["id"], owner=message["id"])
        for task in [task for task in beat.broker.terminated if claimed]:
            end(beat, task, RunState.REVOKED, owner=task)
    return executed


SCHEDULES = {
    "start": HOURLY,
    "stop": {"start": HOURLY, "stop": "30 * * * *"},
    "restart": {"start": "0 10 * * *", "restart": "0 11-23 * * *"},
}


@pytest.mark.parametrize("claimed", [False, True], ids=["queued", "running"])
@pytest.mark.parametrize(
    ("schedule", "policy"),
    [*(("start", policy) for policy in POLICIES), ("stop", "all"), ("restart", "all"), ("restart", "allow")],
)
def test_when_every_reply_is_lost_all_is_as_when_none_is(
    start: Start, monkeypatch: pytest.MonkeyPatch, schedule: str, policy: str, *, claimed: bool
) -> None:
    def story() -> dict[str, Any]:
        beat = start(SCHEDULES[schedule], overlap_policy=policy)
        executed = play(beat, hours=4, claimed=claimed)
        assert max(Counter(executed).values()) == 1
        beat.engine.resign()
        return {
            "executed": [slot["slot"] for slot in beat.messages()],
            "runs": [(run["slot"], run["state"]) for run in records(beat)],
            "skips": [(span["first"], span["count"], span["reason"]) for span in beat.ledger.skips_of("etl")],
            "revoked": sorted(set(beat.broker.ended)),
            "terminated": sorted(set(beat.broker.terminated)),
            "pending": beat.ledger.revocations(),
        }

    began = start().clock.now()
    start().client.flushdb()
    expected = story()
    beat = start()
    beat.client.flushdb()
    beat.clock.set(began)
    lossy = Lossy(monkeypatch)
    found = story()

    assert len(lossy.lost) >= 4
    assert found == expected
    assert found["pending"] == {}
    slots = [slot for slot, _ in found["runs"]]
    assert len(slots) == len(set(slots))


# -- what is revoked -----------------------------------------------------------------------------


def test_a_run_that_no_worker_executes_is_over_when_it_is_replaced(start: Start) -> None:
    beat = start(overlap_policy="cancel_other")
    at(beat, TEN, ELEVEN)

    first, second = records(beat)
    assert [(run["state"], run.get("error")) for run in (first, second)] == [
        ("revoked", "replaced by a newer run"),
        ("queued", None),
    ]
    # No worker needs to have heard of it, its message is refused.
    assert claim(beat, first["id"]) is ClaimOutcome.ENDED
    assert (beat.broker.ended, beat.broker.terminated) == ([first["id"]], [])
    assert beat.ledger.active("etl") == [second["id"]]


def test_the_task_that_is_executed_is_revoked_whatever_its_attempt(start: Start) -> None:
    beat = start(overlap_policy="terminate_other", max_attempts=3, retry_delay="1s")
    at(beat, TEN)
    (first,) = records(beat)
    claim(beat, first["id"])
    end(beat, first["id"], RunState.FAILED)
    beat.recovery.now_ms = int(time.time() * 1000) + 5000
    beat.engine.services.reaper.reap(beat.recovery.now_ms)
    again = beat.messages()[-1]["id"]
    assert again == f"{first['id']}-2"
    claim(beat, first["id"], task_id=again)

    at(beat, ELEVEN)

    assert beat.broker.terminated == [
        first["id"],
        again,
    ]  # the worker of the first may only have been cut off
    assert end(beat, first["id"], RunState.REVOKED) is ReportOutcome.RECORDED


def test_a_task_that_retried_itself_is_revoked_by_the_id_that_it_kept(start: Start) -> None:
    beat = start(overlap_policy="terminate_other")
    at(beat, TEN)
    (first,) = records(beat)
    claim(beat, first["id"])
    Workers(beat.store).retry(first["id"], owner="w", delay_ms=0)
    claim(beat, first["id"], owner="w2")
    assert records(beat)[0]["attempt"] == 2

    at(beat, ELEVEN)

    assert first["id"] in beat.broker.terminated


def test_a_run_that_waits_for_its_retry_is_over_when_it_is_replaced(start: Start) -> None:
    beat = start(overlap_policy="cancel_other", max_attempts=2, retry_delay="10m")
    at(beat, TEN)
    (first,) = records(beat)
    claim(beat, first["id"])
    end(beat, first["id"], RunState.FAILED)

    at(beat, ELEVEN)

    assert [run["state"] for run in records(beat)] == ["revoked", "queued"]
    assert beat.client.zcard(beat.keys.retries) == 0


@pytest.mark.parametrize("lost", [False, True])
def test_a_replaced_run_that_fails_or_is_lost_is_not_attempted_again(start: Start, *, lost: bool) -> None:
    beat = start(overlap_policy="cancel_other", max_attempts=3, retry_delay="1s")
    at(beat, TEN)
    (first,) = records(beat)
    claim(beat, first["id"])
    at(beat, ELEVEN)

    if lost:
        beat.leases.now_ms = beat.recovery.now_ms = int(time.time() * 1000) + 600_000
        assert claim(beat, first["id"], owner="w2") is ClaimOutcome.ENDED
        beat.engine.services.reaper.reap(beat.recovery.now_ms)
    else:
        end(beat, first["id"], RunState.FAILED)

    assert records(beat)[0]["state"] == "revoked"
    assert sum(message["id"].startswith(first["id"]) for message in beat.messages()) == 1


def test_a_stop_ends_what_is_active_and_starts_nothing(start: Start) -> None:
    beat = start({"start": "0 10 * * *", "stop": "0 11 * * *"}, overlap_policy="all")
    at(beat, TEN)
    (first,) = records(beat)
    claim(beat, first["id"])

    at(beat, ELEVEN)

    assert beat.broker.terminated == [first["id"]]
    assert [run["state"] for run in records(beat)] == ["running"]


def test_a_restart_starts_at_once_when_no_worker_executes_the_run_before(start: Start) -> None:
    beat = start({"start": "0 10 * * *", "restart": "0 11 * * *"}, overlap_policy="all")

    at(beat, TEN, ELEVEN)

    assert [run["state"] for run in records(beat)] == ["revoked", "queued"]
    assert beat.sent() == [TEN, ELEVEN]


def test_the_slots_own_run_that_was_started_by_hand_is_not_ended(start: Start) -> None:
    beat = start(overlap_policy="terminate_other")
    slot = to_instant(beat.clock.now()) + 10_000
    made = run_id(NAMESPACE, "etl", Slot(slot))
    template = Template("{}", queue="celery", db=0)
    fixed = {"entry": "etl", "task": "proj.etl", "schedule": 0, "trigger": "manual"}
    beat.controls.start(made, {**fixed, "slot": slot, "template": template.id}, template, now=slot - 1000)

    at(beat, TEN)

    assert made not in beat.broker.ended
    assert [run["state"] for run in records(beat)] == ["queued"]


def test_a_leader_that_was_frozen_revokes_nothing_of_its_successor(
    start: Start, redis_url: str, clock: FakeClock
) -> None:
    frozen = start(overlap_policy="terminate_other")
    at(frozen, TEN)
    clock.set(ELEVEN)
    now = frozen.engine.now()
    assert frozen.engine.lead(now)

    successor = Beat(
        redis_url, clock, {"etl": (HOURLY, {"window": "6h", "overlap_policy": "terminate_other"})}
    )
    successor.tick()
    clock.advance(seconds=30)
    successor.tick()
    first, second = records(successor)
    claim(successor, second["id"])
    frozen.engine.advance(now)
    frozen.engine.release(now)

    assert successor.broker.ended == [first["id"]]
    assert frozen.broker.ended == []


@pytest.mark.parametrize("how", ["the leader dies", "the broker is away"])
def test_what_was_replaced_is_revoked_later_when_it_cannot_be_revoked_now(
    start: Start, redis_url: str, clock: FakeClock, how: str
) -> None:
    beat = start(overlap_policy="terminate_other")
    at(beat, TEN)
    (first,) = records(beat)
    claim(beat, first["id"])
    clock.set(ELEVEN)
    if how == "the leader dies":
        now = beat.engine.now()
        beat.engine.lead(now)
        beat.engine.advance(now)
        clock.advance(seconds=30)
        policy = {"window": "6h", "overlap_policy": "terminate_other"}
        beat = Beat(redis_url, clock, {"etl": (HOURLY, policy)})
        beat.tick()
    else:
        beat.broker.down = True
        beat.tick()
        assert beat.ledger.revocations() == {first["id"]: True}
        beat.broker.down = False

    beat.run_for(seconds=40, step=5)

    assert beat.broker.terminated == [first["id"]]
    assert beat.ledger.revocations() == {}
