"""Spans: one run stands for a whole gap, and says so to its task."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import redis

from celery_catchup.model import RunState
from celery_catchup.testing import FakeClock
from tests.integration.operating import HOURLY, Project

SPAN = {"window": "1d", "select": "span", "overlap_policy": "all"}


def after_an_outage(url: str, clock: FakeClock, **policy: Any) -> Project:
    """Beat was down from 03:30 to 10:00 and a little."""
    clock.set("2026-02-07T03:30:00Z")
    project = Project(url, clock, {"etl": HOURLY}, {"etl": SPAN | policy})
    project.tick()
    clock.set("2026-02-07T10:00:10Z")
    project.tick()
    return project


def headers(url: str) -> list[dict[str, Any]]:
    with redis.Redis.from_url(url) as client:
        found: Any = client.lrange("celery", 0, -1)
    every = [json.loads(one)["headers"] for one in reversed(found)]
    return [one for one in every if one.get("catchup_entry") == "etl"]


def test_the_whole_gap_is_one_run_and_the_live_slot_its_own(redis_url: str, desk_clock: FakeClock) -> None:
    project = after_an_outage(redis_url, desk_clock)

    (span,) = headers(redis_url)  # the live one waits in the chain
    assert span["scheduled_time"] == "2026-02-07T09:00:00Z"
    assert span["catchup_slots"] == 6
    assert (span["data_interval_start"], span["data_interval_end"]) == (
        "2026-02-07T03:00:00Z",
        "2026-02-07T09:00:00Z",
    )
    with project.running("etl") as run:
        assert run.slots == 6
        assert run.data_interval.start == datetime(2026, 2, 7, 3, tzinfo=UTC)
        assert run.environ()["CATCHUP_SLOTS"] == "6"
    (skipped,) = project.json("runs", "etl", "--state", "skipped")["skipped"]
    assert (skipped["reason"], skipped["count"]) == ("covered", 5)
    assert skipped["runId"] == span["catchup_run_id"]


def test_a_longer_gap_becomes_consecutive_spans_in_order(redis_url: str, desk_clock: FakeClock) -> None:
    project = after_an_outage(redis_url, desk_clock, max_span="4h")
    for _ in range(2):
        project.execute("etl")
    live = "2026-02-07T10:00:00Z"

    assert [one["scheduled_time"] for one in headers(redis_url)] == [
        "2026-02-07T07:00:00Z",
        "2026-02-07T09:00:00Z",
        live,
    ]
    assert [one.get("catchup_slots") for one in headers(redis_url)] == [4, 2, None]


def test_the_same_span_is_the_same_run(redis_url: str, desk_clock: FakeClock) -> None:
    project = after_an_outage(redis_url, desk_clock)
    project.execute("etl")
    project.execute("etl")

    project.catchup("watermark", "set", "etl", "2026-02-07T03:30Z", "-f")
    project.tick()

    assert [one["scheduled_time"] for one in headers(redis_url)].count("2026-02-07T09:00:00Z") == 1


def test_a_replay_keeps_the_interval(redis_url: str, desk_clock: FakeClock) -> None:
    project = after_an_outage(redis_url, desk_clock)
    (span,) = headers(redis_url)
    project.execute("etl", state=RunState.DEAD, error="no")
    project.catchup("dlq", "replay", span["catchup_run_id"], "-f")
    project.execute("etl")  # the live slot, which was next

    first, again = (one for one in headers(redis_url) if one["catchup_run_id"] == span["catchup_run_id"])
    assert first == span
    assert (again["data_interval_start"], again["catchup_slots"]) == (span["data_interval_start"], 6)
