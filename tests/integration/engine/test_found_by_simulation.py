"""What the simulator has found, each as a test of its own."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import redis

from celery_catchup.events import EntryHeld
from celery_catchup.testing import FakeClock
from tests.integration.beats import Beat

ENTRIES = {"etl": ("0 * * * *", {"window": "6h", "overlap_policy": "allow"})}
TEN, ELEVEN, NOON = "2026-02-07T10:00:00Z", "2026-02-07T11:00:00Z", "2026-02-07T12:00:00Z"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock("2026-02-07T09:05:00Z")


def test_what_was_missed_before_an_entry_was_paused_is_caught_up_when_it_is_resumed(
    redis_url: str, clock: FakeClock
) -> None:
    first = Beat(redis_url, clock, ENTRIES)
    first.tick()
    first.engine.resign()

    clock.advance(hours=1, minutes=30)  # nobody leads at ten
    first.controls.pause("etl", now=first.engine.now())
    clock.advance(hours=1, minutes=30)
    first.controls.resume("etl")
    Beat(redis_url, clock, ENTRIES).tick()

    assert first.sent("etl") == [TEN, ELEVEN, NOON]


def test_a_standby_that_was_stopped_in_the_midst_of_its_question_does_not_take_a_living_leaders_place(
    redis_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, standby = Beat(redis_url, clock, ENTRIES), Beat(redis_url, clock, ENTRIES)
    leader.tick()
    evalsha = standby.client.evalsha

    def stopped_first(*args: Any) -> Any:
        for _ in range(20):  # longer than the lease, which is renewed meanwhile
            clock.advance(seconds=1)
            leader.tick()
        return evalsha(*args)

    monkeypatch.setattr(standby.client, "evalsha", stopped_first)
    standby.tick()
    monkeypatch.undo()

    assert not standby.tick()
    assert leader.tick()


@pytest.mark.parametrize("fails", ["reading the state", "before a slot is decided"])
def test_a_tick_that_fails_after_the_server_went_back_loses_no_slot(
    redis_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    leader = Beat(redis_url, clock, ENTRIES)
    leader.tick()
    kept: Any = {key: leader.client.dump(key) for key in leader.client.scan_iter()}
    leader.run_for(seconds=2 * 3600, step=600)
    leader.client.flushdb()
    for key, value in kept.items():
        leader.client.restore(key, 0, value)

    with monkeypatch.context() as patch:
        if fails == "reading the state":
            patch.setattr(type(leader.engine.services.states), "load", _unreachable)
        with suppress(redis.ConnectionError):
            leader.engine.lead(leader.engine.now())
    leader.tick()

    assert leader.sent("etl") == [TEN, ELEVEN]


def _unreachable(*_: Any, **__: Any) -> None:
    raise redis.ConnectionError("unreachable")


@pytest.mark.parametrize("then", ["approve", "discard"])
def test_what_is_missed_after_held_runs_were_discarded_is_held_by_itself(
    redis_url: str, clock: FakeClock, then: str
) -> None:
    """A discard comes while no beat runs, and the outage goes on: what is missed after it is not approved."""
    entries = {"etl": ("0 * * * *", {"window": "1d", "overlap_policy": "allow", "hold_above": 3})}
    first = Beat(redis_url, clock, entries)
    first.tick()
    first.engine.resign()
    clock.advance(hours=5)  # 10:00 to 14:00
    second = Beat(redis_url, clock, entries)
    second.tick()
    second.engine.resign()
    clock.advance(minutes=30)
    first.controls.resume("etl", discard=True, now=first.engine.now())
    clock.advance(hours=4)  # 15:00 to 18:00
    third = Beat(redis_url, clock, entries)
    third.run_for(seconds=120)

    assert first.sent("etl") == []
    assert third.told(EntryHeld) == [EntryHeld("etl", 4)]

    clock.advance(minutes=10)
    third.controls.resume("etl", discard=then == "discard", now=third.engine.now())
    third.run_for(seconds=120)

    hours = [f"2026-02-07T{hour}:00:00Z" for hour in range(15, 19)]
    assert first.sent("etl") == (hours if then == "approve" else [])
    assert third.skipped("etl")[0] == ("2026-02-07T10:00:00Z", "2026-02-07T14:00:00Z", 5, "discarded")
    assert len(third.skipped("etl")) == (1 if then == "approve" else 2)
