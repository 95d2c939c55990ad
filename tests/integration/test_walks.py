"""Count the files between a slot and the broker, a task's end and the ledger, a request and its page.

The architecture page lists them. ``CATCHUP_WRITE_WALKS=1 pytest tests/integration/test_walks.py`` updates it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from celery.app.trace import build_tracer
from redis import Redis

import celery_catchup
from celery_catchup.flower import operators
from celery_catchup.testing import FakeClock
from celery_catchup.worker_plugin.installation import install
from celery_catchup.worker_plugin.worker_process import worker_process
from tests.integration.flowers import flower
from tests.integration.operating import ALL, HOURLY, Project

PACKAGE = Path(celery_catchup.__file__).parent
PAGE = PACKAGE.parent / "docs" / "explanation" / "architecture.md"
OBSERVERS = ("events/", "signals.py", "testing/", "clock.py")
"""Files that only observe a walk, or belong to the test."""


class Walk:
    """The files of the package whose functions are called, in the order of their first call.

    With ``through``, only calls below a function of that file count, and the callers of that function.
    """

    def __init__(self, *, through: str = "") -> None:
        self.files: list[str] = []
        self._through = through

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        name = _name(frame)
        if event != "call" or not name:
            return
        callers = [_name(one) for one in _stack(frame)]
        if not self._through or self._through in callers:
            for one in reversed([one for one in callers if one]) if self._through else [name]:
                if one not in self.files and not one.startswith(OBSERVERS):
                    self.files.append(one)


def _name(frame: FrameType) -> str:
    """The file of a frame within the package; "" for one of others, and for a package's ``__init__``."""
    path = frame.f_code.co_filename
    ours = path.startswith(str(PACKAGE)) and not path.endswith("__init__.py")
    return Path(path).relative_to(PACKAGE).as_posix() if ours else ""


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


@contextmanager
def walking(walk: Walk) -> Iterator[None]:
    """Record a walk, in this thread and in those that are started meanwhile."""
    threading.setprofile(walk.note)
    sys.setprofile(walk.note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock("2026-02-07T09:05:00Z")


@pytest.fixture
def project(redis_url: str, clock: FakeClock) -> Project:
    return Project(redis_url, clock, {"etl": HOURLY}, {"etl": ALL})


def check(title: str, files: list[str], *, most: int) -> None:
    """Compare a walk with the list on the page, or write it there."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(f"### {title}\n", 1)
    listing, after = rest.split("```text\n", 1)[1].split("```", 1)
    if os.environ.get("CATCHUP_WRITE_WALKS"):
        rows = "".join(f"{file}\n" for file in files)
        intro = rest.split("```text\n", 1)[0]
        PAGE.write_text(f"{before}### {title}\n{intro}```text\n{rows}```{after}", encoding="utf-8")
    else:
        assert set(files) <= set(listing.split())  # caches may spare some of them
    assert len(files) <= most


def test_a_live_slot_crosses_few_files_on_its_way_to_the_broker(project: Project, clock: FakeClock) -> None:
    walk = Walk(through="engine/advance.py")
    with project.beat() as scheduler:
        scheduler.tick()
        clock.set("2026-02-07T10:00:00Z")
        scheduler.tick()  # Celery builds the first message of an entry; the next ones are rendered
        clock.set("2026-02-07T11:00:00Z")

        with walking(walk):
            scheduler.tick()

    check("A live slot", walk.files, most=25)


def test_the_end_of_a_run_crosses_few_files(project: Project, clock: FakeClock, redis_url: str) -> None:
    walk = Walk()
    task = project.app.tasks["proj.etl"]
    task.run = lambda: sys.setprofile(walk.note)  # the walk begins where the task's body ends
    install(project.app)
    project.tick()
    clock.set("2026-02-07T10:00:00Z")
    project.tick()
    with Redis.from_url(redis_url) as client:
        message = json.loads(client.rpop("celery"))  # type: ignore[arg-type]
    headers, properties = message["headers"], message["properties"]
    request = {**headers, "properties": properties, "delivery_info": properties["delivery_info"]}

    try:
        tracer = build_tracer(task.name, task, app=project.app)
        tracer(headers["id"], (), {}, {**request, "hostname": "worker@here", "is_eager": False})
    finally:
        sys.setprofile(None)
    worker_process(project.app).heartbeat.read_answers()  # the report is sent, and its answer read later

    assert [run["state"] for run in project.json("runs")["runs"]] == ["succeeded"]
    check("The end of a run", walk.files, most=10)


def test_a_page_crosses_few_files(
    project: Project, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hour in (9, 10, 12):
        clock.set(f"2026-02-07T{hour:02}:05:00Z")
        project.tick()
    walk = Walk()
    with ThreadPoolExecutor(1) as threads, walking(walk), flower(project.app) as site:
        monkeypatch.setattr(operators, "_threads", threads)
        monkeypatch.setattr(operators, "FOLLOW_EVERY", 3600)
        assert site.ask("/catchup/runs").status == 200
        walk.files.clear()  # opening the store and the configuration is done once

        assert "2026-02-07" in site.ask("/catchup/runs").text

    check("A page of the tab", walk.files, most=15)
