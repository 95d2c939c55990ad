"""Celery's own events of runs: what exporters and monitors read is as for any other task."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from tests.acceptance.processes import until
from tests.acceptance.programs import Program

APP = "tests.projects.operated"


@pytest.fixture
def program(redis_url: str, tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path, app=APP, environ={"CATCHUP_TEST_URL": redis_url})
    yield program
    program.end()


@pytest.fixture
def events(redis_url: str) -> Iterator[dict[str, list[dict[str, Any]]]]:
    """Every event that workers send meanwhile, by its task's id; those of workers under ``worker``."""
    seen: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    app = Celery("monitor", broker=redis_url, set_as_current=False)
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(
            connection, handlers={"*": lambda event: seen[event.get("uuid", "worker")].append(event)}
        )
        listener = threading.Thread(
            target=receiver.capture, kwargs={"limit": None, "timeout": None, "wakeup": False}
        )
        listener.start()
        yield seen
        receiver.should_stop = True
        listener.join(30)
    app.close()


def test_a_run_makes_the_events_of_a_task_each_once_under_its_run_id(
    program: Program, events: dict[str, list[dict[str, Any]]]
) -> None:
    program.start("worker", "--pool", "solo", "-E", "--loglevel", "INFO")
    until(lambda: events["worker"], what="the worker's first event")

    run_id = program.catchup("run", "hourly-etl")["runId"]
    until(lambda: len(events[run_id]) >= 3, what="the events of the run")

    assert [event["type"] for event in events[run_id]] == ["task-received", "task-started", "task-succeeded"]
    assert events[run_id][0]["name"] == "operated.etl"
