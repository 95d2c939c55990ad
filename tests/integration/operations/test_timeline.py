"""Timelines show each slot exactly once, and never too many values."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from celery.schedules import crontab, schedule

from celery_catchup.model import RunState, SlotMark, to_instant
from celery_catchup.operations.timeline import TimelineSlots, _run_pieces, timeline
from celery_catchup.store import survey
from celery_catchup.store.survey import RunGroup
from celery_catchup.testing import FakeClock
from tests.integration.operating import ALL, HOURLY, Project

MORNING = datetime(2026, 2, 7, 9, 5, tzinfo=UTC)


def lane(project: Project, name: str, *, most: int = 400, hours: int = 24) -> list[TimelineSlots]:
    """The entry's slots from 08:00 on."""
    since = datetime(2026, 2, 7, 8, 0, tzinfo=UTC)
    with project.operator() as operator:
        return timeline(operator, [name], since=since, until=since + timedelta(hours=hours), most=most)[name]


def marks_by_hour(slots: list[TimelineSlots]) -> list[tuple[str, SlotMark]]:
    return [
        (f"{one.first:%H}" if one.count == 1 else f"{one.first:%H}-{one.last:%H}", one.mark) for one in slots
    ]


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    """Beat was down from 09:05 to 13:02."""
    project = Project(redis_url, desk_clock)
    project.tick()
    desk_clock.set("2026-02-07T13:02:00Z")
    project.tick()
    return project


def test_the_mark_of_a_run_is_its_outcome(project: Project, desk_clock: FakeClock) -> None:
    (first,) = project.execute("hourly-etl")
    project.execute("hourly-etl", state=RunState.FAILED)
    project.execute("hourly-etl", state=RunState.REVOKED)
    project.execute("hourly-etl")
    desk_clock.set("2026-02-07T14:00:10Z")
    project.tick()
    project.execute("hourly-etl")
    desk_clock.set("2026-02-07T15:00:10Z")
    project.tick()

    slots = lane(project, "hourly-etl", hours=9)

    assert marks_by_hour(slots) == [
        ("10", SlotMark.CAUGHT_UP),
        ("11", SlotMark.FAILED),
        ("12", SlotMark.FAILED),
        ("13", SlotMark.CAUGHT_UP),
        ("14", SlotMark.ON_TIME),
        ("15", SlotMark.IN_FLIGHT),
        ("16", SlotMark.UPCOMING),
        ("17", SlotMark.UPCOMING),
    ]
    assert slots[0].run_id == first
    assert f"{slots[0].started_at:%H:%M}" == "13:02"


@pytest.mark.parametrize(
    ("policy", "marks"),
    [
        ({"window": "6h"}, "csss"),
        ({"window": "6h", "select": "latest"}, "sssc"),
        (False, "mmmm"),
        ({"window": "90m", "overlap_policy": "all"}, "mmcc"),
    ],
)
def test_skipped_slots_are_shown_one_by_one_and_lost_ones_apart(
    redis_url: str, desk_clock: FakeClock, policy: object, marks: str
) -> None:
    project = Project(redis_url, desk_clock, policies={"hourly-etl": policy})
    project.tick()
    desk_clock.set("2026-02-07T13:02:00Z")
    project.tick()
    project.execute("hourly-etl")
    project.execute("hourly-etl")

    letters = {"c": SlotMark.CAUGHT_UP, "s": SlotMark.SKIPPED, "m": SlotMark.MISSED}
    expected = [(str(hour), letters[mark]) for hour, mark in zip(range(10, 14), marks, strict=True)]
    assert marks_by_hour(lane(project, "hourly-etl", hours=5)) == expected


