"""What preview says and what the following catch-up does agree, run for run and skip for skip."""

from __future__ import annotations

from collections import Counter
from typing import Any

import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from celery_catchup.operations.previews import preview
from celery_catchup.testing import FakeClock
from tests.integration.operating import Project

CRONS = ("* * * * *", "*/7 * * * *", "0 * * * *", "30 */2 * * *", "15,45 9-11 * * *", "0 10,12 * * *")
MOST_TICKS = 400


@st.composite
def policies(draw: st.DrawFn) -> Any:
    policy: dict[str, Any] = {
        "window": draw(st.sampled_from(["30m", "90m", "3h", "1d"])),
        "select": draw(st.sampled_from(["all", "all", "latest", False])),
        "overlap_policy": draw(
            st.sampled_from(["skip", "all", "allow", "buffer_one", "cancel_other", "terminate_other"])
        ),
        "on_resume": draw(st.sampled_from(["catchup", "discard"])),
        "misfire_threshold": draw(st.sampled_from(["1s", "60s", "10m"])),
        "keep": draw(st.sampled_from(["oldest", "newest"])),
    }
    if draw(st.booleans()):
        policy["max_runs"] = draw(st.integers(1, 5))
    if policy["overlap_policy"] == "all" and draw(st.booleans()):
        policy["max_pending"] = draw(st.integers(1, 5))
    return policy


@st.composite
def stories(draw: st.DrawFn) -> Any:
    names = ["a", "b", "c"][: draw(st.integers(1, 3))]
    return {
        "schedule": {name: draw(st.sampled_from(CRONS)) for name in names},
        "policies": {name: draw(policies()) for name in names},
        "settings": {
            "catchup_batch_size": draw(st.sampled_from([1, 3, 500])),
            "catchup_max_runs": draw(st.sampled_from([None, None, 1, 4])),
        },
        "paused": draw(st.sets(st.sampled_from(names))),
        "resumed": draw(st.booleans()),
        "healthy": draw(st.sampled_from([0, 20, 70])),
        "outage": draw(st.integers(0, 5 * 3600)),
        "executed": draw(st.sets(st.sampled_from(names))),
    }


def play_until_the_outage(project: Project, clock: FakeClock, story: Any) -> None:
    """Beat starts, is healthy for a while, some entries are paused, and it goes down."""
    with project.beat() as beat:
        beat.tick()
        for _ in range(story["healthy"]):
            clock.advance(minutes=1)
            beat.tick()
    for name in story["executed"]:
        while project.execute(name):
            pass
    if story["paused"]:
        project.catchup("pause", *story["paused"])
    clock.advance(seconds=story["outage"])
    if story["resumed"] and story["paused"]:
        project.catchup("resume", *story["paused"])


def said(project: Project) -> dict[str, Any]:
    with project.operator() as operator:
        return {
            one.entry: (
                sorted(slot.scheduled_time for slot in one.slots if slot.action == "dispatch"),
                Counter(str(slot.reason) for slot in one.slots if slot.action == "skip"),
                one.expired,
            )
            for one in preview(operator)
        }


def ledger(project: Project, names: Any) -> dict[str, Any]:
    """The slots that have a run, and how many were skipped for which reason."""
    with project.operator() as operator:
        return {
            name: (
                {run["slot"] for run in operator.ledger.runs_of(name)},
                sum(
                    (Counter({s["reason"]: s["count"]}) for s in operator.ledger.skips_of(name)),
                    Counter[str](),
                ),
            )
            for name in names
        }


def catch_up(project: Project) -> None:
    """A beat comes back and ticks until everything is decided."""
    with project.beat() as beat:
        for _ in range(MOST_TICKS):
            beat.tick()
            work: Any = beat._work
            if work.engine.entries.settled(work.engine.now()):
                return
        raise AssertionError("the catch-up does not end")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(story=stories())
def test_preview_and_the_following_catch_up_agree(story: Any, redis_url: str, desk_clock: FakeClock) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
    desk_clock.set("2026-02-07T09:05:00Z")
    entries = {name: {"task": "proj.etl", "schedule": cron} for name, cron in story["schedule"].items()}
    project = Project(redis_url, desk_clock, entries, story["policies"], **story["settings"])
    play_until_the_outage(project, desk_clock, story)

    announced = said(project)
    before = ledger(project, entries)
    catch_up(project)
    after = ledger(project, entries)

    for name, (dispatched, skipped, expired) in announced.items():
        runs = after[name][0] - before[name][0]
        reasons = after[name][1] - before[name][1]
        gone = reasons.pop("expired", 0)
        assert sorted(runs) == [int(moment.timestamp() * 1000) for moment in dispatched], name
        assert reasons == skipped, name
        assert gone == expired, name
