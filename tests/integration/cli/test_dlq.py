"""``celery catchup dlq``: runs that failed for good; looked at, replayed, discarded."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from celery_catchup.model import RunState
from celery_catchup.testing import FakeClock
from tests.integration.operating import ALL, HOURLY, Project

BACK = "2026-02-07T12:02:00Z"
LETTER = {
    "category": "transient",
    "type": "proj.errors.Timeout",
    "traceback": 'Traceback:\n\tFile "x"\n\x1b[31mTimeout\x1b[0m: red\n',
}


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    """Two runs of etl, at 10:00 and 11:00, are dead; that of 12:00 is queued."""
    project = Project(redis_url, desk_clock, {"etl": HOURLY}, {"etl": ALL})
    project.tick()
    desk_clock.set(BACK)
    project.tick()
    project.execute("etl", state=RunState.FAILED, error="Timeout: slow\x1b[2J\ndisk", letter=LETTER)
    desk_clock.advance(minutes=1)
    project.execute("etl", state=RunState.FAILED, error="ValueError: no")
    return project


def dead(project: Project) -> list[str]:
    return [letter["run"]["runId"] for letter in project.json("dlq", "list")["deadLetters"]]


def test_the_table_of_dead_letters(project: Project) -> None:
    newest, oldest = dead(project)
    new, old = newest[:8], oldest[:8]

    found = project.catchup("dlq", "list")

    assert found.stdout == (
        "Run ID    Entry    Scheduled For      Died At            Attempt    Category    Error\n"
        "--------  -------  -----------------  -----------------  ---------  ----------  ------------------\n"
        f"{new}  etl      2026-02-07 11:00Z  2026-02-07 12:03Z  1          unknown     ValueError: no\n"
        f"{old}  etl      2026-02-07 10:00Z  2026-02-07 12:02Z  1          transient   Timeout: slow disk\n"
    )
    assert found.stderr == f"To replay the first: celery -A YOUR_APP catchup dlq replay {newest}\n"


def test_dead_letters_are_filtered_by_entry_and_category(redis_url: str, project: Project) -> None:
    assert len(project.json("dlq", "list", "etl")["deadLetters"]) == 2
    (letter,) = project.json("dlq", "list", "--category", "transient")["deadLetters"]
    assert letter["category"] == "transient"
    assert project.json("dlq", "list", "--category", "permanent") == {"deadLetters": []}
    project.catchup("dlq", "list", "nobody", code=2)


def test_one_is_shown_with_its_traceback_and_nothing_that_a_terminal_obeys(project: Project) -> None:
    _, oldest = dead(project)

    text = project.text("dlq", "show", oldest[:8])
    found = project.json("dlq", "show", oldest)

    assert "State: dead" in text
    assert "Category: transient" in text
    assert text.endswith('\n\nTraceback:\n    File "x"\nTimeout: red\n')
    assert "\x1b" not in text
    assert found["exception"] == "proj.errors.Timeout"
    assert found["diedAt"] == "2026-02-07T12:02:00Z"
    assert found["run"]["state"] == "dead"


def test_what_is_no_dead_letter_is_not_shown_as_one(project: Project) -> None:
    (queued,) = project.json("runs", "--state", "queued")["runs"]

    refused = project.catchup("dlq", "show", queued["runId"], code=1)

    assert refused.stderr == f"Error: run {queued['runId']} is not a dead letter, it is queued\n"


def test_a_replay_is_a_new_attempt_of_the_same_run(project: Project, caplog: Any) -> None:
    newest, oldest = dead(project)
    with caplog.at_level(logging.INFO):
        replayed = project.text("dlq", "replay", oldest[:8], "-f")

    run = project.json("runs", "show", oldest)["run"]
    assert replayed == f"{oldest[:8]}  etl  2026-02-07T10:00:00Z  replayed\n"
    assert (run["state"], run["attempt"], run["replays"]) == ("waiting", 2, 1)
    assert "@" in run["requestedBy"]
    assert dead(project) == [newest]
    assert any('msg="Run replayed"' in message and "by=" in message for message in caplog.messages)


def test_replaying_twice_is_done_once_and_no_error(project: Project) -> None:
    _, oldest = dead(project)
    project.catchup("dlq", "replay", oldest, "-f")

    again = project.catchup("dlq", "replay", oldest, "-f", code=0)
    while project.execute("etl"):
        pass
    later = project.json("dlq", "replay", oldest, "-f", code=0)

    assert "it was replayed before, and is waiting" in again.stderr
    assert later["runs"][0]["outcome"] == "under way"
    assert project.json("runs", "show", oldest)["run"]["attempt"] == 2


def test_what_runs_or_has_succeeded_by_itself_is_refused(project: Project) -> None:
    (queued,) = project.json("runs", "--state", "queued")["runs"]
    running = project.catchup("dlq", "replay", queued["runId"], "-f", code=1)
    project.execute("etl")
    done = project.catchup("dlq", "replay", queued["runId"], "-f", code=1)

    assert "it is queued; wait for its end" in running.stderr
    assert (
        "it has succeeded; to run it again all the same: celery -A YOUR_APP catchup backfill" in done.stderr
    )


def test_an_unknown_run_is_refused(project: Project) -> None:
    refused = project.catchup("dlq", "replay", "ffffffff-ffff", "-f", code=1)

    assert refused.stderr.startswith("Error: no such run: 'ffffffff-ffff'")


def test_a_run_whose_task_nobody_declares_is_not_replayed(
    redis_url: str, desk_clock: FakeClock, project: Project
) -> None:
    oldest = dead(project)[1]
    other = Project(redis_url, desk_clock, {"x": {**HOURLY, "task": "proj.other"}}, {"x": ALL})
    del other.app.tasks["proj.etl"]

    refused = other.catchup("dlq", "replay", oldest, "-f", code=1)

    assert "task 'proj.etl' is neither in the schedule nor registered any more" in refused.stderr


def test_all_are_replayed_in_the_order_of_their_slots(project: Project) -> None:
    found = project.json("dlq", "replay", "--all", "-f")

    assert [run["scheduledTime"][11:13] for run in found["runs"]] == ["10", "11"]
    assert {run["outcome"] for run in found["runs"]} == {"replayed"}
    assert dead(project) == []
    assert project.catchup("dlq", "replay", "--all", "-f").stderr == "No dead letters.\n"


def test_all_of_a_category_can_be_chosen(project: Project) -> None:
    found = project.json("dlq", "discard", "--all", "--category", "unknown", "--entry", "etl", "-f")

    assert [run["scheduledTime"][11:13] for run in found["runs"]] == ["11"]


def test_a_dry_run_and_a_missing_terminal_change_nothing(project: Project) -> None:
    before = dead(project)

    dry = project.json("dlq", "replay", "--all", "-n")
    refused = project.catchup("dlq", "replay", "--all", code=1)
    project.catchup("dlq", "discard", "--all", code=1)

    assert {run["outcome"] for run in dry["runs"]} == {"dry run"}
    assert refused.stderr == (
        "Error: refusing to replay 2 runs without confirmation, and there is no terminal to ask; "
        "add -f to do it, or -n to see what it would do\n"
    )
    assert dead(project) == before


def test_a_discarded_run_stays_recorded_as_failed(project: Project) -> None:
    newest, oldest = dead(project)

    text = project.text("dlq", "discard", newest[:8], "-f")
    again = project.catchup("dlq", "discard", newest[:8], "-f", code=1)

    assert text == f"{newest[:8]}  etl  2026-02-07T11:00:00Z  discarded\n"
    assert "it is not a dead letter, it is failed" in again.stderr
    assert project.json("runs", "show", newest)["run"]["state"] == "failed"
    assert dead(project) == [oldest]


def test_runs_are_named_or_all_are_meant(project: Project) -> None:
    project.catchup("dlq", "replay", "-f", code=2)
    project.catchup("dlq", "replay", "abcd1234", "--all", "-f", code=2)
    project.catchup("dlq", "replay", "abcd1234", "--entry", "x", "-f", code=2)


def test_a_run_that_has_not_started_can_be_buried_by_hand_and_its_message_is_refused(
    project: Project,
) -> None:
    (queued,) = project.json("runs", "--state", "queued")["runs"]

    would = project.json("dlq", "bury", queued["runId"], "-n")["runs"]
    project.text("dlq", "bury", queued["runId"], "-f")
    again = project.catchup("dlq", "bury", queued["runId"], "-f", code=1)

    assert [one["outcome"] for one in would] == ["dry run"]
    assert "it is dead; only a run that has not started can be buried" in again.stderr
    letter = project.json("dlq", "show", queued["runId"])
    assert letter["run"]["error"].startswith("buried by ")
    assert queued["runId"] in dead(project)
