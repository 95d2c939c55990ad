"""Texts of tasks and names of entries: no secrets are shown, and none reads as something else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from celery_catchup.events.log_lines import logfmt
from celery_catchup.events.redaction import redacted_value
from celery_catchup.model import RunState
from celery_catchup.testing import FakeClock
from tests.integration.flowers import Site, flower
from tests.integration.operating import ALL, HOURLY, Project

REVERSED = "etl\u202eexe.\u2066gpj\u200f\u061c"
SECRET = "hunter2hunter2"


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    project = Project(redis_url, desk_clock, {"etl": HOURLY}, {"etl": ALL})
    project.tick()
    desk_clock.set("2026-02-07T10:02:00Z")
    project.tick()
    with project.running("etl") as run:
        run.checkpoint("login", {"password": SECRET, "rows": 5, "deep": [{"api_key": SECRET}]})
        run.snapshot("headers", lambda: [f"Authorization: Bearer {SECRET}", {"x-api-key": SECRET}])
        run.output("token", SECRET)
        run.output(REVERSED, REVERSED)
        run.output("report", f"https://ada:{SECRET}@example.com/?sig={SECRET}")
    letter = {
        "type": "KeyError",
        "traceback": f"{REVERSED} line 1",
        "category": REVERSED,
        "context": {"jwt": SECRET},
    }
    project.execute("etl", state=RunState.FAILED, error=REVERSED, letter=letter)
    project.catchup("pause", "etl", "--reason", REVERSED)
    return project


@pytest.fixture
def site(project: Project) -> Iterator[Site]:
    with flower(project.app) as site:
        yield site


def test_notes_are_shown_without_what_is_named_like_a_secret(site: Site, project: Project) -> None:
    run = site.get("/runs").json["items"][0]["runId"]

    answers = [
        site.get(f"/runs/{run}").text,
        site.get(f"/dead-letters/{run}").text,
        site.get("/dead-letters").text,
        site.ask(f"/catchup/run/{run}").text,
        site.ask("/catchup/dead").text,
        project.text("runs", "show", run),
        project.text("runs", "show", run, "-j"),
        project.text("dlq", "show", run, "-j"),
    ]

    assert [answer for answer in answers if SECRET in answer] == []
    notes = site.get(f"/runs/{run}").json["notes"]
    assert notes["checkpoints"]["login"] == {"password": "***", "rows": 5, "deep": [{"api_key": "***"}]}
    with project.operator() as operator:  # the task itself finds what it noted
        assert operator.notes.read(run)["checkpoints"]["login"]["password"] == SECRET


def test_a_value_is_redacted_by_its_name_and_deep_ones_are_hidden() -> None:
    deep: object = "x"
    for _ in range(2000):
        deep = [deep]

    assert redacted_value({"a": 1, "pwd": 5, "is_secret": True, "token": None}) == {
        "a": 1,
        "pwd": "***",
        "is_secret": True,
        "token": None,
    }
    assert "***" in str(redacted_value(deep))


def test_characters_that_change_the_direction_of_text_are_shown_as_escapes(
    site: Site, project: Project
) -> None:
    run = site.get("/runs").json["items"][0]["runId"]
    texts = [
        *(
            site.ask(page).text
            for page in ("/catchup", "/catchup/runs", "/catchup/dead", "/catchup/backfills")
        ),
        site.ask(f"/catchup/run/{run}").text,
        *(
            site.get(path).text
            for path in ("/runs", "/schedules", "/dead-letters", "/preview", "/runs?state=x")
        ),
        project.text("runs"),
        project.text("dlq", "show", run),
        logfmt("A line", entry=REVERSED),
    ]

    assert [text for text in texts if any(control in text for control in "\u202e\u2066\u200f\u061c")] == []
    assert "etl\\u202eexe" in site.ask(f"/catchup/run/{run}").text
    assert site.get(f"/runs/{run}").json["run"]["error"] == REVERSED  # escapes of JSON lose nothing
    assert "\\u202e" in texts[-1]
