"""What beats, workers and operators do is heard by whoever subscribed in their process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from celery_catchup import signals
from celery_catchup.beat.scheduler import Scheduler
from celery_catchup.events import (
    BackfillAdvanced,
    CatchupCompleted,
    CatchupStarted,
    Event,
    RunDispatched,
    RunSkipped,
    Ticked,
    TickFailed,
    subscribe,
)
from celery_catchup.model import Trigger
from celery_catchup.testing import FakeClock
from tests.integration.operating import Project
from tests.integration.workers import Site, Worker


@pytest.fixture
def heard() -> Iterator[list[Event]]:
    events: list[Event] = []
    end = subscribe(events.append)
    yield events
    end()


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    """Beat was down from 09:05 to 12:02, and is about to start."""
    project = Project(redis_url, desk_clock)
    project.tick()
    desk_clock.set("2026-02-07T12:02:00Z")
    return project


def test_a_catch_up_is_heard_from_its_beginning_to_its_end(project: Project, heard: list[Event]) -> None:
    started: list[dict[str, Any]] = []

    def receive(**told: Any) -> None:
        started.append(told)

    signals.catchup_started.connect(receive)
    heard.clear()
    project.tick()
    signals.catchup_started.disconnect(receive)

    kinds = Counter(map(type, heard))
    assert kinds[CatchupStarted] == kinds[CatchupCompleted] == 1
    runs = [event for event in heard if isinstance(event, RunDispatched)]
    assert [run.scheduled_time.hour for run in runs] == [10, 11, 12]
    assert all(run.is_catchup for run in runs)
    assert kinds[Ticked] >= 1
    assert [told["candidates"] for told in started] == [3]


def test_a_preview_is_heard_by_nobody(project: Project, heard: list[Event]) -> None:
    heard.clear()

    project.json("preview")

    assert heard == []


def test_backfills_and_manual_runs_are_heard_too(project: Project, heard: list[Event]) -> None:
    project.tick()
    heard.clear()
    span = ("--start", "2026-02-07T05:00:00Z", "--end", "2026-02-07T07:00:00Z")

    project.json("run", "hourly-etl")
    project.json("backfill", "hourly-etl", *span, "--force")
    project.tick()

    triggers = Counter(event.trigger for event in heard if isinstance(event, RunDispatched))
    assert triggers == {Trigger.MANUAL: 1, Trigger.BACKFILL: 3}
    (part,) = [event for event in heard if isinstance(event, BackfillAdvanced)]
    assert (part.entry, part.dispatched, part.skipped, part.complete) == ("hourly-etl", 3, 0, True)


def test_slots_that_will_not_run_are_heard_with_their_reason(
    redis_url: str, desk_clock: FakeClock, heard: list[Event]
) -> None:
    project = Project(redis_url, desk_clock, policies={"hourly-etl": {"window": "6h", "select": "latest"}})
    project.tick()
    desk_clock.set("2026-02-07T12:02:00Z")
    project.tick()

    skipped = [event for event in heard if isinstance(event, RunSkipped)]
    assert {str(event.skip.reason) for event in skipped} == {"superseded"}
    assert sum(event.skip.count for event in skipped) == 2


def test_a_tick_that_cannot_reach_its_store_is_heard(heard: list[Event]) -> None:
    app = Celery("nobody", broker="redis://127.0.0.1:1/0", set_as_current=False)
    scheduler = Scheduler(app)

    wait = scheduler.tick()
    scheduler.close()

    (failed,) = heard
    assert isinstance(failed, TickFailed)
    assert (failed.what, failed.retry_in) == ("redis", wait)


def test_a_worker_tells_of_its_runs_and_of_one_that_is_dead(redis_url: str, tmp_path: Path) -> None:
    site = Site(redis_url, tmp_path)
    with Worker(site, project="tests.projects.heard"):
        failing = site.send_run(kwargs={"fail": True})
        site.wait_for("dead")
        site.send(failing)
        site.wait_for("heard", 4)
    heard = [(line["kind"], line["run_id"]) for line in site.lines("heard")]
    (dead,) = site.lines("dead")
    site.close()

    assert heard == [(kind, failing) for kind in ("RunStarted", "AttemptEnded", "RunDied", "RunRefused")]
    assert (dead["sender"], dead["run_id"]) == ("hourly-etl", failing)
    assert dead["reason"] == "ValueError: it did not work"
