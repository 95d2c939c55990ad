"""``celery catchup pause``, ``resume``, ``watermark`` and ``run``: what an operator changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from celery_catchup.cli.screen import Screen
from celery_catchup.testing import FakeClock
from tests.integration.operating import ALL, HOURLY, Project

BACK = "2026-02-07T12:02:00Z"


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    project = Project(redis_url, desk_clock)
    project.tick()
    return project


def dispatched(project: Project, entry: str = "hourly-etl") -> list[str]:
    return [slot[11:16] for slot, _ in project.slots(entry)]


# -- pause and resume ------------------------------------------------------------------------


def test_a_paused_entry_misses_its_slots_and_catches_up_when_resumed(
    project: Project, desk_clock: FakeClock
) -> None:
    assert project.text("pause", "hourly-etl", "--reason", "migration") == "Paused hourly-etl\n"
    desk_clock.set(BACK)
    project.tick()
    assert dispatched(project) == []

    resumed = project.catchup("resume", "hourly-etl")
    project.tick()

    assert resumed.stdout == "Resumed hourly-etl\n"
    assert resumed.stderr == '"hourly-etl": 3 runs will be dispatched.\n'
    assert dispatched(project) == ["10:00", "11:00", "12:00"]


def test_what_was_missed_can_be_left_out(project: Project, desk_clock: FakeClock) -> None:
    project.catchup("pause", "hourly-etl")
    desk_clock.set(BACK)

    project.catchup("resume", "hourly-etl", "--no-catchup")
    project.tick()

    assert dispatched(project) == []
    (skip,) = project.json("runs", "--state", "skipped")["skipped"]
    assert (skip["count"], skip["reason"]) == (3, "paused")


def test_a_dry_run_of_resume_shows_what_would_be_dispatched_and_changes_nothing(
    project: Project, desk_clock: FakeClock
) -> None:
    project.catchup("pause", "hourly-etl")
    desk_clock.set(BACK)

    shown = project.text("resume", "hourly-etl", "-n")
    without = project.text("resume", "hourly-etl", "-n", "--no-catchup")
    found = project.json("resume", "hourly-etl", "-n")

    assert shown.endswith("  2026-02-07T12:00:00Z     dispatch\n\n3 runs would be dispatched.\n")
    assert without.endswith("skip (paused)\n\n0 runs would be dispatched, 3 skipped.\n")
    assert found["entries"] == [{"entry": "hourly-etl", "paused": False, "changed": True}]
    assert found["previews"][0]["dispatched"] == 3
    assert project.json("entries")["entries"][0]["paused"] is True


def test_pausing_twice_and_resuming_what_is_not_paused_change_nothing(project: Project) -> None:
    resumed = project.catchup("resume", "hourly-etl")
    project.catchup("pause", "hourly-etl")
    paused = project.catchup("pause", "hourly-etl")

    assert (resumed.stdout, resumed.stderr) == ("", '"hourly-etl" is not paused.\n')
    assert (paused.stdout, paused.stderr) == ("", '"hourly-etl" is paused already.\n')


def test_pause_can_be_asked_what_it_would_do(project: Project) -> None:
    assert project.text("pause", "hourly-etl", "-n") == "Would pause hourly-etl\n"
    assert project.json("pause", "hourly-etl", "-n") == {
        "entries": [{"entry": "hourly-etl", "paused": True, "changed": True}]
    }
    assert project.json("entries")["entries"][0]["paused"] is False


def test_an_entry_without_a_policy_cannot_be_paused(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, {"plain": HOURLY}, {})

    refused = project.catchup("pause", "plain", code=2)

    assert "set it to False in catchup_entries to be able to" in refused.stderr
    project.catchup("pause", "plian", code=2)
    project.catchup("pause", code=2)


# -- watermarks ------------------------------------------------------------------------------


def test_watermarks_are_shown(project: Project, desk_clock: FakeClock) -> None:
    desk_clock.set("2026-02-07T10:00:00Z")
    project.tick()

    assert project.text("watermark", "show") == (
        "Scheduler: 2026-02-07T10:00:00Z\n"
        "\n"
        "Entry       Watermark          Catch-up From      First Seen         Paused At    Manual Run\n"
        "----------  -----------------  -----------------  -----------------  -----------  ------------\n"
        "hourly-etl  2026-02-07 10:00Z  2026-02-07 10:00Z  2026-02-07 09:05Z  -            -\n"
    )
    assert project.json("watermark", "show", "hourly-etl") == {
        "scheduler": "2026-02-07T10:00:00Z",
        "entries": [
            {
                "entry": "hourly-etl",
                "watermark": "2026-02-07T10:00:00Z",
                "firstSeenAt": "2026-02-07T09:05:00Z",
                "manualStart": None,
                "pausedAt": None,
                "replayFrom": "2026-02-07T10:00:00Z",
            }
        ],
    }


def test_a_watermark_that_is_moved_forward_lets_slots_go(project: Project, desk_clock: FakeClock) -> None:
    desk_clock.set(BACK)

    moved = project.catchup("watermark", "set", "hourly-etl", "2026-02-07T11:30Z", "-f")
    project.tick()

    assert moved.stdout == "Moved hourly-etl to 2026-02-07T11:30:00Z\n"
    assert "now 3 runs would be dispatched. Then 1 run would be dispatched." in moved.stderr
    assert dispatched(project) == ["12:00"]


def test_a_watermark_that_is_moved_back_is_caught_up_from_there(
    project: Project, desk_clock: FakeClock
) -> None:
    """The scheduler's own watermark is near the present, and must not hide it."""
    with project.beat() as beat:
        beat.tick()
        project.catchup("watermark", "reset", "hourly-etl", "-f")
        desk_clock.set(BACK)
        project.catchup("watermark", "reset", "hourly-etl", "-f")
        beat.tick()
        beat.tick()
        assert dispatched(project) == []

        project.catchup("watermark", "set", "hourly-etl", "2026-02-07T10:30Z", "-f")
        for _ in range(3):
            beat.tick()

    assert dispatched(project) == ["11:00", "12:00"]
    assert project.text("preview") == "Nothing was missed: 0 runs would be dispatched.\n"


