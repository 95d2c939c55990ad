"""``catchup_on_drift``: the whole declared set is compared with the one that was last accepted."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from celery.schedules import crontab
from redis import Redis

from celery_catchup.store import FencedError, Keys
from celery_catchup.testing import FakeClock
from tests.integration.beats import Beat
from tests.integration.operating import Project

HOURLY: dict[str, Any] = {"task": "proj.etl", "schedule": crontab(minute=0)}
PLAIN: dict[str, Any] = {"task": "proj.etl", "schedule": 30.0}
SCHEDULE = {"a": HOURLY, "b": {"task": "proj.etl", "schedule": "30 * * * *"}, "plain": PLAIN}
POLICIES: dict[str, Any] = {"a": "1h", "b": "1h"}

CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], list[tuple[str, str, str]]]] = {
    "added": ({**SCHEDULE, "c": HOURLY}, POLICIES, [("c", "added", "")]),
    "plain added": ({**SCHEDULE, "c": PLAIN}, POLICIES, [("c", "added", "")]),
    "removed": ({"a": HOURLY, "plain": PLAIN}, {"a": "1h"}, [("b", "removed", "")]),
    "plain removed": ({"a": HOURLY, "b": SCHEDULE["b"]}, POLICIES, [("plain", "removed", "")]),
    "task": ({**SCHEDULE, "a": {**HOURLY, "task": "other"}}, POLICIES, [("a", "changed", "task")]),
    "schedule": (
        {**SCHEDULE, "a": {**HOURLY, "schedule": crontab(minute=5)}},
        POLICIES,
        [("a", "changed", "schedule")],
    ),
    "plain schedule": (
        {**SCHEDULE, "plain": {**PLAIN, "schedule": 31.0}},
        POLICIES,
        [("plain", "changed", "schedule")],
    ),
    "arguments": ({**SCHEDULE, "a": {**HOURLY, "args": (1,)}}, POLICIES, [("a", "changed", "arguments")]),
    "keywords": (
        {**SCHEDULE, "a": {**HOURLY, "kwargs": {"x": 1}}},
        POLICIES,
        [("a", "changed", "arguments")],
    ),
    "options": (
        {**SCHEDULE, "a": {**HOURLY, "options": {"queue": "q"}}},
        POLICIES,
        [("a", "changed", "options")],
    ),
    "policy": (SCHEDULE, {**POLICIES, "a": "2h"}, [("a", "changed", "policy")]),
    "policy lost": (SCHEDULE, {"b": "1h"}, [("a", "changed", "policy")]),
    "dates": (
        SCHEDULE,
        {**POLICIES, "a": {"window": "1h", "start_date": datetime(2026, 1, 1, tzinfo=UTC)}},
        [("a", "changed", "schedule")],
    ),
}
each_change = pytest.mark.parametrize(
    ("schedule", "policies", "differences"), list(CHANGES.values()), ids=list(CHANGES)
)


def a_project(
    url: str, clock: FakeClock, schedule: Any = SCHEDULE, policies: Any = POLICIES, on_drift: str = "refuse"
) -> Project:
    return Project(url, clock, schedule, policies, catchup_on_drift=on_drift)


def starts(project: Project) -> bool:
    ended: list[object] = []
    try:
        project.tick()
    except SystemExit as end:
        ended.append(end.code)
    assert ended in ([], [2])
    return not ended


def found(project: Project) -> list[tuple[str, str, str]]:
    told = project.json("drift", code=3)["differences"]
    return [(one["entry"], one["change"], one["field"]) for one in told]


@each_change
def test_every_difference_is_refused_and_shown_until_it_is_accepted(
    redis_url: str,
    desk_clock: FakeClock,
    capsys: pytest.CaptureFixture[str],
    schedule: Any,
    policies: Any,
    differences: list[tuple[str, str, str]],
) -> None:
    assert starts(a_project(redis_url, desk_clock))
    changed = a_project(redis_url, desk_clock, schedule, policies)

    assert not starts(changed)
    assert "drift accept" in capsys.readouterr().err
    assert found(changed) == differences
    assert starts(a_project(redis_url, desk_clock)), "what was refused was not stored"
    changed.catchup("drift", "accept")
    assert changed.json("drift")["differences"] == []
    assert starts(changed)
    assert not starts(a_project(redis_url, desk_clock)), "what was accepted is what counts now"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"cron": "0 9 * * *", "timezone": "Europe/Berlin"}, {"cron": "0 9 * * *", "timezone": "Asia/Tokyo"}),
        ({"start": "0 9 * * *", "stop": "0 17 * * *"}, {"start": "0 9 * * *", "restart": "0 17 * * *"}),
        ({"start": "0 9 * * *", "stop": "0 17 * * *"}, ["0 9 * * *", "0 17 * * *"]),
    ],
    ids=["zone", "role", "no role"],
)
@pytest.mark.parametrize("policies", [{"a": "1d"}, {}], ids=["with a policy", "without one"])
def test_another_zone_or_role_of_the_same_times_is_refused(
    redis_url: str, desk_clock: FakeClock, before: object, after: object, policies: dict[str, str]
) -> None:
    was, now = ({"a": {"task": "proj.etl", "schedule": written}} for written in (before, after))
    assert starts(a_project(redis_url, desk_clock, was, policies))

    changed = a_project(redis_url, desk_clock, now, policies)

    assert not starts(changed)
    assert found(changed) == [("a", "changed", "schedule")]


@pytest.mark.parametrize("on_drift", ["adopt", "warn"])
@each_change
def test_what_was_adopted_is_not_refused_later(
    redis_url: str,
    desk_clock: FakeClock,
    on_drift: str,
    schedule: Any,
    policies: Any,
    differences: list[tuple[str, str, str]],
) -> None:
    assert starts(a_project(redis_url, desk_clock))
    assert starts(a_project(redis_url, desk_clock, schedule, policies, on_drift=on_drift))

    assert starts(a_project(redis_url, desk_clock, schedule, policies))


def test_the_table_says_what_differs_and_accept_can_be_tried(redis_url: str, desk_clock: FakeClock) -> None:
    a_project(redis_url, desk_clock).tick()
    changed = a_project(redis_url, desk_clock, {**SCHEDULE, "a": {**HOURLY, "task": "other"}})

    text = changed.text("drift", code=3)
    tried = changed.text("drift", "accept", "-n")

    assert "task: was proj.etl, is other" in text
    assert "1 difference (catchup_on_drift: refuse)." in text
    assert tried.endswith("Nothing was changed.\n")
    assert len(found(changed)) == 1


def test_before_the_first_start_nothing_differs(redis_url: str, desk_clock: FakeClock) -> None:
    project = a_project(redis_url, desk_clock)

    assert project.json("drift") == {"onDrift": "refuse", "entries": None, "differences": []}
    assert "No set of entries was accepted yet" in project.text("drift")


def test_doctor_says_what_keeps_a_beat_from_starting(redis_url: str, desk_clock: FakeClock) -> None:
    a_project(redis_url, desk_clock).tick()
    changed = a_project(redis_url, desk_clock, {**SCHEDULE, "c": HOURLY})

    (finding,) = [one for one in changed.json("doctor", code=1)["findings"] if one["check"] == "drift"]

    assert finding["verdict"] == "failure"
    assert "'c' is new" in finding["detail"]
    assert "catchup drift accept" in finding["fix"]


def test_entries_that_change_while_a_beat_leads_are_accepted(redis_url: str, desk_clock: FakeClock) -> None:
    before, after = {"a": ("0 * * * *", {"window": "1h"})}, {"a": ("30 * * * *", {"window": "1h"})}
    beat, other = (Beat(redis_url, desk_clock, entries, on_drift="refuse") for entries in (before, after))
    beat.tick()

    beat.engine.redeclare(other.engine.declared, other.engine.records)
    beat.tick()
    beat.engine.resign()

    assert other.tick()


def test_a_leader_that_reads_its_entries_again_leaves_what_was_accepted_meanwhile(
    redis_url: str, desk_clock: FakeClock
) -> None:
    old, new = a_project(redis_url, desk_clock), a_project(redis_url, desk_clock, {**SCHEDULE, "c": HOURLY})
    with old.beat() as beat:
        beat.tick()
        new.catchup("drift", "accept")
        old.catchup("pause", "a")
        beat.tick()

    assert starts(new)


def test_a_set_that_was_stored_in_part_refuses_nobody(redis_url: str, desk_clock: FakeClock) -> None:
    a_project(redis_url, desk_clock).tick()
    with Redis.from_url(redis_url) as client:
        client.hdel(Keys("proj").accepted, "", "a")

    assert starts(a_project(redis_url, desk_clock))
    assert not starts(a_project(redis_url, desk_clock, {**SCHEDULE, "c": HOURLY}))


def test_a_beat_that_lost_the_lead_accepts_nothing(redis_url: str, desk_clock: FakeClock) -> None:
    beat, other = (Beat(redis_url, desk_clock, {n: ("0 * * * *", {"window": "1h"})}) for n in ("a", "b"))
    beat.tick()
    beat.engine.resign()
    other.tick()

    states = beat.engine.services.states
    with pytest.raises(FencedError):
        states.accept({"c": "{}"}, by=beat.engine.services.leadership)
    assert list(states.accepted()) == ["b"]


def test_secrets_of_arguments_are_not_stored(redis_url: str, desk_clock: FakeClock) -> None:
    a_project(redis_url, desk_clock, {"a": {**HOURLY, "kwargs": {"token": "hunter2"}}}, {"a": "1h"}).tick()

    with Redis.from_url(redis_url) as client:
        stored = client.hgetall(Keys("proj").accepted)
        assert b"a" in stored
        assert b"hunter2" not in b"".join(stored.values())


# -- from version 0.1 -----------------------------------------------------------------------------


def downgrade(url: str, fingerprints: dict[str, str]) -> None:
    """Leave in the store what version 0.1 would have left."""
    with Redis.from_url(url) as client:
        client.delete(Keys("proj").accepted, Keys("proj").fingerprints)
        client.hset(Keys("proj").fingerprints, mapping=fingerprints)


FORMER = {"a": "crontab 0 * * * * (UTC)", "b": "30 * * * *@UTC", "long-gone": "0 0 * * *@UTC"}


@pytest.mark.parametrize("on_drift", ["refuse", "warn"])
def test_an_upgrade_reports_no_drift(
    redis_url: str, desk_clock: FakeClock, caplog: pytest.LogCaptureFixture, on_drift: str
) -> None:
    a_project(redis_url, desk_clock).tick()
    downgrade(redis_url, FORMER)

    assert starts(a_project(redis_url, desk_clock, on_drift=on_drift))

    assert [line for line in caplog.messages if "Entry changed" in line] == []
    with Redis.from_url(redis_url) as client:
        stored = client.hgetall(Keys("proj").fingerprints)
        assert stored[b"a"] == b"v2:crontab 0 * * * * (UTC)"
        assert json.loads(client.hget(Keys("proj").accepted, "b") or "")["schedule"] == "v2:30 * * * *@UTC"


def test_a_schedule_that_changed_with_the_upgrade_is_refused(redis_url: str, desk_clock: FakeClock) -> None:
    a_project(redis_url, desk_clock).tick()
    downgrade(redis_url, {**FORMER, "b": "31 * * * *@UTC"})

    assert not starts(a_project(redis_url, desk_clock))


def test_an_upgrade_is_no_change_of_the_schedule(redis_url: str, desk_clock: FakeClock) -> None:
    policies = {"a": {"window": "6h", "overlap_policy": "all", "on_schedule_change": "from_now"}}
    project = a_project(redis_url, desk_clock, {"a": HOURLY}, policies)
    project.tick()
    downgrade(redis_url, {"a": FORMER["a"]})

    desk_clock.advance(hours=3)
    project.tick()

    assert [slot for slot, _ in project.slots("a")] == [
        "2026-02-07T10:00:00Z",
        "2026-02-07T11:00:00Z",
        "2026-02-07T12:00:00Z",
    ]