def test_a_skipped_slot_that_was_backfilled_shows_its_run(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, policies={"hourly-etl": False})
    project.tick()
    desk_clock.set("2026-02-07T13:02:00Z")
    project.tick()
    project.catchup(
        "backfill", "hourly-etl", "--start", "2026-02-07T11:00Z", "--end", "2026-02-07T11:00Z", "-f"
    )
    project.tick()

    marks = dict(marks_by_hour(lane(project, "hourly-etl", hours=5)))

    assert marks == {
        "10": SlotMark.MISSED,
        "11": SlotMark.IN_FLIGHT,
        "12": SlotMark.MISSED,
        "13": SlotMark.MISSED,
    }


@pytest.mark.parametrize(
    ("policy", "marks"),
    [
        ({"window": "6h", "overlap_policy": "all"}, "dddd"),
        ({"window": "90m", "overlap_policy": "all"}, "mmdd"),
        ({"window": "6h", "overlap_policy": "all", "max_runs": 1}, "dmmm"),
        ({"window": "6h", "select": "latest"}, "sssd"),
        ({"window": "6h"}, "dsss"),
        (False, "mmmm"),
    ],
)
def test_while_beat_is_down_a_late_slot_has_the_mark_that_the_next_beat_will_give_it(
    redis_url: str, desk_clock: FakeClock, policy: object, marks: str
) -> None:
    project = Project(redis_url, desk_clock, policies={"hourly-etl": policy})
    project.tick()
    desk_clock.set("2026-02-07T13:02:00Z")

    slots = lane(project, "hourly-etl", hours=6)

    letters = {"d": SlotMark.DUE, "s": SlotMark.SKIPPED, "m": SlotMark.MISSED}
    assert [one.mark for one in slots] == [*(letters[mark] for mark in marks), SlotMark.UPCOMING]


def test_a_slot_younger_than_the_misfire_threshold_is_not_late(
    project: Project, desk_clock: FakeClock
) -> None:
    desk_clock.set("2026-02-07T15:00:30Z")

    slots = lane(project, "hourly-etl", hours=8)

    assert [one.mark for one in slots[4:]] == [SlotMark.DUE, SlotMark.UPCOMING, SlotMark.UPCOMING]


def test_slots_of_a_paused_entry_are_paused_from_then_on(project: Project, desk_clock: FakeClock) -> None:
    for _ in range(4):
        project.execute("hourly-etl")
    project.catchup("pause", "hourly-etl")
    desk_clock.set("2026-02-07T15:00:30Z")
    project.tick()

    assert [mark for _, mark in marks_by_hour(lane(project, "hourly-etl", hours=8))] == [
        SlotMark.CAUGHT_UP
    ] * 4 + [SlotMark.PAUSED] * 3


def test_an_entry_has_no_slots_from_before_it_was_seen_nor_outside_its_dates(
    redis_url: str, desk_clock: FakeClock
) -> None:
    policy = {**ALL, "start_date": "2026-02-07T11:00Z", "end_date": "2026-02-07T12:00Z"}
    project = Project(redis_url, desk_clock, policies={"hourly-etl": policy})
    project.tick()

    assert marks_by_hour(lane(project, "hourly-etl")) == [
        ("11", SlotMark.UPCOMING),
        ("12", SlotMark.UPCOMING),
    ]


def test_an_entry_without_a_policy_shows_only_future_slots(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, policies={})
    project.tick()
    desk_clock.set("2026-02-07T13:02:00Z")
    project.tick()

    assert marks_by_hour(lane(project, "hourly-etl", hours=7)) == [
        ("14", SlotMark.UPCOMING),
        ("15", SlotMark.UPCOMING),
    ]


def test_each_schedule_of_an_entry_has_slots_of_its_own(redis_url: str, desk_clock: FakeClock) -> None:
    entry = {"task": "proj.etl", "schedule": ["0 * * * *", "0 */2 * * *"]}
    project = Project(redis_url, desk_clock, {"e": entry}, {"e": ALL})
    project.tick()

    hours = [hour for hour, _ in marks_by_hour(lane(project, "e", hours=4))]

    assert hours == ["10", "10", "11", "12", "12"]


