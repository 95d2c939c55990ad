"""Private names of Celery are there, and where one is missing, beat says what happens instead."""

from __future__ import annotations

import pytest
from celery import Celery, beat
from celery.schedules import crontab

from celery_catchup.beat.catchup_entry import CatchupEntry
from celery_catchup.beat.celery_internals import build_entry, missing_internals
from celery_catchup.beat.fingerprints import describe

FIELDS = {"task": "etl", "schedule": "0 * * * *"}


class Stock(beat.Scheduler):  # type: ignore[misc]
    Entry = CatchupEntry


@pytest.fixture
def scheduler() -> Stock:
    return Stock(Celery("proj", set_as_current=False), lazy=True)


def test_this_version_of_celery_has_every_name() -> None:
    assert list(missing_internals()) == []


def test_a_missing_name_is_reported_with_its_fall_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(beat.Scheduler, "_maybe_entry")

    (warning,) = missing_internals()

    assert "no _maybe_entry, so entries are built without Celery's own function" in warning


@pytest.mark.parametrize("missing", [False, True])
def test_entries_are_built_with_and_without_celerys_function(
    scheduler: Stock, monkeypatch: pytest.MonkeyPatch, *, missing: bool
) -> None:
    if missing:
        monkeypatch.delattr(beat.Scheduler, "_maybe_entry")

    built = build_entry(scheduler, "hourly", FIELDS)

    assert (built.name, built.task, built.app) == ("hourly", "etl", scheduler.app)
    assert build_entry(scheduler, "hourly", built) is built


def test_a_crontab_without_its_text_is_described_by_its_values() -> None:
    schedule = crontab(minute="*/30", hour=0)
    for field in ("minute", "hour", "day_of_month", "month_of_year", "day_of_week"):
        delattr(schedule, f"_orig_{field}")

    assert describe(schedule) == "0,30 0 * * *"
