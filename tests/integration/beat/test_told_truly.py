"""What a restarted beat says is true: of custom schedules, of a killed leader, of the end of a catch-up."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import ClassVar

import pytest
from celery.schedules import BaseSchedule, crontab
from redis import Redis

from celery_catchup.testing import FakeClock
from tests.integration.operating import ALL, HOURLY, Project


class Gated(BaseSchedule):
    """Due at each full hour, but only while a gate is open: that does not follow from time alone."""

    is_open: ClassVar[bool] = False

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        begun = last_run_at.replace(minute=0, second=0, microsecond=0)
        return begun + timedelta(hours=1) - self.now()

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        left = self.remaining_estimate(last_run_at).total_seconds()
        return left <= 0 and type(self).is_open, max(left, 1.0)


def test_a_schedule_that_does_not_follow_from_time_alone_is_not_caught_up(
    redis_url: str,
    desk_clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    project = Project(redis_url, desk_clock, {"gated": {"task": "proj.etl", "schedule": crontab()}}, {})
    project.app.conf.beat_schedule = {"gated": {"task": "proj.etl", "schedule": Gated(app=project.app)}}
    project.app.conf.catchup_entries = {"gated": ALL}

    project.tick()
    desk_clock.set("2026-02-07T12:02:00Z")
    with Redis.from_url(redis_url) as client, project.beat() as beat:
        beat.tick()
        assert client.llen("celery") == 0, "it was sent although it is not due"

        monkeypatch.setattr(Gated, "is_open", True)
        for _ in range(3):
            desk_clock.advance(seconds=2)
            beat.tick()
        assert client.llen("celery") == 1, "it is sent once, as under Celery's own scheduler"

    monkeypatch.setattr(Gated, "is_open", False)
    (warning, *_) = [one for one in caplog.messages if "its own next time" in one]
    assert 'msg="Catch-up is off for an entry"' in warning
    assert "does not depend on time alone" in project.catchup("preview", "gated", code=2).stderr


@pytest.mark.parametrize("back", ["10:00:05", "10:02:00", "11:00:05", "12:02:00"])
def test_the_end_of_a_catch_up_counts_the_runs_that_are_listed_as_such(
    redis_url: str, desk_clock: FakeClock, back: str, caplog: pytest.LogCaptureFixture
) -> None:
    project = Project(redis_url, desk_clock)
    project.tick()
    desk_clock.set(f"2026-02-07T{back}Z")

    project.tick()

    listed = project.json("runs", "--trigger", "catchup")["runs"]
    ends = [re.search(r'"Catch-up completed" dispatched=(\d+)', one) for one in caplog.messages]
    assert sum(int(found[1]) for found in ends if found) == len(listed)


def test_a_restart_with_another_schedule_warns_of_no_leader_that_is_dead(
    redis_url: str, desk_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    before = Project(redis_url, desk_clock)
    killed = type("Scheduler", (_beat_class(before),), {})(before.app)
    killed.tick()  # it leads, and is killed: its lease is left behind

    after = Project(redis_url, desk_clock, {"hourly-etl": {**HOURLY, "schedule": crontab(minute=30)}})
    with after.beat() as restarted:
        for _ in range(12):
            desk_clock.advance(milliseconds=500)
            restarted.tick()
        leads = after.json("status")["leader"] is not None

    assert leads
    assert not [one for one in caplog.messages if "State suspect" in one]
    killed.close()


def _beat_class(project: Project) -> type:
    with project.beat() as beat:
        return type(beat)
