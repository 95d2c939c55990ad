"""Schedules that Celery does not have: their zone, dates, stop and restart hold without a policy, too."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import pytz
from celery import Celery
from celery.schedules import BaseSchedule, crontab, schedule, solar
from dateutil import tz
from redis import Redis

from celery_catchup.config.overlap_policy import OverlapPolicy
from celery_catchup.model import to_rfc3339
from celery_catchup.testing import FakeClock
from celery_catchup.testing.manual_beat import ManualBeat
from tests.integration.operating import Project

pytest_plugins = ["celery_catchup.pytest_plugin"]

Beats = Callable[..., ManualBeat]


def an_app(written: object, policy: object = None, **conf: Any) -> Celery:
    app = Celery("shop", broker="amqp://nobody:nothing@broker.invalid//", set_as_current=False)
    app.conf.beat_schedule = {"e": {"task": "shop.e", "schedule": written}}
    app.conf.catchup_entries = {} if policy is None else {"e": policy}
    app.conf.update(conf)
    return app


class Halves(BaseSchedule):
    """A class of the user's own: each half hour of the clock."""

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        begun = last_run_at.replace(minute=last_run_at.minute // 30 * 30, second=0, microsecond=0)
        return begun + timedelta(minutes=30) - self.now()

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        left = self.remaining_estimate(last_run_at).total_seconds()
        return left <= 0, left if left > 0 else 1800.0


def times(beat: ManualBeat) -> list[str]:
    return [f"{run.scheduled_time:%dT%H:%M}" for run in beat.runs("e")]


def test_the_zone_of_a_mapping_holds_without_a_policy(catchup_beat: Beats) -> None:
    app = an_app({"cron": "0 9 * * *", "timezone": "America/New_York"})
    beat = catchup_beat(app, at="2026-02-07T08:00:00Z")

    beat.advance(hours=24)

    assert times(beat) == ["07T14:00"]


def test_the_dates_of_a_mapping_hold_without_a_policy(catchup_beat: Beats) -> None:
    app = an_app({"cron": "0 * * * *", "start_date": "2026-02-07T10:00Z", "end_date": "2026-02-07T12:00Z"})
    beat = catchup_beat(app, at="2026-02-07T08:05:00Z")

    beat.advance(hours=8)

    assert times(beat) == ["07T10:00", "07T11:00", "07T12:00"]


def test_stop_and_restart_hold_without_a_policy(catchup_beat: Beats, monkeypatch: pytest.MonkeyPatch) -> None:
    app = an_app({"start": "0 8 * * *", "stop": "0 10 * * *", "restart": "0 12 * * *"})
    ended: list[str] = []
    monkeypatch.setattr(app.control, "revoke", lambda ids, **_: ended.extend(ids))
    beat = catchup_beat(app, at="2026-02-07T07:00:00Z")

    beat.advance(hours=2)
    assert ended == []
    beat.advance(hours=2)
    assert ended == [run.run_id for run in beat.runs("e")]
    beat.advance(hours=2)
    assert times(beat) == ["07T08:00", "07T12:00"]


@pytest.mark.parametrize(
    ("written", "hours"),
    [
        ({"cron": "0 20 * * *", "timezone": "Asia/Tokyo"}, [11]),
        ({"cron": "0 * * * *", "start_date": "2026-02-07T13:00Z"}, [13, 14]),
        ({"cron": "0 * * * *", "end_date": "2026-02-07T11:00Z"}, [10, 11]),
        ({"start": "0 10 * * *", "stop": "0 12 * * *", "restart": "0 13 * * *"}, [10, 13]),
    ],
    ids=["zone", "start", "end", "roles"],
)
def test_a_real_beat_sends_the_slots_of_a_mapping_without_a_policy(
    redis_url: str, desk_clock: FakeClock, written: object, hours: list[int]
) -> None:
    project = Project(redis_url, desk_clock, {"e": {"task": "proj.etl", "schedule": written}}, {})

    with project.beat() as beat, Redis.from_url(redis_url) as client:
        for hour in range(9, 15):
            desk_clock.set(f"2026-02-07T{hour:02}:00:01Z")
            beat.tick()
        messages = [json.loads(message) for message in reversed(client.lrange("celery", 0, -1))]

    sent = [int(message["headers"]["scheduled_time"][11:13]) for message in messages]
    assert sent == hours


@pytest.mark.parametrize("written", [["0 * * * *"], {"cron": "0 * * * *"}, {"start": "0 * * * *"}])
def test_missed_slots_do_not_run_without_a_policy(catchup_beat: Beats, written: object) -> None:
    beat = catchup_beat(an_app(written), at="2026-02-07T08:05:00Z")

    beat.outage(hours=3)
    beat.advance(minutes=56)

    assert times(beat) == ["07T12:00"]
    (skipped,) = beat.skips("e")
    assert (skipped.count, skipped.reason) == (3, "catchup_off")


@pytest.mark.parametrize(
    ("policy", "hours"),
    [(None, [9, 10, 11]), (False, [9, 10, 11]), ({"select": False, "overlap_policy": "skip"}, [9])],
)
def test_live_slots_run_while_another_run_is_active_unless_the_policy_says_otherwise(
    catchup_beat: Beats, policy: object, hours: list[int]
) -> None:
    beat = catchup_beat(an_app(["0 * * * *"], policy), at="2026-02-07T08:05:00Z")

    beat.advance(hours=3)

    assert [run.scheduled_time.hour for run in beat.runs("e")] == hours


def test_false_leaves_the_live_slots_of_a_crontab_as_they_were(catchup_beat: Beats) -> None:
    beat = catchup_beat(an_app("0 * * * *", False), at="2026-02-07T08:05:00Z")

    (tracked,) = beat._work.engine.entries

    assert tracked.entry.policy.overlap_policy is OverlapPolicy.ALLOW


# -- zones of the app ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "zone",
    [
        ZoneInfo("America/New_York"),
        pytz.timezone("America/New_York"),
        tz.gettz("America/New_York"),
        tz.tzoffset("east", -5 * 3600),
        timezone(timedelta(hours=-5)),
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    "written",
    ["0 9 * * *", ["0 9 * * *"], crontab(minute=0, hour=9), schedule(timedelta(days=1), relative=True)],
    ids=["cron string", "list", "crontab", "relative"],
)
def test_every_kind_of_zone_may_be_the_apps(catchup_beat: Beats, zone: tzinfo, written: object) -> None:
    policy = {"window": "1d", "start_date": "2026-02-07"}
    app = an_app(written, policy, timezone=zone)
    if isinstance(written, BaseSchedule):
        written.app = app
    beat = catchup_beat(app, at="2026-02-07T04:00:00Z")

    beat.advance(hours=24)

    assert times(beat) == ["07T05:00" if isinstance(written, schedule) and written.relative else "07T14:00"]


# -- anchors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "minutes"),
    [
        (solar("sunset", 52.5, 13.4), 955),
        (schedule(timedelta(minutes=50), relative=True), 355),
        (Halves(), 355),
    ],
    ids=["solar", "relative", "custom"],
)
@pytest.mark.parametrize("front", [True, False])
def test_an_interval_keeps_its_phase_when_the_last_run_was_of_a_schedule_that_steps(
    catchup_beat: Beats, other: object, minutes: int, front: bool
) -> None:
    written = [timedelta(hours=1), other] if front else [other, timedelta(hours=1)]
    app = an_app(written, {"window": "2d", "overlap_policy": "allow"})
    beat = catchup_beat(app, at="2026-02-07T00:10:00Z")

    beat.advance(minutes=minutes)
    beat.outage(minutes=1)
    beat.advance(hours=4)

    place = 0 if front else 1
    hourly = [run["slot"] for run in beat._ledger().runs_of("e") if run["schedule"] == place]
    assert {to_rfc3339(slot)[13:] for slot in hourly} == {":10:00Z"}
    assert len(hourly) == (minutes + 241) // 60


def test_a_relative_interval_goes_on_from_its_own_last_slot(catchup_beat: Beats) -> None:
    relative = schedule(timedelta(minutes=50), relative=True)
    app = an_app([timedelta(hours=1), relative], {"window": "2d", "overlap_policy": "allow"})
    beat, steady = (catchup_beat(app, at="2026-02-07T00:10:00Z") for _ in range(2))

    beat.advance(hours=6)
    beat.outage(hours=1)
    steady.advance(hours=7)

    assert times(beat) == times(steady)


def test_the_anchor_of_version_0_1_is_read(catchup_beat: Beats) -> None:
    app = an_app(
        [timedelta(hours=1), solar("sunset", 52.5, 13.4)], {"window": "2d", "overlap_policy": "allow"}
    )
    beat = catchup_beat(app, at="2026-02-07T00:10:00Z")
    store = beat._work.store
    beat.advance(hours=2)
    store.client.hset(store.keys.anchors, "e", "1770423900000")  # 2026-02-07T00:25:00Z

    beat.outage(minutes=1)
    beat.advance(hours=2)

    assert times(beat)[-2:] == ["07T02:25", "07T03:25"]
