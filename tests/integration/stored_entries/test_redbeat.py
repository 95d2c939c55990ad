"""From redbeat: its documented examples in our words, and an app that is moved across a stop."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from celery.schedules import crontab, schedule
from redbeat import RedBeatSchedulerEntry
from redis import Redis

import celery_catchup
from celery_catchup.model import to_datetime
from celery_catchup.operations import Operator
from celery_catchup.store import Ledger, Store
from celery_catchup.stored_entries.entries import Entries
from celery_catchup.testing import FakeClock
from tests.integration.operating import Project

BEFORE = datetime(2026, 2, 7, 9, 0, tzinfo=UTC)
BACK = "2026-02-07T12:02:00Z"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    found = FakeClock(BACK)
    monkeypatch.setattr(Entries, "clock", found)
    monkeypatch.setattr(Operator, "clock", found)
    return found


@pytest.fixture
def project(redis_url: str, clock: FakeClock) -> Project:
    return Project(redis_url, clock, redbeat_redis_url=redis_url)


def saved(project: Project, name: str, when: Any, **fields: Any) -> RedBeatSchedulerEntry:
    """An entry that redbeat itself has saved, and last sent at nine."""
    entry = RedBeatSchedulerEntry(name, "proj.copy", when, app=project.app, **fields)
    entry.last_run_at = BEFORE
    return entry.save()


def test_redbeats_documented_examples_in_our_words(project: Project) -> None:
    """README of redbeat, "Creating and Modifying Tasks": its call stands above each of ours."""
    entries = celery_catchup.entries(project.app)

    # interval = celery.schedules.schedule(run_every=60)  # seconds
    # entry = RedBeatSchedulerEntry('task-name', 'tasks.some_task', interval, args=['arg1', 2])
    # entry.save()
    entries.create("task-name", task="tasks.some_task", schedule=60, args=["arg1", 2])

    # entry = RedBeatSchedulerEntry.from_key('redbeat:task-name')
    entry = entries.get("task-name")
    assert (entry.task, entry.args, entry.schedule) == ("tasks.some_task", ["arg1", 2], {"every": "1m"})

    # entry.schedule = schedule(run_every=30); entry.args = ['arg3']; entry.save()
    entries.update("task-name", schedule=30, args=["arg3"])
    assert entries.get("task-name").schedule == {"every": "30s"}

    # entry.enabled = False; entry.save()
    entries.update("task-name", enabled=False)
    assert not entries.get("task-name").enabled

    # zrange redbeat::schedule 0 -1
    assert [one.name for one in entries.list()] == ["task-name"]

    # entry.delete()
    entries.delete("task-name")
    assert entries.list() == []


def test_an_app_with_dynamic_entries_is_moved_across_a_stop_without_losing_a_slot(
    project: Project, redis_url: str
) -> None:
    saved(project, "hourly-etl", crontab(minute=0))
    saved(project, "dynamic", crontab(minute="0,30"), args=[1], kwargs={"a": "b"}, options={"queue": "slow"})
    saved(project, "every", schedule(run_every=3600))
    saved(project, "off", crontab(minute=0), enabled=False)
    saved(project, "both", crontab(minute=0, day_of_month="1", day_of_week="mon"))

    policy = ("--catchup", '{"window": "1d", "overlap_policy": "all"}')
    planned = project.catchup("import", "redbeat", *policy, "-n")
    assert "4 entries would be taken over" in planned.stdout
    done = project.catchup("import", "redbeat", *policy)
    again = project.json("import", "redbeat", *policy)
    project.tick()

    assert "4 entries taken over" in done.stdout
    assert "day_of_month and day_of_week are both set" in done.stderr
    assert {one["entry"]: one["fate"] for one in again["entries"]} == {
        "both": "not translated",
        "dynamic": "known already",
        "every": "known already",
        "hourly-etl": "known already",
        "off": "known already",
    }
    with Redis.from_url(redis_url) as client:
        ledger = Ledger(Store(client, "proj"))

        def slots(entry: str) -> list[str]:
            return [f"{to_datetime(run['slot']):%H:%M}" for run in ledger.runs_of(entry)]

        assert slots("hourly-etl") == slots("every") == ["10:00", "11:00", "12:00"]
        assert slots("dynamic") == ["09:30", "10:00", "10:30", "11:00", "11:30", "12:00"]
        assert slots("off") == []
    found = celery_catchup.entries(project.app).get("dynamic")
    assert (found.args, found.kwargs, found.options) == ([1], {"a": "b"}, {"queue": "slow"})
    assert not celery_catchup.entries(project.app).get("off").enabled
