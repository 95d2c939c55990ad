"""Stored entries over HTTP: only allowed tasks, with the revision that the client has read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from celery_catchup.stored_entries.entries import Entries
from celery_catchup.testing import FakeClock
from tests.integration.flowers import SCRIPT, Site, flower
from tests.integration.operating import Project

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
    assert [one["where"] for one in wrong.json["mistakes"]] == [
        "entries.sync.catchup.windw",
        "entries.sync.schedule",
    ]
    assert site.post("/entries", {**NEW, "name": "hourly-etl"}).json["code"] == "entry_exists"
    assert site.post("/entries", {**NEW, "args": ["x" * 70_000]}).status in (400, 413)
    assert site.post("/entries/none/update", {}).json["code"] == "unknown_entry"
    assert site.post("/entries", NEW, headers={**SCRIPT, "If-Match": "x"}).status == 201
    assert site.post("/entries/sync/update", {}, headers={**SCRIPT, "If-Match": "x"}).status == 400


def test_nothing_is_changed_without_authentication(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWER_UNAUTHENTICATED_API", "true")
    with flower(project.app, basic_auth=[]) as site:
        assert site.post("/entries", NEW).json["code"] == "changes_not_allowed"
        assert site.get("/entries").json["items"] == []
