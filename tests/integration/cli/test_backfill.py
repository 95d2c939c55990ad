"""``celery catchup backfill``: asked for, listed, directed; the leader does the work."""

from __future__ import annotations

from typing import Any

import pytest

from celery_catchup.model import RunState
from celery_catchup.testing import FakeClock
from tests.integration.operating import ALL, HOURLY, Project

DAY = ("--start", "2026-02-06", "--end", "2026-02-06")


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    project = Project(redis_url, desk_clock)
    project.tick()
    return project


def test_a_date_is_the_whole_day(project: Project) -> None:
    lines = project.text("backfill", "hourly-etl", *DAY, "-n").splitlines()

    assert lines[0] == (
        'Backfill preview for "hourly-etl" '
        "(2026-02-06T00:00:00Z to 2026-02-06T23:59:59.999Z, reprocess: none)"
    )
    assert lines[3] == "  2026-02-06T00:00:00Z     dispatch"
    assert lines[-3] == "  2026-02-06T23:00:00Z     dispatch"
    assert lines[-1] == "24 runs would be dispatched."


@pytest.mark.parametrize(("days", "lines"), [(1, 24), (4, 60)], ids=["all", "cut in the middle"])
def test_newest_first_is_shown_newest_first(project: Project, days: int, lines: int) -> None:
    between = ("--start", f"2026-02-0{7 - days}", "--end", "2026-02-06", "--newest-first", "-n")

    shown = [
        line for line in project.text("backfill", "hourly-etl", *between).splitlines() if "dispatch" in line
    ]
    listed = [one["scheduledTime"] for one in project.json("backfill", "hourly-etl", *between)["slots"]]

    assert shown[0].startswith("  2026-02-06T23:00:00Z")
    assert shown[-2].startswith(f"  2026-02-0{7 - days}T00:00:00Z")
    assert len(shown) == lines + 1  # and the sum
    assert listed == sorted(listed, reverse=True)


@pytest.mark.parametrize("how", ["-n", "-f"])
def test_newest_first_is_refused_when_each_run_waits_for_the_success_of_the_one_before(
    redis_url: str, desk_clock: FakeClock, how: str
) -> None:
    project = Project(redis_url, desk_clock, {"etl": HOURLY}, {"etl": {**ALL, "on_failure": "stop"}})

    refused = project.catchup("backfill", "etl", *DAY, "--newest-first", how, code=1)

    assert "entry 'etl' has on_failure: stop" in refused.stderr
    assert project.json("backfill", "list") == {"backfills": []}
    project.json("backfill", "etl", *DAY, how)


def test_a_dry_run_creates_nothing(project: Project) -> None:
    found = project.json("backfill", "hourly-etl", *DAY, "-n")

    assert (found["dispatched"], len(found["slots"])) == (24, 24)
    assert {slot["triggerType"] for slot in found["slots"]} == {"backfill"}
    assert project.json("backfill", "list") == {"backfills": []}


def test_without_a_terminal_it_is_refused_unless_forced(project: Project) -> None:
    refused = project.catchup("backfill", "hourly-etl", *DAY, code=1)

    assert refused.stderr == (
        "Error: refusing to backfill 24 slots without confirmation, and there is no terminal to ask; "
        "add -f to do it, or -n to see what it would do\n"
    )
    assert project.json("backfill", "list") == {"backfills": []}


def test_a_backfill_runs_in_the_scheduler_and_tells_how_far_it_is(project: Project) -> None:
    created = project.catchup(
        "backfill", "hourly-etl", "--start", "2026-02-07T05:00Z", "--end", "2026-02-07T07:00Z", "-f"
    )
    backfill = created.stdout.strip()
    assert created.stderr == f"To watch it: celery -A YOUR_APP catchup backfill show {backfill} --follow\n"

    with project.beat() as beat:
        for _ in range(3):
            beat.tick()
        under_way = project.json("backfill", "show", backfill)
        for run in under_way_runs(project):
            finish(project, run)
        for _ in range(3):
            beat.tick()
    lines = project.text("backfill", "show", backfill[:4], "--follow").splitlines()

    assert (under_way["state"], under_way["dispatched"], under_way["waiting"]) == ("running", 3, 2)
    assert lines == [
        f"Backfill: {backfill}",
        "Entry: hourly-etl",
        "State: completed",
        "From: 2026-02-07T05:00:00Z",
        "To: 2026-02-07T07:00:00Z",
        "Slots: 3",
        "Dispatched: 3",
        "Skipped: 0",
        "Waiting: 0",
        "Order: oldest first, 1 active at once",
        "Reprocess: none",
        "Created At: 2026-02-07T09:05:00Z",
    ]
    runs = project.json("runs", "--trigger", "backfill")["runs"]
    assert {run["backfill"] for run in runs} == {backfill}
    assert [run["scheduledTime"][11:13] for run in runs] == ["07", "06", "05"]


def under_way_runs(project: Project) -> Any:
    """Runs in the order in which workers get them."""
    while found := project.json("runs", "--state", "queued")["runs"]:
        yield found[0]["runId"]


def finish(project: Project, run_id: str) -> None:
    from celery_catchup.store import Leases

    with project.operator() as operator:
        leases = Leases(operator.store, ttl_ms=60_000)
        leases.claim(run_id, owner="w", task="proj.etl", worker="celery@here")
        leases.finish(run_id, entry="hourly-etl", owner="w", state=RunState.SUCCEEDED)