def test_slots_that_have_a_run_keep_it_when_a_watermark_is_moved_back(
    project: Project, desk_clock: FakeClock
) -> None:
    desk_clock.set(BACK)
    project.tick()

    moved = project.catchup("watermark", "set", "hourly-etl", "2026-02-07T10:30Z", "-n")

    assert moved.stdout == "Would move hourly-etl to 2026-02-07T10:30:00Z\n"
    assert "Then 0 runs would be dispatched, 2 skipped." in moved.stderr


def test_a_paused_entry_stays_paused_when_its_watermark_is_moved(
    project: Project, desk_clock: FakeClock
) -> None:
    project.catchup("pause", "hourly-etl", "--reason", "x")
    desk_clock.set(BACK)
    project.catchup("watermark", "set", "hourly-etl", "2026-02-07T11:30Z", "-f")
    project.tick()
    assert dispatched(project) == []

    project.catchup("resume", "hourly-etl")
    project.tick()

    assert dispatched(project) == ["12:00"]


def test_a_leader_that_decides_at_the_same_time_is_refused_and_reads_again(
    project: Project, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with project.beat() as beat:
        beat.tick()
        desk_clock.set(BACK)
        work: Any = beat._work
        lead = work.engine.lead

        def lead_then_somebody_moves(now: int) -> bool:
            leads = lead(now)
            project.catchup("watermark", "set", "hourly-etl", "2026-02-07T11:30Z", "-f")
            return bool(leads)

        monkeypatch.setattr(work.engine, "lead", lead_then_somebody_moves)
        beat.tick()
        monkeypatch.undo()
        for _ in range(3):
            beat.tick()

    assert dispatched(project) == ["12:00"]


def test_all_watermarks_are_reset_together_with_the_schedulers(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, {"a": HOURLY, "b": HOURLY}, {"a": ALL, "b": ALL})
    project.tick()
    desk_clock.set(BACK)

    found = project.json("watermark", "reset", "--all", "-n")
    assert found["entries"] == ["a", "b"]
    assert [one["dispatched"] for one in found["before"]] == [3, 3]
    assert [one["dispatched"] for one in found["after"]] == [0, 0]

    assert project.text("watermark", "reset", "--all", "-f").endswith(
        "Moved the scheduler to 2026-02-07T12:02:00Z\n"
    )
    project.tick()
    assert dispatched(project, "a") == dispatched(project, "b") == []


def test_a_watermark_in_the_future_or_for_nothing_is_refused(
    redis_url: str, desk_clock: FakeClock, project: Project
) -> None:
    future = project.catchup("watermark", "set", "hourly-etl", "2027-01-01", "-f", code=1)
    nonsense = project.catchup("watermark", "set", "hourly-etl", "soon", "-f", code=2)
    nobody = project.catchup("watermark", "reset", "-f", code=2)
    both = project.catchup("watermark", "reset", "hourly-etl", "--all", "-f", code=2)

    assert "is in the future" in future.stderr
    assert "Invalid value for 'TIME': expected a time such as" in nonsense.stderr
    assert nobody.stderr == both.stderr
    assert both.stderr.endswith("Error: name the entries, or use --all\n")


def test_an_entry_that_discards_on_resume_runs_what_its_watermark_is_moved_back_over(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = Project(redis_url, desk_clock, None, {"hourly-etl": {**ALL, "on_resume": "discard"}})
    project.tick()
    desk_clock.set(BACK)
    project.catchup("watermark", "reset", "hourly-etl", "-f")
    project.tick()
    assert dispatched(project) == []

    project.catchup("watermark", "set", "hourly-etl", "2026-02-07T10:30Z", "-f")
    project.tick()

    assert dispatched(project) == ["11:00", "12:00"]


def test_an_unreadable_watermark_is_mended_by_a_reset(project: Project, desk_clock: FakeClock) -> None:
    with project.operator() as operator:
        operator.store.client.hset(operator.store.keys.decided, "hourly-etl", "NaN")
    assert project.json("watermark", "show")["entries"][0]["watermark"] is None

    project.catchup("watermark", "reset", "hourly-etl", "-f")

    assert project.json("watermark", "show")["entries"][0]["watermark"] == "2026-02-07T09:05:00Z"


def test_a_moved_watermark_says_what_limits_it(project: Project, desk_clock: FakeClock) -> None:
    desk_clock.set("2026-02-07T18:02:00Z")

    found = project.catchup("watermark", "set", "hourly-etl", "2026-02-07T10:30Z", "-n")

    assert "It begins at 2026-02-07T12:02:00Z: the window reaches no further." in found.stderr
    assert "The move changes nothing." in found.stderr


def test_a_watermark_cannot_reach_before_the_first_sight(project: Project, desk_clock: FakeClock) -> None:
    desk_clock.set("2026-02-07T11:02:00Z")

    found = project.catchup("watermark", "set", "hourly-etl", "2026-02-07T08:00Z", "-n")

    assert "It begins at 2026-02-07T09:05:00Z: the entry was first seen then." in found.stderr


# -- manual runs -----------------------------------------------------------------------------


def test_a_manual_run_is_recorded_and_sent(project: Project) -> None:
    found = project.catchup("run", "hourly-etl")

    run = project.json("runs", "show", found.stdout.strip())["run"]
    assert found.stderr == 'Started "hourly-etl" for 2026-02-07T09:05:00Z.\n'
    assert (run["triggerType"], run["state"], run["scheduledTime"]) == (
        "manual",
        "queued",
        "2026-02-07T09:05:00Z",
    )
    assert run["dataIntervalStart"] == "2026-02-07T09:00:00Z"
    assert "@" in run["requestedBy"]
    with project.operator() as operator:
        client: Any = operator.store.client
        (message,) = [json.loads(text) for text in client.lrange("celery", 0, -1)]
    assert message["headers"]["id"] == message["headers"]["catchup_run_id"] == run["runId"]
    assert message["headers"]["trigger_type"] == "manual"


def test_the_run_of_a_slot_is_the_one_that_beat_would_have_made(
    project: Project, desk_clock: FakeClock
) -> None:
    desk_clock.set(BACK)
    expected = project.json("preview", "hourly-etl")["previews"][0]["slots"][1]

    found = project.json("run", "hourly-etl", "--at", "2026-02-07T11:00Z")

    assert (found["runId"], found["scheduledTime"]) == (expected["runId"], expected["scheduledTime"])
    assert found["run"]["triggerType"] == "manual"
    refused = project.catchup("run", "hourly-etl", "--at", "2026-02-07T11:00Z", code=1)
    assert f"has its run already: {found['runId']} (queued)" in refused.stderr


def test_what_is_no_slot_is_refused_with_the_nearest(project: Project) -> None:
    refused = project.catchup("run", "hourly-etl", "--at", "2026-02-07T08:30Z", code=1)
    future = project.catchup("run", "hourly-etl", "--at", "2026-02-07T10:00Z", code=1)

    assert "the nearest are 2026-02-07T08:00:00Z and 2026-02-07T09:00:00Z" in refused.stderr
    assert "is in the future" in future.stderr


def test_a_manual_run_can_be_tried_dry(project: Project) -> None:
    found = project.json("run", "hourly-etl", "-n")

    assert found["run"] is None
    assert found["dispatch"] == "atomic"
    assert project.json("runs")["runs"] == []


def test_a_second_manual_run_waits_for_the_first(project: Project, desk_clock: FakeClock) -> None:
    project.catchup("run", "hourly-etl")
    desk_clock.advance(seconds=1)

    second = project.catchup("run", "hourly-etl")

    assert "It waits: a run of the entry is active." in second.stderr


def test_slots_that_a_manual_run_passes_over_are_recorded_with_it(
    project: Project, desk_clock: FakeClock
) -> None:
    desk_clock.set(BACK)
    dry = project.catchup("run", "hourly-etl", "-n")

    found = project.catchup("run", "hourly-etl", "-f")

    run_id = found.stdout.strip()
    assert "Would skip 3 missed slots (manual_run); without a terminal, or with --keep-missed" in dry.stderr
    assert "Skipped 3 missed slots (manual_run)." in found.stderr
    assert project.text("preview").endswith("0 runs would be dispatched, 3 skipped.\n")
    project.tick()
    (skipped,) = project.json("runs", "--state", "skipped")["skipped"]
    assert (skipped["reason"], skipped["count"], skipped["runId"]) == ("manual_run", 3, run_id)
    assert f"manual_run ({run_id[:8]})" in project.text("runs", "--state", "skipped")
    assert [trigger for _, trigger in project.slots("hourly-etl")] == ["manual"]
    assert project.json("preview", "--at", BACK)["previews"][0]["slots"] == []


@pytest.mark.parametrize("options", [(), ("--keep-missed",)], ids=["no terminal", "asked for"])
def test_without_a_terminal_a_manual_run_leaves_missed_slots_to_the_catch_up(
    project: Project, desk_clock: FakeClock, options: tuple[str, ...]
) -> None:
    desk_clock.set(BACK)

    found = project.catchup("run", "hourly-etl", *options)
    project.tick()

    assert ("3 missed slots will be caught up, too; -f skips them." in found.stderr) is not bool(options)
    assert dispatched(project) == ["10:00", "11:00", "12:00", "12:02"]


def test_a_manual_run_asks_on_a_terminal_and_no_changes_nothing(
    project: Project, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk_clock.set(BACK)
    monkeypatch.setattr(Screen, "can_ask", True)

    found = project.catchup("run", "hourly-etl", input="n\n", code=1)

    assert "Skip 3 missed slots that would be caught up?" in found.stderr
    assert project.json("runs")["runs"] == []


def test_a_manual_run_of_a_paused_entry_passes_over_what_its_resume_would_catch_up(
    project: Project, desk_clock: FakeClock
) -> None:
    project.catchup("pause", "hourly-etl")
    desk_clock.set(BACK)

    assert project.json("run", "hourly-etl", "-f")["passedOver"] == 3


def test_only_the_other_slots_are_passed_over_by_the_run_of_a_slot(
    project: Project, desk_clock: FakeClock
) -> None:
    desk_clock.set(BACK)

    found = project.json("run", "hourly-etl", "--at", "2026-02-07T11:00Z", "-f")
    project.tick()

    assert found["passedOver"] == 2
    assert dispatched(project) == ["11:00"]
    skipped = project.json("runs", "--state", "skipped")["skipped"]
    assert sorted((one["first"][11:16], one["reason"]) for one in skipped) == [
        ("10:00", "manual_run"),
        ("11:00", "already_exists"),
        ("12:00", "manual_run"),
    ]


def test_a_watermark_before_a_manual_run_brings_its_slots_back(
    project: Project, desk_clock: FakeClock
) -> None:
    desk_clock.set(BACK)
    project.catchup("run", "hourly-etl", "-f")
    project.tick()

    moved = project.catchup("watermark", "set", "hourly-etl", "2026-02-07T10:30Z", "-f")
    project.tick()

    assert "Then 2 runs would be dispatched" in moved.stderr
    assert dispatched(project) == ["11:00", "12:00", "12:02"]


def test_an_entry_without_a_policy_can_be_run_by_hand(redis_url: str, desk_clock: FakeClock) -> None:
    fast = {"task": "proj.etl", "schedule": 0.5}
    project = Project(redis_url, desk_clock, {"fast": fast, "plain": HOURLY}, {})

    assert project.json("run", "fast")["run"]["state"] == "queued"
    assert project.json("run", "plain", "--at", "2026-02-07T09:00Z")["run"]["state"] == "queued"


def test_on_another_broker_the_leading_beat_publishes_the_run(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, catchup_redis_url=redis_url)
    project.app.conf.broker_url = "memory://"

    found = project.catchup("run", "hourly-etl")

    assert "The leading beat publishes it with its next tick." in found.stderr
    assert project.json("status")["toBePublished"] == 1


@pytest.mark.parametrize("at", ["2026-02-07T08:00Z", "2026-02-07T09:05Z"], ids=["back", "to now"])
@pytest.mark.parametrize("paused", [False, True], ids=["running", "paused"])
def test_what_a_preview_assumes_of_a_move_is_what_the_store_then_holds(
    project: Project, at: str, *, paused: bool
) -> None:
    from celery_catchup.config.times import parse_time
    from celery_catchup.store.controls import with_moved_watermarks

    if paused:
        project.catchup("pause", "hourly-etl", "--reason", "x")
    with project.operator() as operator:
        moment = parse_time(at, now=project.clock.now(), zone=operator.app.timezone)
        assumed = with_moved_watermarks(
            operator.read_stored(), ["hourly-etl"], int(moment.timestamp() * 1000)
        )

        project.catchup("watermark", "set", "hourly-etl", at, "-f")

        held = operator.read_stored()
        assert held.decided == assumed.decided
        texts = (held.paused, assumed.paused)
        assert len({json.dumps({n: json.loads(t) for n, t in p.items()}, sort_keys=True) for p in texts}) == 1
