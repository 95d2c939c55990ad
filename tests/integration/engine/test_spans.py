"""Spans: one run stands for a whole gap, or a part of a backfill, and says so to its task."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from celery_catchup.engine import backfill_runner
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
    shown = project.json("runs", "show", span["catchup_run_id"])["run"]
    assert (shown["slots"], shown["dataIntervalStart"]) == (6, "2026-02-07T03:00:00Z")
    assert "Stands for" in project.text("runs", "show", span["catchup_run_id"])
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


# -- backfills ---------------------------------------------------------------------------------

ALL = {"window": "6h", "overlap_policy": "all"}
DAY = ("--start", "2026-02-06", "--end", "2026-02-06")


def backfilled(
    project: Project, *options: str, state: RunState = RunState.SUCCEEDED, ticks: int = 1
) -> dict[str, Any]:
    """Create a backfill, and run what it dispatches."""
    made = project.json("backfill", "etl", *options, "--max-active", "10", "-f")["id"]
    for _ in range(ticks):
        project.tick()
    project.execute("etl", backfill=made, state=state)
    project.tick()
    found: dict[str, Any] = project.json("backfill", "show", made)
    return found


def fates(project: Project) -> list[tuple[str, int, str | None]]:
    """Return the records of skipped slots, the oldest first: reason, number, run."""
    found = project.json("runs", "etl", "--state", "skipped", "--limit", "1000")["skipped"]
    return [(one["reason"], one["count"], one["runId"]) for one in reversed(found)]


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    """Beat was down on the whole day before, which is outside the window."""
    desk_clock.set("2026-02-05T23:30:00Z")
    project = Project(redis_url, desk_clock, {"etl": HOURLY}, {"etl": ALL | {"window": "1h"}})
    project.tick()
    desk_clock.set("2026-02-07T09:30:00Z")
    project.tick()
    project.execute("etl")
    return project


def spans(url: str) -> list[tuple[str, int]]:
    return [
        (one["scheduled_time"][8:13], one.get("catchup_slots", 1))
        for one in headers(url)
        if one["trigger_type"] == "backfill"
    ]


@pytest.mark.parametrize("order", [(), ("--newest-first",)])
def test_a_backfill_makes_one_run_for_each_span_in_either_order(
    project: Project, redis_url: str, order: tuple[str, ...]
) -> None:
    done = backfilled(project, *DAY, "--span", "10h", *order)

    expected = [("06T09", 10), ("06T19", 10), ("06T23", 4)]
    assert spans(redis_url) == (expected[::-1] if order else expected)
    assert (done["state"], done["total"], done["dispatched"], done["skipped"]) == ("completed", 24, 3, 21)
    assert done["span"] == 36_000
    ids = {one["scheduled_time"][8:13]: one["catchup_run_id"] for one in headers(redis_url)}
    assert fates(project)[:-1] == [
        ("covered", 9, ids["06T09"]),
        ("expired", 1, None),
        ("covered", 9, ids["06T19"]),
        ("expired", 1, None),
        ("covered", 3, ids["06T23"]),
    ]


def test_its_slots_are_not_lost_any_more_and_why_names_the_backfill(project: Project) -> None:
    before = project.json("status")["notRecovered"]
    made = backfilled(project, *DAY, "--span", "1d")

    assert before == 33
    assert project.json("status")["notRecovered"] == before - 24
    (answer,) = project.json("why", "etl", "2026-02-06T03:00Z")["answers"]
    assert (answer["reason"], answer["rule"], answer["values"]["backfill"]) == (
        "covered",
        "backfill",
        made["id"],
    )


def test_the_preview_of_spans_is_what_happens(project: Project, redis_url: str) -> None:
    shown = project.json("backfill", "etl", *DAY, "--span", "10h", "-n")
    assert spans(redis_url) == []

    backfilled(project, *DAY, "--span", "10h")

    planned = [one for one in shown["slots"] if one["action"] == "dispatch"]
    assert [(one["scheduledTime"][8:13], one["slots"]) for one in planned] == spans(redis_url)
    dispatched = {one["catchup_run_id"] for one in headers(redis_url)}
    assert {one["runId"] for one in planned} <= dispatched
    assert sum(one["reason"] == "covered" for one in shown["slots"]) == 21


def test_slots_that_a_run_stands_for_are_not_run_again_unless_they_are_reprocessed(
    project: Project, redis_url: str
) -> None:
    backfilled(project, *DAY, "--span", "1d")

    again = backfilled(project, *DAY, "--span", "1d")
    part = backfilled(project, "--start", "2026-02-06T03:00Z", "--end", "2026-02-06T05:00Z")
    assert (again["dispatched"], part["dispatched"]) == (0, 0)

    backfilled(project, *DAY, "--span", "1d", "--reprocess", "completed")
    first, second = (one for one in headers(redis_url) if one["trigger_type"] == "backfill")
    assert second["catchup_run_id"] == first["catchup_run_id"], "the same span is the same run"
    assert second["data_interval_start"] == first["data_interval_start"] == "2026-02-05T23:00:00Z"
    assert second["catchup_slots"] == 24


def test_slots_with_a_run_of_their_own_are_not_counted(project: Project, redis_url: str) -> None:
    backfilled(project, "--start", "2026-02-06T03:00Z", "--end", "2026-02-06T03:00Z")

    backfilled(project, *DAY, "--span", "1d")

    assert spans(redis_url)[-1] == ("06T23", 23)
    covered = [count for reason, count, _ in fates(project) if reason == "covered"]
    assert covered == [3, 19]


def test_a_replay_of_a_backfilled_span_keeps_the_interval(project: Project, redis_url: str) -> None:
    backfilled(project, *DAY, "--span", "1d", state=RunState.DEAD)
    (first,) = (one for one in headers(redis_url) if one["trigger_type"] == "backfill")

    project.catchup("dlq", "replay", first["catchup_run_id"], "-f")

    again = headers(redis_url)[-1]
    assert (again["data_interval_start"], again["catchup_slots"]) == ("2026-02-05T23:00:00Z", 24)


def test_many_spans_are_decided_in_parts(
    project: Project, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill_runner, "_PART", 2)

    done = backfilled(project, *DAY, "--span", "5h", ticks=2)

    assert spans(redis_url) == [("06T04", 5), ("06T09", 5), ("06T14", 5), ("06T19", 5), ("06T23", 4)]
    assert (done["state"], done["dispatched"], done["skipped"]) == ("completed", 5, 19)


def test_very_many_spans_cannot_begin_with_the_newest(project: Project) -> None:
    wide = ("--start", "2026-01-01", "--end", "2026-02-06", "--span", "10m", "--newest-first", "-n")

    assert "the range may have 2,000 spans" in project.catchup("backfill", "etl", *wide, code=1).stderr
