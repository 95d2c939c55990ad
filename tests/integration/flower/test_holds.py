"""Held catch-ups in the tab and the HTTP API: shown, approved and discarded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from celery_catchup.model import RunState
from celery_catchup.testing import FakeClock
from tests.integration.flowers import Site, flower
from tests.integration.operating import HOURLY, Project

POLICY = {"window": "6h", "overlap_policy": "allow", "hold_above": 3}


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    """Beat was down from 08:30 to 12:30, and holds the catch-ups of two entries, of four runs each."""
    desk_clock.set("2026-02-07T08:30:00Z")
    project = Project(redis_url, desk_clock, {"a": HOURLY, "b": HOURLY}, {"a": POLICY, "b": POLICY})
    project.tick()
    desk_clock.set("2026-02-07T12:30:00Z")
    project.tick()
    return project


@pytest.fixture
def site(project: Project) -> Iterator[Site]:
    with flower(project.app) as site:
        yield site


def test_the_api_shows_approves_and_discards_what_is_held(project: Project, site: Site) -> None:
    assert site.get("/status").json["held"] == {"a": 4, "b": 4}
    assert site.get("/schedules/a").json["entry"]["held"] == 4

    tried = site.post("/schedules/a/approve", {"dryRun": True})
    assert (tried.json["changed"], tried.json["preview"]["dispatched"]) == (True, 4)
    assert site.get("/schedules/a").json["entry"]["held"] == 4
    assert site.post("/schedules/a/approve").json["changed"] is True
    assert site.post("/schedules/b/discard").json["preview"]["skipped"] == 4
    project.tick()

    assert site.get("/status").json["held"] == {}
    runs = site.get("/runs?entry=a").json["items"]
    assert [run["state"] for run in runs] == [str(RunState.QUEUED)] * 4
    assert [one["reason"] for one in site.get("/skipped?entry=b").json["items"]] == ["discarded"]
    assert site.post("/schedules/a/approve").status == 409
    assert site.post("/schedules/unknown/approve").status == 404


def test_the_tab_has_a_banner_with_buttons_for_what_is_held(site: Site) -> None:
    for page in ("/catchup", "/catchup/entry?entry=a"):
        text = site.ask(page).text

        assert "a: a catch-up of 4 runs waits for an approval." in text
        assert 'data-path="/schedules/a/approve"' in text
        assert 'data-path="/schedules/a/discard"' in text
        assert ">held</span>" in text