@pytest.mark.parametrize(
    "written",
    [crontab(), schedule(run_every=7), schedule(run_every=1), crontab(minute="*/5", hour="9-17")],
    ids=["minutely", "7 s", "1 s", "by day"],
)
def test_dense_slots_are_merged_and_none_is_lost_or_shown_twice(
    redis_url: str, desk_clock: FakeClock, written: object
) -> None:
    project = Project(
        redis_url,
        desk_clock,
        {"e": {"task": "proj.etl", "schedule": written}},
        {"e": {"window": "1h", "select": "latest"}},
    )
    project.tick()
    desk_clock.set("2026-02-07T13:02:00Z")
    project.tick()
    project.execute("e")

    with project.operator() as operator:
        (declared,) = operator.every_entry
        anchor = operator.read_stored().anchors["e"]
        table = declared.build(int(anchor)).schedules[0].timetable
        low, high = int(MORNING.timestamp() * 1000), int((MORNING + timedelta(days=1)).timestamp() * 1000)
        found = timeline(operator, ["e"], since=MORNING, until=MORNING + timedelta(days=1), most=100)["e"]

        assert sum(one.count for one in found) == table.count(low, high)
        assert len(found) <= 200
        for one in found:
            begin, end = int(one.first.timestamp() * 1000), int(one.last.timestamp() * 1000)
            assert table.count(begin - 1, end) == one.count
        assert all(a.last < b.first for a, b in pairwise(found))


