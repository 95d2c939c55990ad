"""A slot's existing run is found by its run id: another version is another run."""

from __future__ import annotations

from typing import Any

import pytest

from celery_catchup.testing import FakeClock
from tests.integration.operating import ALL, Project

CRON = "0 * * * *"
RANGE = ("--start", "2026-02-07T10:00Z", "--end", "2026-02-07T12:00Z")


def project_of(url: str, clock: FakeClock, schedule: Any = CRON, **policy: Any) -> Project:
    entries = {"e": {"task": "proj.etl", "schedule": schedule}}
    return Project(url, clock, entries, {"e": {**ALL, "overlap_policy": "allow", **policy}})


def ran_until_noon(url: str, clock: FakeClock, **policy: Any) -> None:
    project = project_of(url, clock, **policy)
    project.tick()
    clock.set("2026-02-07T12:05:00Z")
    project.tick()
    project.execute("e")
    assert len(project.slots("e")) == 3


@pytest.mark.parametrize("field", ["logic_version", "tenant"])
def test_another_version_makes_new_runs_in_a_backfill(
    redis_url: str, desk_clock: FakeClock, field: str
) -> None:
    ran_until_noon(redis_url, desk_clock, **{field: "1"})
    project = project_of(redis_url, desk_clock, **{field: "2"})

    same = project_of(redis_url, desk_clock, **{field: "1"}).text("backfill", "create", "e", *RANGE, "-n")
    made = project.text("backfill", "create", "e", *RANGE, "-n")

    assert "0 runs would be dispatched, 3 skipped" in same
    assert "3 runs would be dispatched." in made
    project.catchup("backfill", "create", "e", *RANGE, "--max-active", "9", "-f")
    project.tick()
    runs = project.json("runs", "e")["runs"]
    name = "logicVersion" if field == "logic_version" else "tenant"
    assert sorted((run["scheduledTime"][11:13], run[name]) for run in runs) == [
        (hour, version) for hour in ("10", "11", "12") for version in ("1", "2")
    ]


@pytest.mark.parametrize("field", ["logic_version", "tenant"])
def test_another_version_makes_new_runs_in_a_catch_up(
    redis_url: str, desk_clock: FakeClock, field: str
) -> None:
    ran_until_noon(redis_url, desk_clock, **{field: "1"})
    project = project_of(redis_url, desk_clock, **{field: "2"})

    project.catchup("watermark", "set", "e", "2026-02-07T10:30Z", "-f")
    project.tick()

    assert [slot[11:13] for slot, _ in project.slots("e")] == ["10", "11", "11", "12", "12"]


def test_the_version_of_a_run_is_shown(redis_url: str, desk_clock: FakeClock) -> None:
    project = project_of(redis_url, desk_clock, logic_version="v7", tenant="acme")
    project.tick()

    started = project.json("run", "e")["runId"]

    told = project.text("runs", "show", started)
    assert "Tenant: acme" in told
    assert "Logic version: v7" in told


def test_a_list_whose_order_changed_is_reported_at_start(
    redis_url: str, desk_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    project_of(redis_url, desk_clock, [CRON, "30 6 * * *"]).tick()
    project_of(redis_url, desk_clock, [CRON, "30 6 * * *", "45 6 * * *"]).tick()
    assert "changed their positions" not in caplog.text

    project_of(redis_url, desk_clock, ["30 6 * * *", CRON]).tick()

    assert "the schedules of entry 'e' changed their positions" in caplog.text
