"""Lanes: catch-up and backfill runs go to their own queue and priority, live runs to theirs."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import redis

from celery_catchup.model import RunState
from celery_catchup.store import Leases
from celery_catchup.testing import FakeClock
from tests.integration.operating import HOURLY, Project

POLICY = {"window": "6h", "overlap_policy": "allow"}


def project(url: str, clock: FakeClock, policy: dict[str, Any], **settings: Any) -> Project:
    """Beat was down from 08:30 to 11:00."""
    clock.set("2026-02-07T08:30:00Z")
    made = Project(url, clock, {"etl": {**HOURLY, "options": {"queue": "live"}}}, {"etl": policy}, **settings)
    with made.beat() as beat:
        beat.tick()
    clock.set("2026-02-07T11:00:10Z")
    with made.beat() as beat:
        beat.tick()
    return made


def messages(url: str, queue: str) -> list[dict[str, Any]]:
    with redis.Redis.from_url(url) as client:
        found: Any = client.lrange(queue, 0, -1)
    return [json.loads(one) for one in reversed(found)]


def slots(url: str, queue: str) -> list[str]:
    return [one["headers"]["scheduled_time"][11:16] for one in messages(url, queue)]


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        (POLICY, {"catchup_queue": "late"}),
        ({**POLICY, "catch_up": {"queue": "late"}}, {"catchup_queue": "elsewhere"}),
    ],
    ids=["of the app", "of the policy"],
)
def test_missed_slots_go_to_the_queue_of_catch_ups_and_live_ones_to_their_own(
    redis_url: str, desk_clock: FakeClock, policy: dict[str, Any], settings: dict[str, Any]
) -> None:
    project(redis_url, desk_clock, policy, **settings)

    assert slots(redis_url, "late") == ["09:00", "10:00"]
    assert slots(redis_url, "live") == ["11:00"]


@pytest.mark.parametrize("priority", [9, "lowest"])
def test_a_priority_is_that_of_the_message(
    redis_url: str, desk_clock: FakeClock, priority: int | str
) -> None:
    project(redis_url, desk_clock, POLICY, catchup_priority=priority)

    lowest = "live\x06\x169"  # kombu's queue of that priority
    assert slots(redis_url, lowest) == ["09:00", "10:00"]
    assert {one["properties"]["priority"] for one in messages(redis_url, lowest)} == {9}
    assert slots(redis_url, "live") == ["11:00"]


def test_a_backfill_and_a_replay_stay_in_the_lane(redis_url: str, desk_clock: FakeClock) -> None:
    made = project(redis_url, desk_clock, POLICY, catchup_queue="late")
    made.catchup("backfill", "etl", "--start", "2026-02-07T06:00Z", "--end", "2026-02-07T07:00Z", "-f")

    with made.beat() as beat:
        beat.tick()
    made.execute("etl", state=RunState.FAILED)
    made.catchup("dlq", "replay", "--all", "-f")

    assert slots(redis_url, "late") == ["09:00", "10:00", "06:00", "09:00", "10:00"]
    assert slots(redis_url, "live") == ["11:00", "11:00"]


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ({"catch_up": "late"}, "expected a mapping such as"),
        ({"catch_up": {"que": "late"}}, "did you mean 'queue'?"),
        ({"catch_up": {"priority": 256}}, "expected a whole number from 0 to 255 or 'lowest', got 256"),
    ],
)
def test_a_wrong_lane_says_what_to_write(
    redis_url: str, desk_clock: FakeClock, policy: dict[str, Any], problem: str
) -> None:
    made = Project(redis_url, desk_clock, {"etl": HOURLY}, {"etl": {**POLICY, **policy}})

    assert problem in made.catchup("preview", code=2).stderr


@pytest.mark.parametrize("seed", range(4))
def test_under_all_the_order_of_slots_is_kept_across_both_queues(
    redis_url: str, desk_clock: FakeClock, seed: int
) -> None:
    chance = random.Random(seed)
    limit = chance.choice([None, 1, 2])
    made = project(
        redis_url,
        desk_clock,
        POLICY | {"overlap_policy": "all", "catch_up": {"queue": "late"}},
        catchup_max_active=limit,
    )
    started = list[str]()
    with redis.Redis.from_url(redis_url) as client, made.beat() as beat, made.operator() as operator:
        leases = Leases(operator.store, ttl_ms=60_000, now_ms=1)
        while len(started) < 8:
            if chance.random() < 0.4 and desk_clock.now().hour < 16:
                desk_clock.advance(minutes=chance.choice([1, 60]))
                beat.tick()
            queue = chance.choice(["late", "live"])
            text: Any = client.rpop(queue)
            if text is not None:
                headers = json.loads(text)["headers"]
                run_id, slot = headers["catchup_run_id"], headers["scheduled_time"]
                started.append(slot)
                leases.claim(run_id, owner="w", task="proj.etl", worker="w1", entry="etl")
                leases.finish(run_id, entry="etl", owner="w", state=RunState.SUCCEEDED)

    assert started == [f"2026-02-07T{hour:02}:00:00Z" for hour in range(9, 17)]