def test_marks_that_alternate_are_merged_too_and_the_worst_is_shown(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = Project(redis_url, desk_clock, {"e": {"task": "proj.etl", "schedule": crontab()}}, {"e": ALL})
    with project.beat() as beat:
        for minute in range(60):
            beat.tick()
            project.execute("e", state=RunState.FAILED if minute % 2 else RunState.SUCCEEDED)
            desk_clock.advance(seconds=60)

        found, exact = lane(project, "e", most=10, hours=2), lane(project, "e", hours=2)

    assert len(found) <= 10
    minutes = (datetime(2026, 2, 7, 10, 0, tzinfo=UTC) - MORNING) // timedelta(minutes=1)
    assert sum(one.count for one in found) == minutes
    assert {one.mark for one in found} == {SlotMark.FAILED}
    failed = [one for one in exact if one.mark is SlotMark.FAILED]
    assert sum((one.counts or {}).get(SlotMark.FAILED, 0) for one in found) == len(failed)
    assert all(sum((one.counts or {one.mark: one.count}).values()) == one.count for one in found)


@pytest.fixture
def minutely(redis_url: str, desk_clock: FakeClock) -> Project:
    """An hour of minutes: some failed, some are still in flight, and for five of them beat was down."""
    project = Project(redis_url, desk_clock, {"e": {"task": "proj.etl", "schedule": crontab()}}, {"e": ALL})
    with project.beat() as beat:
        for minute in range(60):
            beat.tick()
            if minute % 20 != 19:
                project.execute("e", state=RunState.FAILED if minute in (7, 8, 30) else RunState.SUCCEEDED)
            desk_clock.advance(minutes=6 if minute == 40 else 1)
    return project


def each(slots: list[TimelineSlots]) -> list[tuple[datetime, SlotMark]]:
    """The slots one by one."""
    apart = timedelta(minutes=1)
    return [(one.first + place * apart, one.mark) for one in slots for place in range(one.count)]


def test_dense_runs_have_the_marks_of_their_records(minutely: Project) -> None:
    exact, dense = lane(minutely, "e", hours=2), lane(minutely, "e", hours=2, most=30)

    assert len(dense) < len(exact)
    assert each(dense) == each(exact)


def test_among_dense_runs_one_that_differs_from_its_neighbours_is_named(minutely: Project) -> None:
    exact = {one.first: one for one in lane(minutely, "e", hours=2)}

    (lone,) = [
        one for one in lane(minutely, "e", hours=2, most=30) if one.mark is SlotMark.FAILED and one.count == 1
    ]

    assert lone == exact[lone.first]
    assert lone.run_id is not None


def test_a_record_with_another_state_inside_has_the_mark_of_its_own(minutely: Project) -> None:
    with minutely.operator() as operator:
        client, ledger = operator.store.client, operator.store.keys.ledger
        ids = client.zrange(operator.store.keys.runs_of("e"), 0, -1)
        changed = {**json.loads(client.hget(ledger, ids[3])), "state": "revoked"}
        changed["history"] = [{"state": "succeeded", "error": '"state":"succeeded"'}]
        client.hset(ledger, ids[3], json.dumps(changed, separators=(",", ":")))
        client.hset(ledger, ids[4], "damaged")

    slots = dict(each(lane(minutely, "e", hours=2, most=30)))

    assert [slots[MORNING + timedelta(minutes=minute)] for minute in (3, 4, 5, 6)] == [
        SlotMark.ON_TIME,
        SlotMark.FAILED,
        SlotMark.SKIPPED,
        SlotMark.ON_TIME,
    ]


@pytest.mark.parametrize(
    "damage", [{"schedule": None}, {"schedule": "x"}, {"schedule": "x", "history": [{}]}]
)
def test_a_record_with_a_damaged_schedule_breaks_no_timeline(minutely: Project, damage: object) -> None:
    with minutely.operator() as operator:
        client, ledger = operator.store.client, operator.store.keys.ledger
        run_id = client.zrange(operator.store.keys.runs_of("e"), 3, 3)[0]
        changed = {**json.loads(client.hget(ledger, run_id)), **damage}
        client.hset(ledger, run_id, json.dumps(changed, separators=(",", ":")))

    assert len(list(each(lane(minutely, "e", hours=2, most=30)))) > 30


def test_a_dense_entry_shares_its_budget_with_other_dense_entries_only(
    minutely: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "MOST_RUNS", 200)
    names = ["e", *(f"sparse-{number}" for number in range(20))]
    with minutely.operator() as operator:
        found = operator.survey.runs(names, 0, 2**50, single=30)

    assert found["e"].skipped == 0


def test_a_long_range_reads_the_store_a_fixed_number_of_times(redis_url: str, desk_clock: FakeClock) -> None:
    names = [f"e{number}" for number in range(40)]
    project = Project(redis_url, desk_clock, dict.fromkeys(names, HOURLY), {"*": ALL})
    project.tick()

    def commands(wanted: list[str]) -> int:
        with project.operator() as operator:
            operator.read_stored()
            before = operator.store.client.info("stats")["total_reads_processed"]
            timeline(operator, wanted, since=MORNING, until=MORNING + timedelta(days=7))
            return int(operator.store.client.info("stats")["total_reads_processed"] - before)

    assert commands(names) == commands(names[:1])


def test_a_slot_in_two_recorded_spans_is_shown_once(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, policies={"hourly-etl": False})
    project.tick()
    desk_clock.set("2026-02-07T13:02:00Z")
    project.tick()
    with project.operator() as operator:
        eleven, twelve = (to_instant(datetime(2026, 2, 7, hour, tzinfo=UTC)) for hour in (11, 12))
        again = {"schedule": 0, "first": eleven, "last": twelve, "count": 2, "reason": "superseded"}
        operator.store.client.zadd(operator.store.keys.skips("hourly-etl"), {json.dumps(again): twelve})

    slots = lane(project, "hourly-etl", hours=5)

    assert [hour for hour, _ in marks_by_hour(slots)] == ["10", "11", "12", "13"]


@pytest.mark.parametrize(("other", "counts"), [(1000, [3]), (2000, [1, 2]), (2500, [2, 1]), (3000, [3])])
def test_a_group_of_runs_is_cut_where_another_slot_lies_between(other: int, counts: list[int]) -> None:
    group = RunGroup([1000, 2000, 3000], "succeeded", "scheduler", 0)

    pieces = list(_run_pieces(group, [other], near=1000))

    assert [piece.number for piece in pieces] == counts
