"""Deadlines as an operator sees them: commands, exit codes, metrics, the API and the tab."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from celery_catchup.metrics import collector
from celery_catchup.testing import FakeClock
from tests.integration.flowers import flower
from tests.integration.operating import ALL, HOURLY, Project

NINE, TEN = "2026-02-07T09:00:00Z", "2026-02-07T10:00:00Z"


@pytest.fixture
def late(redis_url: str, desk_clock: FakeClock) -> Project:
    """A project whose run of ten o'clock has not succeeded by half past."""
    schedule = {"hourly-etl": HOURLY, "other": HOURLY}
    policies = {"hourly-etl": {**ALL, "expect_within": "20m"}, "other": ALL}
    project = Project(redis_url, desk_clock, schedule, policies)
    project.tick()
    desk_clock.set(TEN)
    project.tick()
    project.execute("other")
    desk_clock.set("2026-02-07T10:30:00Z")
    return project


def test_a_slot_is_overdue_in_every_list_until_its_run_succeeds(late: Project) -> None:
    with late.beat() as beat:
        beat.tick()
        (found,) = late.json("runs", "--overdue")["overdue"]
        status, entry = late.json("status"), late.json("entries")["entries"][0]
        text, listed = late.text("status", "--check", code=1), late.text("runs", "--overdue")

        assert (found["scheduledTime"], found["deadline"]) == (TEN, "2026-02-07T10:20:00Z")
        assert (found["overdueFor"], found["state"]) == (600.0, "queued")
        assert (status["overdue"], status["healthy"], status["beatHealthy"]) == (
            {"hourly-etl": 1},
            False,
            True,
        )
        assert (entry["overdue"], entry["expectWithin"], entry["lastSuccess"]) == (1, 1200.0, None)
        assert late.json("runs", "hourly-etl")["runs"][0]["deadline"] == "2026-02-07T10:20:00Z"
        assert late.json("runs", "other")["runs"][0]["deadline"] is None
        assert "1 overdue, 1 queued" in late.text("entries")
        assert "Scheduler: running (1 slot overdue)" in text
        assert "Overdue: hourly-etl (1 slot)" in text
        assert "Overdue For" in listed
        late.catchup("status", "--check", "--beat")

        late.execute("hourly-etl")
        late.clock.advance(seconds=5)
        beat.tick()

        assert late.json("runs", "--overdue")["overdue"] == []
        assert "No slot is overdue." in late.catchup("runs", "--overdue").stderr
        late.catchup("status", "--check")
        assert late.json("entries")["entries"][0]["lastSuccess"] == "2026-02-07T10:30:00Z"


def test_a_lost_slot_names_the_command_that_runs_it(redis_url: str, desk_clock: FakeClock) -> None:
    policies = {"hourly-etl": {"select": False, "expect_within": "20m"}}
    project = Project(redis_url, desk_clock, policies=policies)
    project.tick()
    desk_clock.set("2026-02-07T10:30:00Z")
    project.tick()

    found = project.catchup("runs", "--overdue")

    assert "no run" in found.stdout
    assert f"backfill hourly-etl --start {TEN} --end {TEN}" in found.stderr


def test_other_filters_do_not_go_with_overdue(late: Project) -> None:
    refused = late.catchup("runs", "--overdue", "--state", "dead", code=2)

    assert "--overdue excludes --state" in refused.stderr


def test_metrics_have_overdue_slots_and_the_age_of_the_last_success(late: Project) -> None:
    late.tick()
    registry = CollectorRegistry()
    source = collector(late.app)
    registry.register(source)

    text = generate_latest(registry).decode()
    source.close()

    assert 'celery_catchup_overdue{entry="hourly-etl",namespace="proj"} 1.0' in text
    assert 'celery_catchup_last_success_age_seconds{entry="other",namespace="proj"}' in text
    assert 'celery_catchup_last_success_age_seconds{entry="hourly-etl"' not in text


def test_the_api_and_the_tab_mark_overdue_slots(late: Project) -> None:
    with late.beat() as beat, flower(late.app) as site:
        beat.tick()

        (item,) = site.get("/overdue").json["items"]
        pages = {path: site.ask(f"/catchup{path}").text for path in ("", "/runs", "/entry?entry=hourly-etl")}

    assert (item["entry"], item["scheduledTime"]) == ("hourly-etl", TEN)
    assert all(">overdue</span>" in pages[path] for path in ("", "/runs"))
    assert "1 slot overdue" in pages["/entry?entry=hourly-etl"]
    assert "Expected within" in pages["/entry?entry=hourly-etl"]
