"""Printed times carry their zone, and every one of them can be pasted into a command."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from celery_catchup.testing import FakeClock
from tests.integration.operating import ALL, HOURLY, Project

TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?")
PRINTING = {
    "preview": ("preview",),
    "status": ("status",),
    "entries": ("entries",),
    "runs": ("runs",),
    "skipped": ("runs", "--state", "skipped"),
    "watermarks": ("watermark", "show"),
    "backfill": ("backfill", "hourly-etl", "--start", "2026-02-07", "--end", "now", "-n"),
    "run": ("run", "hourly-etl", "-n"),
    "set": ("watermark", "set", "hourly-etl", "1h ago", "-n"),
}


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    """An app in Berlin with a run, skipped slots and missed ones; one entry has slots between seconds."""
    schedule = {"hourly-etl": HOURLY, "off": HOURLY, "poll": {"task": "proj.etl", "schedule": 90.5}}
    policies = {"hourly-etl": ALL, "off": False, "poll": {"window": "1h", "overlap_policy": "all"}}
    project = Project(redis_url, desk_clock, schedule, policies, timezone="Europe/Berlin")
    project.tick()
    desk_clock.set("2026-02-07T10:20:00Z")
    project.tick()
    desk_clock.set("2026-02-07T12:02:00Z")
    return project


@pytest.mark.parametrize("command", PRINTING.values(), ids=PRINTING)
def test_every_printed_time_carries_its_zone(project: Project, command: tuple[str, ...]) -> None:
    utc, local = project.catchup(*command).output, project.catchup(*command, "--local").output

    assert all(one.endswith("Z") for one in TIME.findall(utc)), utc
    printed = TIME.findall(re.sub("celery -A .*", "", local))
    assert all(one.endswith("+01:00") for one in printed), local
    assert len(printed) == len(TIME.findall(re.sub("celery -A .*", "", utc))) > 0


@pytest.mark.parametrize("zone", ["--utc", "--local"])
def test_a_copied_slot_is_the_same_slot(project: Project, zone: str) -> None:
    slots = [one["scheduledTime"] for one in project.json("runs", "poll")["runs"]]
    printed = [row.split("  ")[2] for row in project.text("runs", "poll", zone).splitlines()[2:]]

    found = [project.json("preview", "--at", one)["previews"][0]["at"] for one in printed]

    assert found == slots
    assert any("." in slot for slot in slots)


def test_a_hint_names_the_slots_to_the_millisecond(project: Project) -> None:
    def backfilled() -> Any:
        hint = project.catchup("runs", "poll", "--state", "skipped", "--limit", "1", "--local").stderr
        words = shlex.split(hint.partition("catchup ")[2])
        return project.json(*words, "-n")["slots"]

    (skipped,) = project.json("runs", "poll", "--state", "skipped", "--limit", "1")["skipped"]
    slots = backfilled()

    assert len(slots) == skipped["count"]
    assert (slots[0]["scheduledTime"], slots[-1]["scheduledTime"]) == (skipped["first"], skipped["last"])
