"""Records that somebody else has damaged: one run or one entry suffers, the others go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from celery_catchup.events import RunDied, StateSuspect
from celery_catchup.model import RunState
from celery_catchup.store.leases import ClaimOutcome, ReportOutcome
from celery_catchup.testing import FakeClock
from tests.integration.beats import Beat
from tests.integration.operating import ALL, HOURLY, Project

NINE, TEN, NOON = "2026-02-07T09:04:00Z", "2026-02-07T10:00:00Z", "2026-02-07T12:00:30Z"
ENTRIES = {
    "etl": ("0 * * * *", {"window": "6h", "overlap_policy": "all"}),
    "other": ("0 * * * *", {"window": "6h", "overlap_policy": "all"}),
}

DAMAGES: dict[str, Callable[[str], str | bytes]] = {
    "truncated": lambda text: text[: len(text) // 2],
    "empty": lambda _: "",
    "a list": lambda _: "[]",
    "a number": lambda _: "5",
    "bytes": lambda _: b"\x80\x04\x95pickled",
    "an unknown state": lambda text: json.dumps({**json.loads(text), "state": "hibernating"}),
    "a slot that is none": lambda text: json.dumps({**json.loads(text), "slot": "ten"}),
    "no entry": lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != "entry"}),
}
each_damage = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())


def behind(url: str, clock: FakeClock) -> Beat:
    """Three slots of each entry were missed: the first of each is sent, the others wait."""
    beat = Beat(url, clock, ENTRIES)
    beat.tick()
    clock.set(NOON)
    beat.tick()
    return beat


def harm(beat: Beat, run_id: str, damage: Callable[[str], str | bytes]) -> None:
    text: Any = beat.client.hget(beat.keys.ledger, run_id)
    beat.client.hset(beat.keys.ledger, run_id, damage(text.decode()))


def end(beat: Beat, run_id: str) -> ReportOutcome:
    beat.leases.claim(
        run_id, owner="w", task=json.loads(beat.client.hget(beat.keys.ledger, run_id))["task"], worker="w"
    )
    return beat.leases.finish(run_id, entry="etl", owner="w", state=RunState.SUCCEEDED)[0]


@each_damage
def test_a_waiting_run_whose_record_is_damaged_becomes_a_dead_letter_and_the_chain_goes_on(
    redis_url: str, damage: Callable[[str], str | bytes]
) -> None:
    beat = behind(redis_url, FakeClock(NINE))
    first, second, third = (run["id"] for run in beat.ledger.runs_of("etl"))
    harm(beat, second, damage)

    end(beat, first)
    beat.run_for(seconds=3)

    assert beat.client.zscore(beat.keys.dead, second) is not None
    record: Any = json.loads(beat.client.hget(beat.keys.ledger, second))
    assert (record["entry"], record["state"]) == ("etl", "dead")
    assert record["error"].startswith("corrupt")
    assert [e.reason for e in beat.told(RunDied)] == ["its record could not be read"]
    assert beat.ledger.run(third)["state"] == "queued"
    assert beat.sent("other") == [TEN]


@each_damage
def test_a_sent_run_whose_record_is_damaged_is_executed_by_nobody_and_buried_when_its_time_is_up(
    redis_url: str, damage: Callable[[str], str | bytes]
) -> None:
    beat = behind(redis_url, FakeClock(NINE))
    first, second, _ = (run["id"] for run in beat.ledger.runs_of("etl"))
    harm(beat, first, damage)

    assert beat.leases.claim(first, owner="w", task="proj.etl", worker="w").answer is ClaimOutcome.UNKNOWN
    assert beat.leases.renew([(first, "w")]) == [first]
    finish = beat.leases.finish(first, entry="etl", owner="w", state=RunState.SUCCEEDED)
    assert finish[0] is ReportOutcome.UNKNOWN
    beat.client.zadd(beat.keys.leases, {first: 1})
    beat.run_for(seconds=3)

    assert beat.client.zscore(beat.keys.dead, first) is not None
    assert beat.ledger.run(second)["state"] == "queued"


@each_damage
def test_a_catch_up_over_a_damaged_record_runs_neither_it_nor_anything_twice(
    redis_url: str, damage: Callable[[str], str | bytes]
) -> None:
    clock = FakeClock(NINE)
    beat = behind(redis_url, clock)
    damaged = beat.ledger.runs_of("etl")[1]["id"]
    harm(beat, damaged, damage)
    before = len(beat.messages())
    beat.client.hset(beat.keys.decided, "etl", beat.client.hget(beat.keys.first_seen, "etl"))
    beat.client.delete(beat.keys.leader)

    successor = Beat(redis_url, clock, ENTRIES)
    successor.tick()

    assert len(successor.messages()) == before


@pytest.mark.parametrize("column", ["paused", "manual"])
def test_what_is_noted_of_one_entry_and_cannot_be_read_is_said_and_stops_nobody(
    redis_url: str, column: str
) -> None:
    clock = FakeClock(NINE)
    beat = behind(redis_url, clock)
    beat.client.hset(getattr(beat.keys, column), "etl", "{broken")
    beat.client.incr(beat.keys.version)

    clock.set("2026-02-07T13:00:00Z")
    beat.tick()

    assert any("'{broken'" in event.what for event in beat.told(StateSuspect))
    assert len(beat.ledger.runs_of("etl")) == len(beat.ledger.runs_of("other")) == 4


def test_a_damaged_template_or_backfill_stops_no_tick(redis_url: str) -> None:
    clock = FakeClock(NINE)
    beat = behind(redis_url, clock)
    for template in beat.client.hkeys(beat.keys.templates):
        beat.client.hset(beat.keys.templates, template, "{broken")
    beat.client.hset(beat.keys.backfills, "x", "{broken")
    beat.client.incr(beat.keys.version)

    clock.set("2026-02-07T13:00:00Z")
    beat.tick()

    assert len(beat.ledger.runs_of("other")) == 4
    assert beat.backfills.all() == []


@pytest.mark.parametrize("value", [b"x", b"*list"])
def test_a_leaders_record_of_another_kind_is_taken_over_when_it_does_not_move(
    redis_url: str, value: bytes
) -> None:
    clock = FakeClock(NINE)
    beat = Beat(redis_url, clock, ENTRIES)
    beat.tick()
    beat.client.delete(beat.keys.leader)
    if value.startswith(b"*"):
        beat.client.rpush(beat.keys.leader, value)
    else:
        beat.client.set(beat.keys.leader, value)

    led = [beat.tick()]
    clock.set(TEN)
    for _ in range(12):
        clock.advance(seconds=1)
        led.append(beat.tick())

    assert led[0] is False
    assert led[-1] is True
    assert beat.sent("etl") == [TEN]


def test_a_leader_whose_fence_is_deleted_writes_nothing_and_leads_again_with_a_higher_one(
    redis_url: str,
) -> None:
    clock = FakeClock(NINE)
    beat = Beat(redis_url, clock, ENTRIES)
    beat.tick()
    before = beat.engine.epoch
    clock.set(TEN)
    now = beat.engine.now()
    beat.engine.lead(now)
    beat.client.delete(beat.keys.leader)

    beat.engine.advance(now)
    assert beat.sent() == []
    assert beat.engine.leading is False

    beat.tick()
    assert beat.engine.epoch == before + 1
    assert beat.sent("etl") == [TEN]


@pytest.mark.parametrize("kind", ["runs_of", "active", "chain", "skips", "hours_of"])
def test_an_entry_with_a_key_of_the_wrong_kind_is_set_aside_and_the_others_go_on(
    redis_url: str, desk_clock: FakeClock, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    project = Project(redis_url, desk_clock, dict.fromkeys("abc", HOURLY), {"*": ALL})
    project.tick()
    with project.operator() as operator:
        key = getattr(operator.store.keys, kind)("b")
        operator.store.client.delete(key)
        operator.store.client.set(key, "somebody else's")
        desk_clock.set("2026-02-07T12:02:00Z")
        project.tick()
        others = [slots(project, name) for name in "ac"]
        said = [one for one in caplog.messages if "Entry cannot be dispatched" in one]

        operator.store.client.delete(key)
        desk_clock.advance(seconds=90)
        project.tick()

    assert others == [["10:00", "11:00", "12:00"]] * 2
    assert slots(project, "b") == ["10:00", "11:00", "12:00"]
    assert said
    assert key in said[0]


def slots(project: Project, entry: str) -> list[str]:
    return [slot[11:16] for slot, _ in project.slots(entry)]
