"""What preview says and what the following catch-up does agree, run for run and skip for skip."""

from __future__ import annotations

from collections import Counter
from datetime import UTC
from typing import Any

import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from celery_catchup.model import to_instant
from celery_catchup.operations.previews import preview
from celery_catchup.store.states import held_entries
from celery_catchup.testing import FakeClock
from celery_catchup.timetables.cron_dialects import parse_cron
from tests.integration.operating import Project

CRONS = ("* * * * *", "*/7 * * * *", "0 * * * *", "30 */2 * * *", "15,45 9-11 * * *", "0 10,12 * * *")
EXCLUDED = ("2026-02-07", "* 10 * * *", "2026-02-07T10:20..2026-02-07T11:00")
MOST_TICKS = 400


@st.composite
def policies(draw: st.DrawFn) -> Any:
    policy: dict[str, Any] = {
        "window": draw(st.sampled_from(["30m", "90m", "3h", "1d"])),
        "select": draw(st.sampled_from(["all", "all", "latest", "span", False])),
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
    if policy["select"] == "span" and draw(st.booleans()):
        policy["max_span"] = draw(st.sampled_from(["10m", "1h"]))
    if draw(st.booleans()):
        policy["exclude"] = draw(st.sampled_from(EXCLUDED))
    if draw(st.booleans()):
        policy["catch_up"] = {"queue": "late"}
    return policy


@st.composite
def stories(draw: st.DrawFn) -> Any:
    names = ["a", "b", "c"][: draw(st.integers(1, 3))]
    # What a held catch-up does not use of a shared cap, others use before it is approved.
    hold, most = draw(st.sampled_from([(None, None), (None, 1), (None, 4), (1, None), (5, None)]))
    return {
        "schedule": {name: draw(st.sampled_from(CRONS)) for name in names},
        "policies": {name: draw(policies()) for name in names},
        "settings": {
            "catchup_batch_size": draw(st.sampled_from([1, 3, 500])),
            "catchup_max_runs": most,
            "catchup_hold_above": hold,
            "catchup_max_active": draw(st.sampled_from([None, None, 1, 3])),
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
                sorted(
                    (to_instant(slot.scheduled_time), slot.slots, slot.run_id)
                    for slot in one.slots
                    if slot.action == "dispatch"
                ),
                Counter(str(slot.reason) for slot in one.slots if slot.action == "skip"),
                one.expired,
                one.held,
            )
            for one in preview(operator)
        }


def ledger(project: Project, names: Any) -> dict[str, Any]:
    """The slots that have a run, and how many were skipped for which reason."""
    with project.operator() as operator:
        return {
            name: (
                {(run["slot"], run.get("slots", 1), run["id"]) for run in operator.ledger.runs_of(name)},
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


def held(project: Project) -> set[str]:
    with project.operator() as operator:
        return set(held_entries(operator.read_stored()))


def check_that_each_slot_is_in_one_place(project: Project, schedule: dict[str, str]) -> None:
    """Every slot since the first start that is decided has a run, or is in one record of skipped slots."""
    with project.operator() as operator:
        stored = operator.read_stored()
        for name, cron in schedule.items():
            slots = list(parse_cron(cron, zone=UTC).slots(int(stored.first_seen[name]), operator.now()))
            places = Counter(run["slot"] for run in operator.ledger.runs_of(name))
            for skip in operator.ledger.skips_of(name):
                if skip["reason"] != "already_exists":
                    places.update(at for at in slots if skip["first"] <= at <= skip["last"])
            decided = int(stored.decided.get(name, 0))
            assert places == Counter(at for at in slots if at <= decided), name


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
    assert held(project) == {name for name, one in announced.items() if one[3]}
    if waiting := sorted(held(project)):
        assert said(project) == announced | {name: said(project)[name] for name in {*announced} - {*waiting}}
        project.catchup("approve", *waiting)
        catch_up(project)
    after = ledger(project, entries)

    check_that_each_slot_is_in_one_place(project, story["schedule"])
    for name, (dispatched, skipped, expired, _) in announced.items():
        runs = after[name][0] - before[name][0]
        reasons = after[name][1] - before[name][1]
        gone = reasons.pop("expired", 0)
        assert sorted(runs) == dispatched, name
        assert reasons == skipped, name
        assert gone == expired, name
