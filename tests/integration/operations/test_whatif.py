"""``celery catchup whatif``: recorded outages under the policy in force, and under others."""

from __future__ import annotations

from typing import Any

import pytest

from celery_catchup.store.decisions import MOST_CATCHUPS
from celery_catchup.store.store import all_scripts
from celery_catchup.testing import FakeClock
from tests.integration.operating import HOURLY, Project

POLICY = {"window": "6h"}
TEN, TWELVE = "2026-02-07T10:00:00Z", "2026-02-07T12:00:00Z"


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    """Beat was down from 09:05 to 12:02; the first of three slots ran for 10 minutes, and a live slot did."""
    project = Project(redis_url, desk_clock, {"etl": HOURLY}, {"etl": POLICY})
    project.tick()
    desk_clock.set("2026-02-07T12:02:00Z")
    project.tick()
    project.execute("etl")
    desk_clock.set("2026-02-07T13:00:00Z")
    project.tick()
    project.execute("etl")
    desk_clock.set("2026-02-07T13:30:00Z")
    return project


def decisions(found: Any) -> list[str]:
    (outage,) = found["outages"]
    return [one["reason"] or one["action"] for one in outage["slots"]]


def test_the_policy_in_force_gives_what_was_recorded(project: Project) -> None:
    found = project.json("whatif", "etl")

    assert decisions(found) == ["dispatch", "guard_blocked", "guard_blocked"]
    assert [one["recordedReason"] or one["recorded"] for one in found["outages"][0]["slots"]] == decisions(
        found
    )
    assert (found["runs"], found["recordedRuns"], found["live"]) == (2, 2, [])


@pytest.mark.parametrize(
    ("given", "expected", "runs"),
    [
        (("--policy", "all"), ["dispatch"] * 3, 4),
        (("--policy", "latest"), ["superseded", "superseded", "dispatch"], 2),
        (("--policy", "off"), ["catchup_off"] * 3, 1),
        (("--window", "90m"), ["expired", "dispatch", "guard_blocked"], 2),
    ],
)
def test_another_policy_decides_the_recorded_slots_anew(
    project: Project, given: tuple[str, ...], expected: list[str], runs: int
) -> None:
    found = project.json("whatif", "etl", *given)

    assert decisions(found) == expected
    assert (found["runs"], found["recordedRuns"]) == (runs, 2)


def test_a_shorter_time_leaves_older_outages_out(project: Project) -> None:
    assert project.json("whatif", "etl", "--since", "1h")["outages"] == []


def test_the_text_shows_both_decisions_and_the_numbers(project: Project) -> None:
    found = project.text("whatif", "etl", "--policy", "all")

    (line,) = [line for line in found.splitlines() if line.startswith("2026-02-07 12:00Z")]
    assert line.split()[2:5] == ["skip", "(guard_blocked)", "dispatch"]
    assert "1 outage: 4 runs instead of 2, at most 1 at once." in found


def test_more_slots_than_the_limit_are_refused(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celery_catchup.operations.whatif.MOST_SLOTS", 2)

    assert "ask for a shorter one" in project.catchup("whatif", "etl", code=1).stderr


def test_outages_that_are_not_kept_are_left_out_and_the_text_says_so(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("celery_catchup.operations.whatif.MOST_CATCHUPS", 1)

    assert project.json("whatif", "etl")["since"] > "2026-02-07T09:00:00Z"
    assert "Older outages are not kept" in project.catchup("whatif", "etl").stderr


def test_the_script_keeps_as_many_catch_ups_as_are_expected() -> None:
    assert f"local MOST_CATCHUPS = {MOST_CATCHUPS}\n" in all_scripts()["commit"].text
