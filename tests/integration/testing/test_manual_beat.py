"""What we give users to test their own schedules with, used as they would."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery
from celery.schedules import crontab

from celery_catchup.testing.manual_beat import ManualBeat

pytest_plugins = ["celery_catchup.pytest_plugin"]


@pytest.fixture
def app() -> Celery:
    app = Celery("shop", broker="amqp://nobody:nothing@broker.invalid//", set_as_current=False)
    app.conf.beat_schedule = {
        "hourly-etl": {"task": "shop.etl", "schedule": crontab(minute=0)},
        "refresh": {"task": "shop.refresh", "schedule": "*/15 * * * *"},
        "plain": {"task": "shop.plain", "schedule": 30.0},
    }
    app.conf.catchup_entries = {
        "hourly-etl": {"window": "6h", "overlap_policy": "all"},
        "refresh": {"window": "1d", "select": "latest"},
    }
    return app


def test_an_outage_is_played_in_milliseconds(app: Celery, catchup_beat: Callable[..., ManualBeat]) -> None:
    beat = catchup_beat(app, at="2026-02-07T09:05:00Z")
    begun = time.perf_counter()

    beat.outage(hours=3)

    assert time.perf_counter() - begun < 1
    assert [run.scheduled_time.hour for run in beat.runs("hourly-etl")] == [10, 11, 12]
    assert [run.state for run in beat.runs("hourly-etl")] == ["queued", "waiting", "waiting"]
    assert all(run.is_catchup for run in beat.runs("hourly-etl"))
    (run,) = beat.runs("refresh")
    assert f"{run.scheduled_time:%H:%M}" == "12:00"
    (skipped,) = beat.skips("refresh")
    assert (skipped.count, skipped.reason) == (11, "superseded")


def test_a_mistyped_entry_is_an_error(app: Celery, catchup_beat: Callable[..., ManualBeat]) -> None:
    beat = catchup_beat(app, at="2026-02-07T09:05:00Z")

    with pytest.raises(LookupError, match="did you mean 'hourly-etl'"):
        beat.runs("hourly-elt")
    with pytest.raises(LookupError, match="no such entry: 'hourly-elt'"):
        beat.skips("hourly-elt")


def test_healthy_time_has_live_runs_and_a_chain_ends_when_its_runs_do(
    app: Celery, catchup_beat: Callable[..., ManualBeat]
) -> None:
    beat = catchup_beat(app, at="2026-02-07T09:05:00Z")

    beat.advance(hours=2)

    assert [run.trigger for run in beat.runs("hourly-etl")] == ["scheduler", "scheduler"]
    assert beat.complete("hourly-etl") == 2
    assert [run.state for run in beat.runs("hourly-etl")] == ["succeeded", "succeeded"]


def test_the_apps_own_settings_are_as_before(app: Celery, catchup_beat: Callable[..., ManualBeat]) -> None:
    before: dict[str, Any] = {name: app.conf.get(name) for name in ("broker_url", "catchup_namespace")}

    catchup_beat(app, at="2026-02-07T09:05:00Z").outage(hours=1)

    assert {name: app.conf.get(name) for name in before} == before
