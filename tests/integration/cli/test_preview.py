"""``celery catchup preview``: to the character, and what beat then does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from celery.schedules import crontab

from celery_catchup.testing import FakeClock
from tests.integration.operating import ALL, HOURLY, Project

BACK = "2026-02-07T12:02:00Z"


def an_outage(url: str, clock: FakeClock, *args: Any, **settings: Any) -> Project:
    """Beat goes down at 09:05, and the operator looks at 12:02."""
    project = Project(url, clock, *args, **settings)
    project.tick()
    clock.set(BACK)
    return project


def test_the_table_is_the_one_of_the_specification(redis_url: str, desk_clock: FakeClock) -> None:
    project = an_outage(redis_url, desk_clock)

    found = project.catchup("preview", "hourly-etl")

    assert found.stdout == (
        'Catch-up preview for "hourly-etl" (overlapPolicy: all, window: 6h)\n'
        "\n"
        "  Scheduled Time           Action\n"
        "  2026-02-07T10:00:00Z     dispatch\n"
        "  2026-02-07T11:00:00Z     dispatch\n"
        "  2026-02-07T12:00:00Z     dispatch\n"
        "\n"
        "3 runs would be dispatched.\n"
    )
    assert found.stderr == ""


def test_dry_run_is_another_word_for_it(redis_url: str, desk_clock: FakeClock) -> None:
    project = an_outage(redis_url, desk_clock)

    assert project.text("--dry-run", "hourly-etl") == project.text("preview", "hourly-etl")


def test_skipped_slots_have_their_reason(redis_url: str, desk_clock: FakeClock) -> None:
    project = an_outage(redis_url, desk_clock, None, {"hourly-etl": "6h"})

    assert project.text("preview", "hourly-etl").splitlines()[2:] == [
        "  Scheduled Time           Action",
        "  2026-02-07T10:00:00Z     dispatch",
        "  2026-02-07T11:00:00Z     skip (guard_blocked)",
        "  2026-02-07T12:00:00Z     skip (guard_blocked)",
        "",
        "1 run would be dispatched, 2 skipped.",
    ]


def test_slots_that_fell_out_of_the_window_are_a_note(redis_url: str, desk_clock: FakeClock) -> None:
    project = an_outage(redis_url, desk_clock, None, {"hourly-etl": "1h"})

    found = project.catchup("preview", "hourly-etl")

    assert "2026-02-07T11:00:00Z" not in found.stdout
    assert found.stderr == "2 older slots fell out of the window.\n"


def test_nothing_missed_is_said_in_a_line(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock)
    project.tick()

    assert project.text("preview") == "Nothing was missed: 0 runs would be dispatched.\n"
    assert project.text("preview", "hourly-etl").endswith("\n\n0 runs would be dispatched.\n")


def test_without_names_every_entry_that_missed_something_is_shown(
    redis_url: str, desk_clock: FakeClock
) -> None:
    nightly = {"task": "proj.etl", "schedule": "30 2 * * *"}
    project = an_outage(
        redis_url,
        desk_clock,
        {"a": HOURLY, "b": HOURLY, "nightly": nightly, "plain": HOURLY},
        {"a": ALL, "b": "6h", "nightly": ALL},
    )

    found = project.text("preview")

    assert found.count("Catch-up preview for") == 2
    assert found.endswith("\nIn all: 4 runs would be dispatched, 2 skipped.\n")


def test_a_long_list_is_cut_in_the_middle_and_json_is_whole(redis_url: str, desk_clock: FakeClock) -> None:
    minutely = {"task": "proj.etl", "schedule": "* * * * *"}
    project = an_outage(redis_url, desk_clock, {"m": minutely}, {"m": ALL})

    lines = project.text("preview", "m").splitlines()
    slots = project.json("preview", "m")["previews"][0]["slots"]

    assert lines[3] == "  2026-02-07T09:06:00Z     dispatch"
    assert "  …                        117 more" in lines
    assert lines[-3] == "  2026-02-07T12:02:00Z     dispatch"
    assert lines[-1] == "177 runs would be dispatched."
    assert len(slots) == 177
    assert [slot["scheduledTime"] for slot in slots] == sorted(slot["scheduledTime"] for slot in slots)


def test_json_has_the_documented_fields(redis_url: str, desk_clock: FakeClock) -> None:
    project = an_outage(
        redis_url, desk_clock, None, {"hourly-etl": {"window": "2h", "overlap_policy": "skip"}}
    )

    (found,) = project.json("preview", "hourly-etl")["previews"]

    slots = found.pop("slots")
    assert found == {
        "entry": "hourly-etl",
        "select": "all",
        "overlapPolicy": "skip",
        "window": "2h",
        "since": "2026-02-07T10:02:00Z",
        "at": "2026-02-07T12:02:00Z",
        "paused": False,
        "missed": True,
        "dispatched": 1,
        "skipped": 1,
        "expired": 1,
        "error": None,
        "held": 0,
        "maxActive": None,
    }
    identity = slots[0].pop("runId")
    assert len(identity) == 36
    assert slots == [
        {
            "scheduledTime": "2026-02-07T11:00:00Z",
            "action": "dispatch",
            "reason": None,
            "triggerType": "catchup",
            "slots": 1,
        },
        {
            "scheduledTime": "2026-02-07T12:00:00Z",
            "action": "skip",
            "reason": "guard_blocked",
            "triggerType": None,
            "runId": None,
            "slots": 1,
        },
    ]


def test_the_exit_code_tells_of_missed_slots_when_asked(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock)
    project.tick()
    project.catchup("preview", "--exit-code", code=0)

    desk_clock.set("2026-02-07T10:00:20Z")  # a live slot that beat has not come to yet
    project.catchup("preview", "--exit-code", code=0)

    desk_clock.set(BACK)
    project.catchup("preview", "--exit-code", code=3)
    project.catchup("preview", "--exit-code", "-j", code=3)
    project.catchup("preview", code=0)


def test_another_time_can_be_asked_for(redis_url: str, desk_clock: FakeClock) -> None:
    project = an_outage(redis_url, desk_clock)

    assert "5 runs would be dispatched." in project.text("preview", "hourly-etl", "--at", "2026-02-07T14:30Z")
    assert "1 run would be dispatched." in project.text("preview", "hourly-etl", "--at", "2h ago")


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (("--window", "1h"), "1 run would be dispatched."),
        (("--policy", "skip"), "1 run would be dispatched, 2 skipped."),
        (("--policy", "latest"), "1 run would be dispatched, 2 skipped."),
        (("--policy", "off"), "0 runs would be dispatched, 3 skipped."),
        (("--policy", "latest", "--window", "30m"), "1 run would be dispatched."),
    ],
    ids=" ".join,
)
def test_another_policy_can_be_asked_for(
    redis_url: str, desk_clock: FakeClock, asked: tuple[str, ...], answer: str
) -> None:
    policy = {**ALL, "max_active_runs": 2}
    project = an_outage(redis_url, desk_clock, None, {"hourly-etl": policy})

    assert project.text("preview", "hourly-etl", *asked).splitlines()[-1] == answer
    assert "3 runs would be dispatched." in project.text("preview", "hourly-etl")


def test_what_would_happen_if_an_entry_had_a_policy(redis_url: str, desk_clock: FakeClock) -> None:
    quarterly = {"task": "proj.etl", "schedule": crontab(minute="*/15")}
    project = an_outage(redis_url, desk_clock, {"off": HOURLY, "plain": quarterly}, {"off": False})

    assert "0 runs would be dispatched, 3 skipped." in project.text("preview", "off")
    assert "1 run would be dispatched, 2 skipped." in project.text("preview", "off", "--window", "6h")

    refused = project.catchup("preview", "plain", code=2)
    assert refused.stderr == (
        "Error: entry 'plain' has no catch-up policy; "
        "add a window, such as 6h, to see what it would recover\n"
    )
    asked = project.text("preview", "plain", "--window", "1h", "--policy", "all")
    assert 'for "plain" (overlapPolicy: all, window: 1h)' in asked
    assert "4 runs would be dispatched." in asked


def test_a_policy_without_a_window_is_a_mistake(redis_url: str, desk_clock: FakeClock) -> None:
    project = an_outage(redis_url, desk_clock, {"plain": HOURLY}, {})

    found = project.catchup("preview", "plain", "--policy", "all", code=2)

    assert "missing with select: all" in found.stderr


def test_caps_over_all_entries_are_in_the_preview(redis_url: str, desk_clock: FakeClock) -> None:
    project = an_outage(
        redis_url, desk_clock, {"a": HOURLY, "b": HOURLY}, {"a": ALL, "b": ALL}, catchup_max_runs=3
    )

    found = project.json("preview")["previews"]
    project.tick()

    assert [(one["dispatched"], one["skipped"]) for one in found] == [(2, 1), (1, 2)]
    for one in found:
        expected = [slot["scheduledTime"] for slot in one["slots"] if slot["action"] == "dispatch"]
        assert [slot for slot, _ in project.slots(one["entry"])] == expected


def test_a_paused_entry_is_said_to_be_paused(redis_url: str, desk_clock: FakeClock) -> None:
    project = an_outage(redis_url, desk_clock)
    project.catchup("pause", "hourly-etl")

    found = project.catchup("preview", "hourly-etl")

    assert found.stdout.endswith("0 runs would be dispatched.\n")
    assert found.stderr == '"hourly-etl" is paused: nothing is dispatched until it is resumed.\n'


def test_millions_of_slots_are_counted_and_not_listed(redis_url: str, desk_clock: FakeClock) -> None:
    minutely = {"task": "proj.etl", "schedule": "* * * * *"}
    policy = {"window": "1000d", "select": "latest"}
    project = an_outage(redis_url, desk_clock, {"m": minutely}, {"m": policy})
    desk_clock.advance(days=900)

    last = project.text("preview", "m").splitlines()[-1]

    expected = int(timedelta(days=900, hours=2, minutes=57).total_seconds()) // 60
    assert last == f"1 run would be dispatched, {expected - 1} skipped."


def test_preview_changes_nothing(redis_url: str, desk_clock: FakeClock) -> None:
    project = an_outage(redis_url, desk_clock)
    with project.operator() as operator:
        client: Any = operator.store.client
        before = {key: client.dump(key) for key in client.scan_iter()}

        project.catchup("preview")
        project.catchup("preview", "hourly-etl", "--window", "1h", "-j")

        assert {key: client.dump(key) for key in client.scan_iter()} == before
