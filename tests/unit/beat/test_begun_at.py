"""Entries that have never run count from one reading of the clock, where Celery reads the same clock."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from celery.schedules import crontab, schedule

from celery_catchup.beat.catchup_entry import begun_at

NOW = datetime(2026, 2, 7, tzinfo=UTC)


class OwnClock(schedule):  # type: ignore[misc]
    def now(self) -> datetime:
        return NOW


@pytest.mark.parametrize("plan", [crontab(), 60, "0 * * * *"])
def test_an_entry_counts_from_the_common_reading(plan: Any) -> None:
    assert begun_at(NOW, {"task": "proj.etl", "schedule": plan})["last_run_at"] == NOW


@pytest.mark.parametrize("plan", [crontab(nowfun=lambda: NOW), OwnClock(60)])
def test_a_schedule_with_a_clock_of_its_own_is_left_to_celery(plan: Any) -> None:
    assert "last_run_at" not in begun_at(NOW, {"task": "proj.etl", "schedule": plan})


def test_a_given_last_run_stays() -> None:
    earlier = datetime(2026, 1, 1, tzinfo=UTC)

    assert begun_at(NOW, {"schedule": 60, "last_run_at": earlier})["last_run_at"] == earlier
