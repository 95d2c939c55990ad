"""``celery catchup status``, ``entries`` and ``runs``: what an operator looks at, and its tables."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from unittest.mock import ANY

import pytest
from celery.schedules import crontab, schedule

from celery_catchup.events.command_lines import command_line
from celery_catchup.model import RunState
from celery_catchup.store import Notes
from celery_catchup.testing import FakeClock
from tests.integration.beats import by_tester
from tests.integration.operating import ALL, HOURLY, Project

BACK = "2026-02-07T12:02:00Z"


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    """Beat was down from 09:05 to 12:02, and caught up; a live slot followed."""
    project = Project(redis_url, desk_clock)
    project.tick()
    desk_clock.set(BACK)
    project.tick()
    for _ in range(3):
        project.execute("hourly-etl")
    desk_clock.set("2026-02-07T13:00:01Z")
    project.tick()
    project.execute("hourly-etl")
    return project


# -- status ----------------------------------------------------------------------------------


def test_before_any_beat_the_status_says_so(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock)

    found = project.catchup("status")

    assert found.stdout.splitlines()[0] == "Scheduler: never started in namespace proj"
    assert found.stderr == "To find the problem: celery -A YOUR_APP catchup doctor\n"
    project.catchup("status", "--check", code=1)


def test_a_healthy_beat_is_running_and_idle(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, catchup_lease_ttl="10s")
    with project.beat() as beat:
        beat.tick()
        desk_clock.advance(seconds=2)
        beat.tick()
        desk_clock.advance(seconds=3)

        lines = project.text("status").splitlines()
        project.catchup("status", "--check")

    assert lines[0] == "Scheduler: running (idle)"
    assert lines[1] == "Workers: none answers"
    assert lines[2].startswith("Leader: ")
    assert lines[2].endswith(" (epoch 1)")
    assert lines[3:] == [
        "Last tick: 2026-02-07T09:05:02Z (3s ago)",
        "Watermark: 2026-02-07T09:05:02Z (lag 3s)",
        "Runs in flight: 0 (0 queued, 0 running)",
        "Dead letters: 0",
        "Not recovered in the last day: 0",
    ]


def test_a_catch_up_in_progress_is_told_in_the_words_of_the_specification(
    redis_url: str, desk_clock: FakeClock
) -> None:
    every = {"task": "proj.etl", "schedule": "*/12 * * * *"}
    project = Project(
        redis_url, desk_clock, {"e": every}, {"e": ALL}, catchup_batch_size=5, catchup_rate_limit="1s"
    )
    project.tick()
    desk_clock.set(BACK)
    with project.beat() as beat:
        for _ in range(5):
            beat.tick()
            desk_clock.advance(seconds=1)

        line = project.text("status").splitlines()[0]
        found = project.json("status")

    assert line == "Scheduler: running (catch-up in progress: 5/15 dispatched, 0 skipped)"
    assert found["catchup"] == {"total": 15, "dispatched": 5, "skipped": 0}


def test_a_beat_that_is_gone_is_down_for_so_long(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock)
    with project.beat() as beat:
        beat.tick()
        project.catchup("status", "--check")
        desk_clock.advance(hours=3, minutes=2)

        found = project.catchup("status", "--check", code=1)
        lax = project.catchup("status", "--check", "--max-age", "4h")
        told = project.json("status")

    assert found.stdout == "Scheduler: down for 3h2m\n"
    assert lax.stdout == "Scheduler: running (idle)\n"
    assert (told["scheduler"], told["healthy"], told["lastTickAge"]) == ("down", False, 10920.0)


def test_a_leader_that_has_resigned_leaves_nobody_leading(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock)
    project.tick()
    desk_clock.advance(seconds=5)

    found = project.catchup("status", "--check", code=1)

    assert found.stdout == "Scheduler: standing by (no beat leads, the last leader resigned 5s ago)\n"


def test_what_was_not_recovered_is_counted_and_the_way_on_is_named(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = Project(redis_url, desk_clock, {"a": HOURLY, "b": HOURLY}, {"a": "1h", "b": False})
    project.tick()
    desk_clock.set(BACK)
    project.tick()
    project.catchup("pause", "b")

    found = project.catchup("status")

    assert "Not recovered in the last day: 5" in found.stdout
    assert "Paused: b" in found.stdout
    assert "celery -A YOUR_APP catchup runs --state skipped --since 24h" in found.stderr
    assert project.json("status")["notRecovered"] == 5


def test_the_status_in_json_has_the_documented_fields(redis_url: str, desk_clock: FakeClock) -> None:
    found = Project(redis_url, desk_clock).json("status")

    assert found == {
        "scheduler": "never started",
        "healthy": False,
        "beatHealthy": False,
        "namespace": "proj",
        "leader": None,
        "epoch": None,
        "lastTick": None,
        "lastTickAge": None,
        "watermark": None,
        "lag": None,
        "catchup": None,
        "inFlight": 0,
        "queued": 0,
        "running": 0,
        "waitingForRetry": 0,
        "toBePublished": 0,
        "deadLetters": 0,
        "notRecovered": 0,
        "paused": [],
        "stopped": [],
        "backfills": 0,
        "workers": 0,
        "standbys": 0,
        "withoutPlugin": [],
        "conflict": None,
        "undecided": None,
        "failing": [],
        "activeCatchup": None,
        "held": {},
        "overdue": {},
        "undecidedEntries": [],
        "queues": [],
        "longRunning": [],
        "unpublishedFor": None,
        "fleet": {
            "asked": True,
            "workers": [],
            "busy": [],
            "withoutPlugin": [],
            "unserved": [
                {"queue": "celery", "task": None, "entries": ["hourly-etl"], "workers": [], "entirely": True}
            ],
        },
    }


# -- entries ---------------------------------------------------------------------------------


def test_the_table_of_entries(redis_url: str, desk_clock: FakeClock) -> None:
    entries: dict[str, Any] = {
        "hourly-etl": HOURLY,
        "report": {"task": "proj.report", "schedule": "*/15 * * * *"},
        "digest": {"task": "proj.digest", "schedule": crontab(minute=30, hour="*/4")},
        "two": {"task": "proj.etl", "schedule": ["0 6 * * *", {"cron": "0 18 * * *"}][:1]},
        "poll": {"task": "proj.poll", "schedule": schedule(timedelta(minutes=5))},
        "fast": {"task": "proj.poll", "schedule": 0.5},
    }
    policies = {
        "hourly-etl": ALL,
        "report": {"window": "1d", "select": "latest"},
        "digest": False,
        "two": "2h",
    }
    project = Project(redis_url, desk_clock, entries, policies)
    project.tick()
    project.catchup("pause", "report", "--reason", "move")
    desk_clock.set("2026-02-07T10:00:00Z")
    project.tick()

    assert project.text("entries") == (
        "Entry       Schedule      Catch-up    Overlap    Watermark          Next                      "
        "State\n"
        "----------  ------------  ----------  ---------  -----------------  ------------------------  "
        "-------------\n"
        "hourly-etl  0 * * * *     all 6h      all        2026-02-07 10:00Z  2026-02-07 11:00Z         "
        "1 queued\n"
        "report      */15 * * * *  latest 1d   skip       -                  -                         "
        "paused (move)\n"
        "digest      30 */4 * * *  off         allow      -                  2026-02-07 12:30Z         idle\n"
        "two         0 6 * * *     all 2h      skip       -                  2026-02-08 06:00Z         idle\n"
        "poll        every 5m      -           -          -                  2026-02-07 10:05Z         idle\n"
        "fast        every 500ms   -           -          -                  2026-02-07 10:00:00.500Z  idle\n"
    )


def test_the_zone_of_cron_strings_is_that_in_which_they_are_read(
    redis_url: str, desk_clock: FakeClock
) -> None:
    entries: dict[str, Any] = {
        "app's": {"task": "proj.etl", "schedule": crontab(minute=0)},  # a crontab belongs to its first app
        "own": {"task": "proj.etl", "schedule": "0 9 * * *"},
        "unmanaged": {"task": "proj.etl", "schedule": crontab(minute=0, hour=9)},
        "interval": {"task": "proj.etl", "schedule": 60.0},
    }
    policies = {"app's": ALL, "own": {**ALL, "timezone": "Asia/Tokyo"}}
    project = Project(redis_url, desk_clock, entries, policies, timezone="Europe/Berlin")

    found = {one["name"]: one["timezone"] for one in project.json("entries")["entries"]}

    berlin = "Europe/Berlin"
    assert found == {"app's": berlin, "own": "Asia/Tokyo", "unmanaged": berlin, "interval": None}
    assert "0 9 * * * (Asia/Tokyo)" in project.text("entries")


def test_an_entry_in_json_has_the_documented_fields(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock)
    project.tick()
    project.catchup("pause", "hourly-etl")

    assert project.json("entries") == {
        "entries": [
            {
                "name": "hourly-etl",
                "task": "proj.etl",
                "schedule": "0 * * * *",
                "timezone": "UTC",
                "catchup": "all",
                "overlapPolicy": "all",
                "window": "6h",
                "paused": True,
                "pausedAt": "2026-02-07T09:05:00Z",
                "pauseReason": None,
                "pausedBy": ANY,
                "next": None,
                "watermark": None,
                "firstSeenAt": "2026-02-07T09:05:00Z",
                "active": 0,
                "queued": 0,
                "running": 0,
                "waiting": 0,
                "stoppedBy": [],
                "failing": None,
                "failingSince": None,
                "held": None,
                "stored": False,
                "revision": None,
                "finished": False,
                "undecidedSince": None,
                "expectWithin": None,
                "overdue": 0,
                "lastSuccess": None,
            }
        ]
    }


# -- runs ------------------------------------------------------------------------------------


def test_the_table_of_runs_shows_slot_and_start_side_by_side(project: Project) -> None:
    ids = [run["runId"][:8] for run in project.json("runs")["runs"]]

    assert project.text("runs", "hourly-etl") == (
        "Run ID    Trigger    Scheduled For      Started At         State\n"
        "--------  ---------  -----------------  -----------------  ---------\n"
        f"{ids[0]}  Scheduled  2026-02-07 13:00Z  2026-02-07 13:00Z  succeeded\n"
        f"{ids[1]}  Catch-up   2026-02-07 12:00Z  2026-02-07 12:02Z  succeeded\n"
        f"{ids[2]}  Catch-up   2026-02-07 11:00Z  2026-02-07 12:02Z  succeeded\n"
        f"{ids[3]}  Catch-up   2026-02-07 10:00Z  2026-02-07 12:02Z  succeeded\n"
    )


def test_of_several_entries_each_run_says_whose_it_is(project: Project) -> None:
    first = project.text("runs").splitlines()[0]

    assert first == "Run ID    Entry       Trigger    Scheduled For      Started At         State"


def test_a_run_in_json_has_the_documented_fields(project: Project) -> None:
    found = project.json("runs", "--limit", "2")

    run = found["runs"][1]
    assert found["cursor"] == f"1770465600000-{run.pop('runId')}"
    created, queued = run.pop("createdAt"), run.pop("queuedAt")
    assert created == "2026-02-07T12:02:00Z"
    assert queued is not None
    assert run == {
        "entry": "hourly-etl",
        "task": "proj.etl",
        "state": "succeeded",
        "triggerType": "catchup",
        "isCatchup": True,
        "scheduledTime": "2026-02-07T12:00:00Z",
        "dataIntervalStart": "2026-02-07T11:00:00Z",
        "startedAt": "2026-02-07T12:02:00Z",
        "finishedAt": "2026-02-07T12:02:00Z",
        "lag": 120.0,
        "duration": 0.0,
        "attempt": 1,
        "worker": "celery@here",
        "error": None,
        "backfill": None,
        "replays": 0,
        "requestedBy": None,
        "tenant": None,
        "logicVersion": None,
        "deadline": None,
        "slots": 1,
    }


def hours(found: Any) -> list[str]:
    return [run["scheduledTime"][11:13] for run in found["runs"]]


def test_runs_are_filtered_by_trigger_state_and_time(project: Project, desk_clock: FakeClock) -> None:
    project.catchup("run", "hourly-etl")

    assert hours(project.json("runs", "--trigger", "catchup")) == ["12", "11", "10"]
    assert hours(project.json("runs", "--trigger", "scheduler", "--trigger", "manual")) == ["13", "13"]
    assert hours(project.json("runs", "--state", "queued")) == ["13"]
    assert hours(project.json("runs", "--state", "running")) == []
    assert hours(project.json("runs", "--state", "succeeded", "--limit", "1")) == ["13"]
    assert hours(project.json("runs", "--since", "90m")) == ["13", "13", "12"]
    assert hours(project.json("runs", "--since", "2026-02-07T12:00Z")) == ["13", "13", "12"]
    assert hours(project.json("runs", "--since", "1h30m ago", "--trigger", "catchup")) == ["12"]


def test_waiting_runs_are_found_in_their_chains(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock)
    project.tick()
    desk_clock.set(BACK)
    project.tick()

    assert hours(project.json("runs", "--state", "waiting")) == ["12", "11"]
    assert hours(project.json("runs", "--state", "queued", "--state", "waiting")) == ["12", "11", "10"]


def test_a_listing_that_is_cut_says_so_and_an_empty_one_too(project: Project) -> None:
    cut = project.catchup("runs", "--limit", "2")
    empty = project.catchup("runs", "--state", "revoked")

    assert cut.stderr == "There are more: use --limit 4, or a narrower filter.\n"
    assert empty.stderr == "No such runs.\n"


def test_skipped_slots_are_listed_with_reason_and_the_way_to_run_them(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = Project(redis_url, desk_clock, {"a": HOURLY, "b": HOURLY}, {"a": "90m", "b": False})
    project.tick()
    desk_clock.set(BACK)
    project.tick()

    found = project.catchup("runs", "--state", "skipped")

    assert found.stdout == (
        "Entry    First              Last               Slots    Reason\n"
        "-------  -----------------  -----------------  -------  -------------\n"
        "b        2026-02-07 10:00Z  2026-02-07 12:00Z  3        catchup_off\n"
        "a        2026-02-07 12:00Z  2026-02-07 12:00Z  1        guard_blocked\n"
        "a        2026-02-07 10:00Z  2026-02-07 10:00Z  1        expired\n"
    )
    assert found.stderr.endswith(
        "celery -A YOUR_APP catchup backfill b --start 2026-02-07T10:00:00Z --end 2026-02-07T12:00:00Z\n"
    )
    assert project.json("runs", "a", "--state", "skipped", "--limit", "1") == {
        "skipped": [
            {
                "entry": "a",
                "first": "2026-02-07T12:00:00Z",
                "last": "2026-02-07T12:00:00Z",
                "count": 1,
                "reason": "guard_blocked",
                "runId": None,
                "recovered": 0,
            }
        ]
    }
    project.catchup("runs", "--state", "skipped", "--trigger", "catchup", code=2)


def test_a_slot_that_a_backfill_has_run_is_not_counted_as_lost_any_more(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = Project(redis_url, desk_clock, {"off": HOURLY}, {"off": False})
    project.tick()
    desk_clock.set(BACK)
    project.tick()
    assert project.json("status")["notRecovered"] == 3

    between = ("--start", "2026-02-07T10:00Z", "--end", "2026-02-07T11:00Z")
    project.catchup("backfill", "off", *between, "--max-active", "2", "-f")
    project.tick()

    assert project.json("status")["notRecovered"] == 1
    assert "catchup_off (2 ran since)" in project.text("runs", "--state", "skipped")


def test_one_run_is_shown_by_the_beginning_of_its_id(project: Project) -> None:
    run = project.json("runs", "--limit", "1")["runs"][0]

    text = project.text("runs", "show", run["runId"][:8])
    found = project.json("runs", "show", run["runId"].upper())

    assert (found["run"], found["notes"]) == (run, {})
    assert found["attempts"] == [
        {
            "attempt": 1,
            "taskId": run["runId"],
            "startedAt": "2026-02-07T13:00:01Z",
            "endedAt": "2026-02-07T13:00:01Z",
            "worker": "celery@here",
            "outcome": "succeeded",
            "error": None,
        }
    ]
    assert found["inputs"] == {"args": [], "kwargs": {}, "queue": "celery", "readable": True}
    lines = text.splitlines()
    assert lines[:4] == [f"Run ID: {run['runId']}", "Entry: hourly-etl", "Task: proj.etl", "State: succeeded"]
    assert "Scheduled For: 2026-02-07T13:00:00Z" in lines
    assert "Lag: 1s" in lines


def test_attempts_before_the_last_are_listed_with_what_became_of_them(project: Project) -> None:
    run = project.json("runs", "--limit", "1")["runs"][0]["runId"]
    with project.operator() as operator:
        operator.controls.replay(run, change=by_tester(), entry="hourly-etl")
    project.execute("hourly-etl", state=RunState.FAILED, error="KeyError: 'x'")

    lines = project.text("runs", "show", run).splitlines()

    where = "2026-02-07T13:00:01Z, celery@here"
    assert f"Attempt 1: succeeded, {where}, task id {run}" in lines
    assert f"Attempt 2: dead, {where}, KeyError: 'x', task id {run}" in lines


def test_what_a_task_has_noted_is_shown(project: Project) -> None:
    project.catchup("run", "hourly-etl")
    run = project.json("runs", "--limit", "1")["runs"][0]["runId"]
    with project.operator() as operator:
        store = operator.store
        store.client.hset(
            store.keys.notes, run, '{"checkpoints": {"row": "41"}, "outputs": {"file": "\\"s3://x\\""}}'
        )
        assert isinstance(operator.notes, Notes)

    lines = project.text("runs", "show", run).splitlines()

    assert lines[-2:] == ["Checkpoints, row: 41", 'Outputs, file: "s3://x"']
    assert project.json("runs", "show", run)["notes"]["checkpoints"] == {"row": 41}


def test_an_id_that_is_unknown_short_or_ambiguous_is_refused(project: Project) -> None:
    with project.operator() as operator:
        record = json.dumps(
            {"entry": "hourly-etl", "state": "dead", "trigger": "manual", "slot": 1, "attempt": 1}
        )
        for twin in ("abcd0001", "abcd0002"):
            operator.store.client.hset(operator.store.keys.ledger, twin, record)
            operator.store.client.zadd(operator.store.keys.runs, {twin: 1})

    unknown = project.catchup("runs", "show", "ffffffff-0000", code=1)
    short = project.catchup("runs", "show", "f", code=1)
    ambiguous = project.catchup("runs", "show", "abcd", code=1)

    assert unknown.stderr == f"Error: no such run: 'ffffffff-0000'; list them with: {command_line('runs')}\n"
    assert "at least 4 characters" in short.stderr
    assert "several runs: abcd0002, abcd0001; give more of it" in ambiguous.stderr


def test_runs_of_an_entry_that_is_gone_are_still_listed(
    redis_url: str, desk_clock: FakeClock, project: Project
) -> None:
    after = Project(redis_url, desk_clock, {"other": HOURLY}, {})

    assert hours(after.json("runs", "hourly-etl")) == ["13", "12", "11", "10"]
    refused = after.catchup("runs", "hourly-elt", code=2)
    assert "no such entry: 'hourly-elt' (known: hourly-etl, other); did you mean" in refused.stderr


def test_a_record_that_cannot_be_read_is_a_row_that_says_so(project: Project) -> None:
    with project.operator() as operator:
        for run_id, text in {
            "broken-1": '{"entry": "hou',
            "broken-2": '{"entry": "x", "state": "odd"}',
        }.items():
            operator.store.client.hset(operator.store.keys.ledger, run_id, text)
            operator.store.client.zadd(operator.store.keys.runs, {run_id: 1_770_465_600_000})

    runs = project.json("runs")["runs"]
    assert [one["error"] for one in runs if one["runId"].startswith("broken")] == [
        "the record of this run cannot be read: another program has changed it"
    ] * 2
    assert [one["scheduledTime"][11:13] for one in runs] == ["13", "12", "12", "12", "11", "10"]


def test_attempts_are_a_column_when_there_were_several(project: Project) -> None:
    project.catchup("run", "hourly-etl")
    (run,) = project.execute("hourly-etl", state=RunState.FAILED, error="ValueError: no")
    project.catchup("dlq", "replay", run, "-f")

    assert "  Attempt  " in project.text("runs").splitlines()[0]
