"""The paths of version 0.1 answer as they did, until version 0.3."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from celery_catchup.model import RunState
from celery_catchup.testing import FakeClock
from tests.integration.flowers import Site, flower
from tests.integration.operating import ALL, HOURLY, Project

RANGE = {"entry": "hourly-etl", "start": "2026-02-07T00:00Z", "end": "2026-02-07T05:00Z"}


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    """Beat was down from 09:05 to 12:02; the first slot failed, the second was executed."""
    project = Project(redis_url, desk_clock, {"hourly-etl": HOURLY, "plain": HOURLY}, {"hourly-etl": ALL})
    project.tick()
    desk_clock.set("2026-02-07T12:02:00Z")
    project.tick()
    project.execute("hourly-etl", state=RunState.FAILED, error="KeyError", letter={"type": "KeyError"})
    project.execute("hourly-etl")
    return project


@pytest.fixture
def site(project: Project) -> Iterator[Site]:
    with flower(project.app) as site:
        site.api = "/api/catchup"
        yield site


def test_lists_are_what_the_commands_print_as_json(site: Site, project: Project) -> None:
    for path, command in {
        "/runs": ["runs"],
        "/skipped": ["runs", "--state", "skipped"],
        "/preview?entry=hourly-etl": ["preview", "hourly-etl"],
        "/watermarks": ["watermark", "show"],
        "/dead-letters": ["dlq", "list"],
        "/backfills": ["backfill", "list"],
    }.items():
        assert site.get(path).json == project.json(*command), path
    assert site.get("/status").json == project.json("status")
    assert site.get("/openapi.json").status == 200


def test_lists_keep_their_own_shapes(site: Site) -> None:
    rows = site.get("/schedules?limit=1&offset=1").json
    first = site.get("/runs?limit=2").json
    second = site.get(f"/runs?limit=2&cursor={first['cursor']}").json
    slots = site.get("/timeline?entry=hourly-etl&since=2026-02-07T09:30Z&until=2026-02-07T12:30Z").json

    assert ([row["name"] for row in rows.pop("entries")], rows) == (
        ["plain"],
        {"total": 2, "offset": 1, "limit": 1},
    )
    assert first["runs"] + second["runs"] == site.get("/runs").json["runs"]
    assert second["cursor"] is None
    assert len(slots["entries"]["hourly-etl"]) == 3
    assert len(site.get("/outages").json["outages"]) == 1
    assert len(site.get("/preview?window=6h&limit=1").json["previews"]) == 2


def test_changes_keep_their_own_shapes(site: Site) -> None:
    dead = site.get("/dead-letters").json["deadLetters"][0]["run"]["runId"]

    paused = site.post("/schedules/hourly-etl/pause").json
    resumed = site.post("/schedules/hourly-etl/resume").json
    looked = site.post("/backfill/preview", {**RANGE, "limit": 2}).json
    made = site.post("/backfills", RANGE)

    assert paused == {"entries": [{"entry": "hourly-etl", "paused": True, "changed": True}]}
    assert resumed["entries"] == [{"entry": "hourly-etl", "paused": False, "changed": True}]
    assert [one["entry"] for one in resumed["previews"]] == ["hourly-etl"]
    assert (looked["dispatched"], len(looked["slots"])) == (6, 2)
    assert made.status == 200
    assert site.post(f"/backfills/{made.json['id']}/pause").json["state"] == "paused"
    assert site.post("/discard", {"runIds": [dead], "dryRun": True}).json["runs"][0]["outcome"] == "dry run"
    assert site.post("/replay", {"runIds": [dead]}).json["runs"][0]["outcome"] == "replayed"


def test_errors_keep_their_own_shape(site: Site) -> None:
    answer = site.get("/runs?state=dying")

    assert (answer.status, answer.headers["Content-Type"]) == (400, "application/json; charset=utf-8")
    assert set(answer.json["error"]) == {"message", "mistakes"}
    assert answer.json["error"]["mistakes"][0]["where"] == "state"
    assert site.get("/runs", method="POST", body={}).status == 405
