"""Commands that take names of entries take patterns: each command acts on every entry that matches."""

from __future__ import annotations

from typing import Any

import pytest

from celery_catchup.cli.screen import Screen
from celery_catchup.testing import FakeClock
from tests.integration.operating import ALL, HOURLY, Project

BACK = "2026-02-07T12:02:00Z"
NAMES = ("sync[eu]", "sync[us]")
RANGE = ("--start", "2026-02-06T10:00Z", "--end", "2026-02-06T11:00Z")


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    schedule = dict.fromkeys((*NAMES, "other", "plain"), HOURLY)
    project = Project(redis_url, desk_clock, schedule, dict.fromkeys((*NAMES, "other"), ALL))
    project.tick()
    return project


def names(found: Any) -> list[str]:
    return [one["entry"] for one in found]


def test_commands_that_show_take_patterns(project: Project, desk_clock: FakeClock) -> None:
    desk_clock.set(BACK)

    assert [one["name"] for one in project.json("entries", "sync[*]")["entries"]] == list(NAMES)
    assert names(project.json("preview", "sync[*]")["previews"]) == list(NAMES)
    assert names(project.json("preview", "sync[*]", "--window", "1h")["previews"]) == list(NAMES)
    assert names(project.json("watermark", "show", "*[u?]")["entries"]) == ["sync[us]"]

    project.tick()

    assert set(names(project.json("runs", "sync[*]")["runs"])) == set(NAMES)


def test_pause_and_resume_take_patterns(project: Project) -> None:
    paused = project.json("pause", "sync[*]")["entries"]
    resumed = project.json("resume", "s*")["entries"]

    assert names(paused) == names(resumed) == list(NAMES)


def test_a_pattern_leaves_out_entries_without_a_policy(project: Project) -> None:
    assert names(project.json("pause", "*")["entries"]) == [*NAMES, "other"]

    refused = project.catchup("pause", "pl*", code=2)

    assert "entry 'plain' has no catch-up policy" in refused.stderr


@pytest.mark.parametrize(
    "args",
    [
        ("pause", "snyc[*]"),
        ("resume", "snyc[*]"),
        ("preview", "snyc[*]"),
        ("runs", "snyc[*]"),
        ("entries", "snyc[*]"),
        ("run", "snyc[*]"),
        ("forget", "snyc[*]"),
        ("watermark", "reset", "snyc[*]"),
        ("backfill", "snyc[*]", *RANGE),
        ("dlq", "list", "snyc[*]"),
    ],
    ids=lambda args: args[0],
)
def test_a_pattern_without_a_match_names_the_nearest_entry(project: Project, args: tuple[str, ...]) -> None:
    refused = project.catchup(*args, code=2)

    assert "no entry matches 'snyc[*]'" in refused.stderr
    assert "did you mean 'sync[" in refused.stderr


def test_forget_lists_what_matches_and_asks(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Screen, "can_ask", property(lambda _: True))

    kept = project.catchup("forget", "sync[*]", input="n\n", code=1)
    tried = project.json("forget", "sync[*]", "-n")
    forgotten = project.catchup("forget", "sync[*]", "-f")

    assert "2 entries: sync[eu], sync[us]" in kept.stderr
    assert "Forget 2 entries and their 0 runs?" in kept.stderr
    assert names(tried["entries"]) == list(NAMES)
    assert forgotten.stdout == "Forgot sync[eu] and 0 runs\nForgot sync[us] and 0 runs\n"


def test_a_manual_run_of_each_is_asked_for(project: Project) -> None:
    refused = project.catchup("run", "sync[*]", code=1)
    started = project.catchup("run", "sync[*]", "-f")

    assert "refusing to start 2 runs without confirmation" in refused.stderr
    assert "2 entries: sync[eu], sync[us]" in refused.stderr
    assert len(started.stdout.splitlines()) == 2
    assert [len(project.slots(name)) for name in (*NAMES, "other")] == [1, 1, 0]


def test_watermarks_are_moved_together(project: Project, desk_clock: FakeClock) -> None:
    desk_clock.set(BACK)

    moved = project.json("watermark", "set", "sync[*]", "2026-02-07T11:30:00Z", "-f")

    assert moved["entries"] == list(NAMES)
    assert [one["dispatched"] for one in moved["after"]] == [1, 1]


def test_stored_entries_are_deleted_together(project: Project) -> None:
    for name in ("tmp[a]", "tmp[b]", "kept"):
        project.catchup("entries", "add", name, "--task", "proj.etl", "--every", "1h")

    deleted = project.catchup("entries", "delete", "tmp[*]", "-f")
    missing = project.catchup("entries", "delete", "tmp[*]", "-f", code=2)

    assert "2 entries: tmp[a], tmp[b]" in deleted.stderr
    assert "no stored entry has the name 'tmp[*]'" in missing.stderr
    assert [one["name"] for one in project.json("entries")["entries"] if one["stored"]] == ["kept"]


def test_backfills_of_a_pattern_take_turns(project: Project) -> None:
    asked = project.json("backfill", "sync[*]", *RANGE, "-f")["backfills"]
    project.tick()

    runs = project.json("runs", "sync[*]")["runs"]

    assert names(asked) == list(NAMES)
    assert sorted((one["entry"], one["state"]) for one in runs) == [
        (name, state) for name in NAMES for state in ("queued", "waiting")
    ]


def test_the_slots_of_all_backfills_of_a_pattern_count_together(project: Project) -> None:
    refused = project.catchup("backfill", "sync[*]", *RANGE, "--max-slots", "3", "-f", code=1)

    assert "the range has 4 slots, and the backfill may have 3" in refused.stderr
    assert project.json("backfill", "list") == {"backfills": []}


# -- groups ----------------------------------------------------------------------------------


def test_many_entries_of_one_declaration_are_one_line_until_they_are_named(
    redis_url: str, desk_clock: FakeClock
) -> None:
    each = {"tenant": [f"t{number}" for number in range(40)]}
    schedule = {"sync": {**HOURLY, "task": "proj.sync"}, "other": HOURLY}
    project = Project(redis_url, desk_clock, schedule, {"sync": {**ALL, "for_each": each}})
    project.tick()
    project.catchup("pause", "sync[t1?]")

    lines = project.text("entries").splitlines()
    named = project.text("entries", "sync[*]").splitlines()
    status = project.text("status")

    (row,) = [line for line in lines if line.startswith("sync")]
    assert row.startswith("sync[*]")
    assert row.endswith("40 entries, 10 paused")
    assert len(project.json("entries")["entries"]) == 41
    assert len([line for line in named if line.startswith("sync[")]) == 40
    assert "Paused: sync[*] (10 entries)" in status