def test_the_table_of_backfills(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, {"etl": HOURLY}, {"etl": ALL})
    between = ("--start", "2026-02-06T00:00Z", "--end", "2026-02-06T23:00Z")
    made = project.json("backfill", "etl", *between, "--newest-first", "--max-active", "3", "-f")["id"]

    assert project.text("backfill", "list") == (
        "ID        Entry    From               To                 Slots    Dispatched    Skipped    State\n"
        "--------  -------  -----------------  -----------------  -------  ------------  ---------  -------\n"
        f"{made}  etl      2026-02-06 00:00Z  2026-02-06 23:00Z  24       0             0          running\n"
    )
    shown = project.json("backfill", "show", made)
    assert shown.pop("requestedBy")
    assert shown == {
        "id": made,
        "entry": "etl",
        "state": "running",
        "start": "2026-02-06T00:00:00Z",
        "end": "2026-02-06T23:00:00Z",
        "reprocess": "none",
        "newestFirst": True,
        "maxActive": 3,
        "createdAt": "2026-02-07T09:05:00Z",
        "total": 24,
        "dispatched": 0,
        "skipped": 0,
        "waiting": 0,
        "span": None,
    }


def test_a_backfill_of_too_many_slots_has_to_be_allowed(project: Project) -> None:
    century = ("hourly-etl", "--start", "1970-01-01T00:00Z", "--end", "2026-02-06T23:00Z", "-f")

    refused = project.catchup("backfill", *century, code=1).output
    preview = project.catchup("backfill", *century, "-n", code=1).stderr
    made = project.json("backfill", *century, "--max-slots", "500000")

    assert "the range has 491,784 slots, and the backfill may have 100,000" in refused
    assert "--max-slots 491784" in refused
    assert "--max-slots 491784" in preview
    assert made["total"] == 491_784


def test_a_backfill_is_paused_resumed_and_cancelled(project: Project) -> None:
    backfill = project.json("backfill", "hourly-etl", *DAY, "-f")["id"]

    assert project.json("backfill", "pause", backfill)["state"] == "paused"
    assert project.json("backfill", "resume", backfill[:5], "-n")["state"] == "paused"
    assert project.json("backfill", "resume", backfill)["state"] == "running"
    refused = project.catchup("backfill", "cancel", backfill, code=1)
    assert "refusing to cancel a backfill" in refused.stderr
    assert project.json("backfill", "cancel", backfill, "-f")["state"] == "cancelled"
    assert project.json("backfill", "cancel", backfill)["state"] == "cancelled"
    ended = project.catchup("backfill", "resume", backfill, code=1)
    assert ended.stderr == f"Error: backfill {backfill} is cancelled already\n"


def test_a_cancelled_backfill_sends_nothing_more(project: Project) -> None:
    backfill = project.json("backfill", "hourly-etl", *DAY, "-f")["id"]
    project.tick()
    project.catchup("backfill", "cancel", backfill, "-f")
    (first,) = project.json("runs", "--state", "queued")["runs"]
    finish(project, first["runId"])
    project.tick()

    states = [run["state"] for run in project.json("runs", "--trigger", "backfill")["runs"]]

    assert states.count("revoked") == 23
    assert states.count("succeeded") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (("hourly-etl", "--start", "2026-02-08", "--end", "2026-02-09"), 1, "is in the future"),
        (("hourly-etl", "--start", "2026-02-06", "--end", "2026-02-05"), 1, "ends before it starts"),
        (("hourly-etl", "--start", "2026-02-06T00:01Z", "--end", "2026-02-06T00:02Z"), 1, "no slot in that"),
        (("hourly-etl", "--start", "2026-02-06"), 2, "Missing option '--end'"),
        (("nobody", *DAY), 2, "no such entry"),
        (("plain", *DAY), 2, "has no catch-up policy"),
        (("hourly-etl", *DAY, "--max-active", "0"), 2, "0 is not in the range"),
        (("show", "ffff"), 1, "no such backfill"),
        (("pause", "ffff"), 1, "no such backfill"),
    ],
    ids=["future", "reversed", "empty", "no end", "unknown", "plain", "nothing active", "show", "pause"],
)
def test_what_cannot_be_backfilled_is_refused_in_a_sentence(
    redis_url: str, desk_clock: FakeClock, arguments: tuple[str, ...], code: int, complaint: str
) -> None:
    project = Project(redis_url, desk_clock, {"hourly-etl": HOURLY, "plain": HOURLY}, {"hourly-etl": ALL})

    force = () if arguments[0] == "show" else ("-f",)
    found = project.catchup("backfill", *arguments, *force, code=code)

    assert complaint in found.stderr
    assert found.stdout == ""


def test_an_entry_that_has_the_name_of_a_command_can_be_backfilled(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = Project(redis_url, desk_clock, {"list": HOURLY}, {"list": ALL})

    assert project.json("backfill", "create", "list", *DAY, "-n")["entry"] == "list"


def test_a_live_beat_is_told_of_a_backfill_at_once(project: Project) -> None:
    with project.beat() as beat:
        beat.tick()
        project.catchup("backfill", *DAY, "hourly-etl", "-f")
        beat.tick()
        beat.tick()

    assert project.json("status")["backfills"] == 1
    assert len(project.json("runs", "--trigger", "backfill")["runs"]) == 24
