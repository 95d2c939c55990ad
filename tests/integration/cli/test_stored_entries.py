"""``celery catchup entries add|edit|delete|apply|export``: for people, and for CI."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from celery_catchup.cli import entries as cli_entries
from celery_catchup.operations import Operator
from celery_catchup.stored_entries.entries import Entries
from celery_catchup.testing import FakeClock
from tests.integration.operating import Project

SET = {
    "entries": [
        {"name": "sync", "task": "proj.etl", "schedule": "0 * * * *", "labels": {"by": "ci"}},
        {"name": "mail", "task": "proj.mail", "schedule": {"every": "15m"}, "labels": {"by": "ci"}},
    ]
}


@pytest.fixture
def project(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Project:
    clock = FakeClock("2026-02-07T09:05:30Z")
    monkeypatch.setattr(Entries, "clock", clock)
    monkeypatch.setattr(Operator, "clock", clock)
    return Project(redis_url, clock)


def names(project: Project) -> list[str]:
    return [one["name"] for one in project.json("entries")["entries"]]


def test_an_entry_is_added_changed_and_deleted(project: Project) -> None:
    added = project.text(
        "entries", "add", "sync", "--task", "proj.etl", "--schedule", "0 * * * *", "--window", "6h",
        "--kwargs", '{"day": 1}', "--label", "team=billing",
    )  # fmt: skip
    assert added == "Created sync (revision 1).\n"
    assert names(project) == ["hourly-etl", "sync"]

    changed = project.text("entries", "edit", "sync", "--every", "15m", "--window", "2h", "--disable")
    assert [line.split()[2] for line in changed.splitlines()[2:5]] == ["schedule", "catchup", "enabled"]
    assert project.json("entries", "export")["entries"] == [
        {
            "name": "sync",
            "task": "proj.etl",
            "schedule": {"every": "15m"},
            "kwargs": {"day": 1},
            "catchup": {"window": "2h"},
            "labels": {"team": "billing"},
            "enabled": False,
        }
    ]

    project.catchup("entries", "delete", "sync", code=1)  # there is no terminal to ask
    assert project.catchup("entries", "delete", "sync", "-n", code=3)
    project.catchup("entries", "delete", "sync", "-f")
    assert names(project) == ["hourly-etl"]


def test_a_dry_run_changes_nothing_and_its_exit_code_tells_of_differences(project: Project) -> None:
    add = ("entries", "add", "sync", "--task", "proj.etl", "--at", "2026-03-01T09:00Z")

    assert "1 would be created" in project.text(*add, "-n", code=3)
    assert names(project) == ["hourly-etl"]
    project.text(*add)
    assert "a stored entry has the name 'sync'" in project.catchup(*add, "-n", code=1).stderr
    assert project.text("entries", "edit", "sync", "--task", "proj.etl", "-n", code=0) == "1 unchanged.\n"
    assert "once at 2026-03-01T09:00Z" in project.text("entries")


def test_wrong_fields_are_reported_together(project: Project) -> None:
    error = project.catchup(
        "entries", "add", "sync", "--schedule", "61 * * * *", "--window", "6x", code=2
    ).stderr

    assert "entries.sync.task" in error
    project.catchup("entries", "add", "sync", "--schedule", "x", "--every", "1h", code=2)
    project.catchup("entries", "add", "sync", "--kwargs", "{", code=2)
    project.catchup("entries", "add", "sync", "--label", "team", code=2)


def test_names_that_are_unknown_taken_or_declared_have_an_exit_code_of_their_own(project: Project) -> None:
    new = ("--task", "proj.etl", "--schedule", "0 * * * *")

    assert (
        "changed in the settings" in project.catchup("entries", "delete", "hourly-etl", "-f", code=2).stderr
    )
    project.catchup("entries", "edit", "nothing", "--every", "1h", code=2)
    assert "a declared entry" in project.catchup("entries", "add", "hourly-etl", *new, code=1).stderr
    project.catchup("entries", "add", "sync", *new)
    project.catchup("entries", "add", "sync", *new, code=1)


@pytest.mark.parametrize("name", ["set.json", "set.yaml"])
def test_a_file_is_applied_compared_and_written(project: Project, tmp_path: Path, name: str) -> None:
    source = tmp_path / "set.yaml"
    source.write_text(json.dumps(SET))  # JSON is YAML

    assert "2 would be created, 0 unchanged." in project.text("entries", "apply", str(source), "-n", code=3)
    assert "2 created" in project.text("entries", "apply", str(source))
    assert project.text("entries", "apply", str(source), "-n", code=0) == "2 unchanged.\n"
    assert project.json("entries", "apply", str(source))["changes"] == []

    project.catchup("entries", "export", str(tmp_path / name), "--label", "by=ci")
    assert project.text("entries", "apply", str(tmp_path / name), "-n", code=0) == "2 unchanged.\n"

    (tmp_path / "less.json").write_text(json.dumps(SET["entries"][:1]))
    table = project.text("entries", "apply", str(tmp_path / "less.json"), "--prune", "by=ci", "-n", code=3)
    assert [line.split()[:2] for line in table.splitlines()[2:3]] == [["mail", "deleted"]]


def test_a_set_comes_from_standard_input(project: Project) -> None:
    project.catchup("entries", "apply", "-", input=json.dumps(SET))

    assert names(project) == ["hourly-etl", "mail", "sync"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "set.json is not JSON"),
        ('{"items": []}', "one under 'entries', got ['items']"),
        ('"x"', "expected a list of entries, got 'x'"),
        ('["x"]', "entries[0]: expected a mapping with name, task and schedule, got 'x'"),
    ],
)
def test_a_file_that_is_no_set_is_refused(project: Project, tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "set.json").write_text(text)

    code = 1 if text == "{" else 2
    assert told in project.catchup("entries", "apply", str(tmp_path / "set.json"), code=code).stderr


def test_without_pyyaml_json_still_works(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "set.json").write_text(json.dumps(SET))

    assert "pip install pyyaml" in project.catchup("entries", "export", code=1).stderr
    project.catchup("entries", "apply", str(tmp_path / "set.json"))


def test_an_entry_is_edited_in_the_editor_until_it_is_right(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = ("--task", "proj.etl", "--schedule", "0 * * * *", "--args", "[1]")
    project.catchup("entries", "add", "sync", *add)
    seen: list[str] = []

    def edit(text: str, **_: Any) -> str:
        seen.append(text)
        return text.replace("proj.etl", "[]") if len(seen) == 1 else text.replace("[]", "proj.mail")

    monkeypatch.setattr(click, "edit", edit)
    monkeypatch.setattr(cli_entries, "_can_edit", lambda: True)
    result = project.catchup("entries", "edit", "sync", input="y\n")

    assert "task: proj.etl" in seen[0]
    assert "entries.sync.task" in result.stderr
    assert project.json("entries", "export")["entries"] == [
        {"name": "sync", "task": "proj.mail", "schedule": "0 * * * *", "args": [1]}
    ]
    monkeypatch.setattr(cli_entries, "_can_edit", lambda: False)
    assert "run it on a terminal" in project.catchup("entries", "edit", "sync", code=2).stderr
