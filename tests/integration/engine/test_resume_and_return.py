"""What happens to the time in which an entry was paused, removed, without a policy, or in the future."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from celery_catchup.operations.pauses import pause, resume
from celery_catchup.operations.previews import preview
from celery_catchup.testing import FakeClock
from tests.integration.engine.test_caps_and_room import skips, times
from tests.integration.operating import ALL, HOURLY, Project

DISCARD = {**ALL, "window": "1d", "on_resume": "discard"}
ENTRY = "hourly-etl"


def at(clock: FakeClock, time: str) -> None:
    clock.set(f"2026-02-07T{time}:00Z")


def do(project: Project, operation: Any, **options: Any) -> None:
    with project.operator() as operator:
        operation(operator, [ENTRY], **options)


# -- pause and resume ------------------------------------------------------------------------


def test_a_discarding_resume_discards_the_pause_and_not_the_outage_after_it(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = Project(redis_url, desk_clock, None, {ENTRY: DISCARD})
    project.tick()
    do(project, pause)
    at(desk_clock, "11:10")
    do(project, resume)
    at(desk_clock, "14:05")

    project.tick()

    assert times(project, ENTRY) == ["12:00", "13:00", "14:00"]
    assert skips(project, ENTRY) == [("10:00", "11:00", 2, "paused")]


def test_a_discarding_resume_does_not_discard_the_outage_before_the_pause(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = Project(redis_url, desk_clock, None, {ENTRY: DISCARD})
    project.tick()
    at(desk_clock, "11:05")  # nobody led since 09:05
    do(project, pause)
    at(desk_clock, "13:05")
    do(project, resume)

    project.tick()

    assert times(project, ENTRY) == ["10:00", "11:00"]
    assert skips(project, ENTRY) == [("12:00", "13:00", 2, "paused")]


def test_two_pauses_that_no_beat_has_seen_are_discarded_each_for_itself(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = Project(redis_url, desk_clock, None, {ENTRY: DISCARD})
    project.tick()
    for time, operation in (("09:10", pause), ("10:10", resume), ("11:10", pause), ("12:10", resume)):
        at(desk_clock, time)
        do(project, operation)
    at(desk_clock, "13:05")

    with project.operator() as operator:
        (ahead,) = preview(operator, [ENTRY])
    project.tick()

    assert times(project, ENTRY) == ["11:00", "13:00"]
    assert skips(project, ENTRY) == [("10:00", "10:00", 1, "paused"), ("12:00", "12:00", 1, "paused")]
    assert (ahead.dispatched, ahead.skipped) == (2, 2)


def test_one_resume_discards_and_the_other_catches_up(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, None, {ENTRY: {**ALL, "window": "1d"}})
    project.tick()
    for time, operation, options in (
        ("09:10", pause, {}),
        ("10:10", resume, {"catchup": False}),
        ("10:20", pause, {}),
        ("11:10", resume, {"catchup": True}),
    ):
        at(desk_clock, time)
        do(project, operation, **options)

    project.tick()

    assert times(project, ENTRY) == ["11:00"]
    assert skips(project, ENTRY) == [("10:00", "10:00", 1, "paused")]


def test_a_resume_before_the_start_date_leaves_no_watermark_in_the_future(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = Project(redis_url, desk_clock, None, {ENTRY: {**ALL, "start_date": "2026-03-01"}})
    project.tick()
    do(project, pause)
    at(desk_clock, "09:15")
    do(project, resume)
    project.tick()

    project = Project(redis_url, desk_clock, None, {ENTRY: ALL})
    at(desk_clock, "12:05")
    project.tick()

    assert times(project, ENTRY) == ["10:00", "11:00", "12:00"]


# -- removed and back ------------------------------------------------------------------------


def test_the_time_in_which_an_entry_was_removed_is_on_record(
    redis_url: str, desk_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    both, one = {ENTRY: HOURLY, "other": HOURLY}, {"other": HOURLY}
    full = Project(redis_url, desk_clock, both, dict.fromkeys(both, ALL))
    without = Project(redis_url, desk_clock, one, dict.fromkeys(one, ALL))
    full.tick()
    for time in ("09:10", "11:05", "12:05"):
        at(desk_clock, time)
        without.tick()
    at(desk_clock, "13:05")  # nobody led since 12:05

    with full.operator() as operator:
        (ahead,) = preview(operator, [ENTRY])
    full.tick()

    assert skips(full, ENTRY) == [("10:00", "12:00", 3, "removed")]
    assert times(full, ENTRY) == ["13:00"]
    assert (ahead.dispatched, ahead.skipped) == (1, 3)
    command = "catchup backfill hourly-etl --start 2026-02-07T12:00:00Z --end 2026-02-07T12:00:00Z"
    assert command in caplog.text

    full.execute(ENTRY)
    at(desk_clock, "14:05")
    full.tick()

    assert skips(full, ENTRY) == [("10:00", "12:00", 3, "removed")]
    assert times(full, ENTRY) == ["13:00", "14:00"]


def test_an_entry_that_is_removed_twice_has_both_times_on_record(
    redis_url: str, desk_clock: FakeClock
) -> None:
    both, one = {ENTRY: HOURLY, "other": HOURLY}, {"other": HOURLY}
    full = Project(redis_url, desk_clock, both, dict.fromkeys(both, ALL))
    without = Project(redis_url, desk_clock, one, dict.fromkeys(one, ALL))
    full.tick()
    for time, project in (
        ("09:10", without),
        ("10:05", without),
        ("10:10", full),
        ("11:00", full),
        ("11:10", without),
        ("12:05", without),
        ("12:10", full),
    ):
        at(desk_clock, time)
        project.tick()

    assert skips(full, ENTRY) == [("10:00", "10:00", 1, "removed"), ("12:00", "12:00", 1, "removed")]
    assert times(full, ENTRY) == ["11:00"]


def test_an_entry_that_had_no_policy_for_a_while_was_not_removed(
    redis_url: str, desk_clock: FakeClock
) -> None:
    governed = Project(redis_url, desk_clock, None, {ENTRY: ALL})
    plain = Project(redis_url, desk_clock, None, {})
    governed.tick()
    at(desk_clock, "09:10")
    plain.tick()
    at(desk_clock, "10:00")
    plain.tick()
    at(desk_clock, "10:30")

    governed.tick()

    assert skips(governed, ENTRY) == []


# -- a policy is added -----------------------------------------------------------------------


def test_an_entry_that_gets_a_policy_replays_from_its_last_run_as_preview_says(
    redis_url: str, desk_clock: FakeClock
) -> None:
    schedule = {ENTRY: {"task": "proj.etl", "schedule": timedelta(minutes=10)}}
    plain = Project(redis_url, desk_clock, schedule, {})
    with plain.beat() as beat:
        beat.tick()
        at(desk_clock, "09:15")
        beat.tick()
    at(desk_clock, "10:00")
    governed = Project(redis_url, desk_clock, schedule, {ENTRY: {"window": "30m", "overlap_policy": "allow"}})
    with plain.operator() as operator:
        (imagined,) = preview(operator, [ENTRY], window=timedelta(minutes=30))
    with governed.operator() as operator:
        (ahead,) = preview(operator, [ENTRY])

    governed.tick()

    assert times(governed, ENTRY) == ["09:35", "09:45", "09:55"]
    assert (ahead.dispatched, ahead.expired, imagined.expired) == (3, 1, 1)
    assert skips(governed, ENTRY) == [("09:25", "09:25", 1, "expired")]


# -- the clock -------------------------------------------------------------------------------


def test_a_clock_that_jumps_ahead_and_back_leaves_no_entry_silent(
    redis_url: str, desk_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    project = Project(redis_url, desk_clock, None, {ENTRY: {"window": "6h", "overlap_policy": "allow"}})
    with project.beat() as beat:
        beat.tick()
        desk_clock.set("2036-02-07T09:05:00Z")
        beat.tick()
        at(desk_clock, "09:30")
        beat.tick()
        assert "the watermark of entry 'hourly-etl' is 2036-02-07T09:05:00Z, in the future" in caplog.text
        at(desk_clock, "10:00")
        beat.tick()

    here = [slot for slot, _ in project.slots(ENTRY) if slot.startswith("2026")]
    assert here == ["2026-02-07T10:00:00Z"]


# -- impossible slots ------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["2026-01-31T10:00Z", "2026-02-07T09:00Z"])
def test_a_slot_outside_of_the_entrys_dates_cannot_be_started(
    redis_url: str, desk_clock: FakeClock, moment: str
) -> None:
    dates = {"start_date": "2026-02-01", "end_date": "2026-02-07T08:30Z"}
    project = Project(redis_url, desk_clock, None, {ENTRY: {**ALL, **dates}})

    refused = project.catchup("run", ENTRY, "--at", moment, code=1)

    assert "is not a slot of entry 'hourly-etl'" in refused.stderr
    project.catchup("run", ENTRY, "--at", "2026-02-07T08:00Z", "-n")


def test_next_respects_dates_and_pauses(redis_url: str, desk_clock: FakeClock) -> None:
    policies = {
        "ended": {**ALL, "end_date": "2020-01-01"},
        "later": {**ALL, "start_date": "2030-01-01"},
        "paused": ALL,
        "own": False,
    }
    mapping = [
        {"cron": "0 * * * *", "catchup": "all", "catchupWindow": "6h"},
        {"cron": "30 9 * * *", "catchup": "latest", "catchupWindow": "1d"},
    ]
    schedule = dict.fromkeys(policies, HOURLY) | {"own": {"task": "proj.etl", "schedule": mapping}}
    del policies["own"]
    project = Project(redis_url, desk_clock, schedule, policies)
    project.catchup("pause", "paused")

    found = {one["name"]: one for one in project.json("entries")["entries"]}

    assert {name: one["next"] for name, one in found.items()} == {
        "ended": None,
        "later": "2030-01-01T00:00:00Z",
        "paused": None,
        "own": "2026-02-07T09:30:00Z",
    }
    assert (found["own"]["catchup"], found["own"]["window"]) == ("all, latest", "6h, 1d")
