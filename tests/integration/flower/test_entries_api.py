"""Stored entries over HTTP: only allowed tasks, with the revision that the client has read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from celery_catchup.stored_entries.entries import Entries
from celery_catchup.testing import FakeClock
from tests.integration.flowers import SCRIPT, Site, flower
from tests.integration.operating import Project

NEW_PREVIEW = {"schedule": {"every": "15m"}}
NEW = {"name": "sync", "task": "proj.sync", "schedule": {"every": "15m"}, "labels": {"team": "a"}}


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr(Entries, "clock", desk_clock)
    return Project(redis_url, desk_clock, catchup_allowed_tasks=["proj.s*"])


@pytest.fixture
def site(project: Project) -> Iterator[Site]:
    with flower(project.app) as found:
        yield found


def test_an_entry_is_created_read_changed_and_deleted(site: Site) -> None:
    made = site.post("/entries", NEW)
    assert made.status == 201
    assert made.headers["Location"].endswith("/api/catchup/v1/entries/sync")
    assert site.get("/entries/sync").json == made.json
    assert [one["name"] for one in site.get("/schedules").json["items"]] == ["hourly-etl", "sync"]

    match = {**SCRIPT, "If-Match": f'"{made.json["revision"]}"'}
    changed = site.post("/entries/sync/update", {"enabled": False}, headers=match)
    assert (changed.status, changed.json["enabled"]) == (200, False)
    assert changed.json["schedule"] == {"every": "15m"}

    late = site.post("/entries/sync/update", {"enabled": True}, headers=match)
    assert (late.status, late.json["code"]) == (412, "entry_changed")
    assert site.post("/entries/sync/delete", {}, headers=match).status == 412

    assert site.post("/entries/sync/delete", {"dryRun": True}).status == 200
    assert [one["name"] for one in site.get("/entries?label=team%3Da").json["items"]] == ["sync"]
    assert site.post("/entries/sync/delete", {}).status == 200
    assert site.get("/entries/sync").status == 404


def test_a_task_that_is_not_allowed_is_refused(site: Site, project: Project) -> None:
    with project.operator() as operator:
        operator.stored_entries.create("other", task="os.system", schedule="0 * * * *")
    refusals = [
        site.post("/entries", {**NEW, "task": "os.system"}),
        site.post("/entries", {"name": "x", "schedule": "0 * * * *"}),
        site.post("/entries/other/update", {"task": "proj.sync"}),
        site.post("/entries/other/delete", {}),
    ]

    assert {(one.status, one.json["code"]) for one in refusals} == {(403, "task_not_allowed")}


def test_no_task_is_allowed_unless_the_settings_say_so(redis_url: str, desk_clock: FakeClock) -> None:
    with flower(Project(redis_url, desk_clock).app) as site:
        assert site.post("/entries", NEW).json["code"] == "task_not_allowed"


def test_wrong_fields_are_mistakes_of_the_request(site: Site) -> None:
    wrong = site.post("/entries", {**NEW, "schedule": "61 * * * *", "catchup": {"windw": "6h"}})

    assert (wrong.status, wrong.json["code"]) == (400, "invalid_request")
    assert [one["where"] for one in wrong.json["mistakes"]] == ["catchup.windw", "schedule"]
    assert site.post("/entries", {**NEW, "name": "hourly-etl"}).json["code"] == "entry_exists"
    assert site.post("/entries", {**NEW, "args": ["x" * 70_000]}).status in (400, 413)
    assert site.post("/entries/none/update", {}).json["code"] == "unknown_entry"
    assert site.post("/entries", NEW, headers={**SCRIPT, "If-Match": "x"}).status == 201
    assert site.post("/entries/sync/update", {}, headers={**SCRIPT, "If-Match": "x"}).status == 400


def test_every_mistake_is_listed_at_once_also_beside_a_task_that_is_not_allowed(site: Site) -> None:
    every = {"name": "", "task": "os.system", "schedule": "61 * * * *", "catchup": {"window": "6x"}}
    wrong = site.post("/entries", {**every, "options": {"task_id": "1"}})

    assert (wrong.status, wrong.json["code"]) == (403, "task_not_allowed")
    # A schedule can be judged only of an entry with a name.
    assert [one["where"] for one in wrong.json["mistakes"]] == ["task", "name", "options"]
    again = site.post("/entries", {**every, "name": "a.b c", "labels": {"": "x"}})
    assert [one["where"] for one in again.json["mistakes"]] == [
        "task",
        "labels",
        "catchup.window",
        "schedule",
    ]
    last = site.post("/entries", {**every, "name": "a.b c", "task": "proj.sync"})
    assert [one["where"] for one in last.json["mistakes"]] == ["catchup.window", "schedule"]


def test_the_next_slots_are_shown_in_the_zone_of_the_entry_and_in_utc(site: Site, project: Project) -> None:
    given = {"schedule": "0 6 * * *", "catchup": {"window": "6h", "timezone": "Europe/Berlin"}}

    found = site.post("/entries/preview", {**given, "slots": 2}).json

    assert found["timezone"] == "Europe/Berlin"
    assert [(one["localTime"], one["scheduledTime"], one["role"]) for one in found["slots"]] == [
        ("2026-02-08T06:00:00+01:00", "2026-02-08T05:00:00Z", "start"),
        ("2026-02-09T06:00:00+01:00", "2026-02-09T05:00:00Z", "start"),
    ]
    assert len(site.post("/entries/preview", {"schedule": {"every": "15m"}}).json["slots"]) == 10
    with project.operator() as operator:
        assert operator.stored_entries.list() == []


def test_a_preview_has_the_slots_of_every_schedule_in_order(site: Site) -> None:
    given = {"start": ["0 */6 * * *", "30 6 * * *"], "stop": "0 7 * * *"}

    slots = site.post("/entries/preview", {"schedule": given, "slots": 6}).json["slots"]

    assert [(one["scheduledTime"][11:16], one["role"]) for one in slots] == [
        ("12:00", "start"),
        ("18:00", "start"),
        ("00:00", "start"),
        ("06:00", "start"),
        ("06:30", "start"),
        ("07:00", "stop"),
    ]


def test_a_preview_of_an_interval_continues_that_of_the_entry(
    site: Site, project: Project, desk_clock: FakeClock
) -> None:
    site.post("/entries", NEW)
    project.tick()
    first = desk_clock.now() + timedelta(minutes=15)
    desk_clock.advance(seconds=300)

    slots = site.post("/entries/preview", {**NEW_PREVIEW, "name": "sync"}).json["slots"]

    assert slots[0]["scheduledTime"] == f"{first:%Y-%m-%dT%H:%M:%SZ}"


def test_mistakes_of_a_preview_are_those_of_schedule_and_policy(site: Site) -> None:
    wrong = {"schedule": "61 * * * *", "catchup": {"window": "6x", "max_runs": "3"}}

    found = site.post("/entries/preview", wrong)

    assert found.status == 400
    where = [one["where"] for one in found.json["mistakes"]]
    assert where == ["catchup.window", "catchup.max_runs", "schedule"]
    past = site.post("/entries/preview", {"schedule": {"at": "2020-01-01T00:00Z"}}).json["mistakes"]
    assert [one["where"] for one in past] == ["schedule.at"]
    long = site.post("/entries/preview", {"schedule": ["0 * * * *"] * 10_000})
    assert (long.status, [one["where"] for one in long.json["mistakes"]]) == (400, ["entry"])
    assert site.post("/entries/preview", {"schedule": "0 0 31 2 *"}).json["slots"] == []
    nothing = {"schedule": "0 * * * *", "catchup": {"window": "6h", "exclude": ["* * * * *"]}}
    assert site.post("/entries/preview", nothing).json["slots"] == []


def test_nothing_is_changed_without_authentication(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWER_UNAUTHENTICATED_API", "true")
    with flower(project.app, basic_auth=[]) as site:
        assert site.post("/entries", NEW).json["code"] == "changes_not_allowed"
        assert site.get("/entries").json["items"] == []


@pytest.mark.parametrize("schedule", ["1e300", "[" * 400 + "]" * 400, '{"every":' * 900 + "1" + "}" * 900])
def test_a_schedule_that_is_too_long_or_too_deep_is_a_mistake(site: Site, schedule: str) -> None:
    body = f'{{"name": "new", "task": "proj.sync", "schedule": {schedule}}}'

    answer = site.post("/entries", body.encode())

    assert (answer.status, answer.json["code"]) == (400, "invalid_request")
