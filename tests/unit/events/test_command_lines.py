"""A command in a log line names the app as this process knows it."""

from __future__ import annotations

import sys

import pytest
from celery import Celery

from celery_catchup.events.command_lines import command_line


@pytest.mark.parametrize(
    ("argv", "app"),
    [
        (["celery", "-A", "proj", "beat"], "proj"),
        (["celery", "beat", "--app", "proj.celery:app", "-S", "x"], "proj.celery:app"),
        (["celery", "--app=proj", "beat"], "proj"),
        (["celery", "-Aproj", "beat"], "proj"),
        (["celery", "beat", "-A"], "YOUR_APP"),
        (["manage.py", "beat"], "YOUR_APP"),
    ],
)
def test_the_app_is_what_the_process_was_given(
    monkeypatch: pytest.MonkeyPatch, argv: list[str], app: str
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.delenv("CELERY_APP", raising=False)

    assert command_line("backfill", "hourly etl") == f"celery -A {app} catchup backfill 'hourly etl'"


def test_the_environment_names_the_app_where_the_arguments_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["celery", "beat"])
    monkeypatch.setenv("CELERY_APP", "proj")

    assert command_line("status") == "celery -A proj catchup status"


def test_the_module_that_made_the_app_is_named_when_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["beat.py"])
    monkeypatch.delenv("CELERY_APP", raising=False)
    app = Celery(__name__, set_as_current=False)
    monkeypatch.setattr("celery_catchup.events.command_lines.current_app", app)

    assert command_line("status") == f"celery -A {__name__} catchup status"
