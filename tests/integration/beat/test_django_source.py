"""``catchup_source = "django"``: rows of django-celery-beat are the entries, and are followed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection

from celery_catchup.testing import FakeClock
from tests.integration.operating import ALL, HOURLY, Project


@pytest.fixture
def rows(django_project: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The table of periodic tasks, empty; the source looks at it in every tick."""
    from django_celery_beat.models import PeriodicTask

    from celery_catchup.beat import django_source

    monkeypatch.setattr(django_source, "_EVERY", 0.0)
    PeriodicTask.objects.all().delete()
    yield PeriodicTask.objects
    connection.close()


def hourly(rows: Any, name: str = "hourly-etl", **fields: Any) -> Any:
    from django_celery_beat.models import CrontabSchedule

    at, _ = CrontabSchedule.objects.get_or_create(minute="0", hour="*", timezone="UTC")
    return rows.create(name=name, task="proj.etl", crontab=at, **fields)


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock, rows: Any) -> Project:
    return Project(redis_url, desk_clock, {"settled": HOURLY}, {"*": ALL}, catchup_source="django")


def dispatched(project: Project, entry: str = "hourly-etl") -> list[str]:
    return [slot[11:16] for slot, _ in project.slots(entry)]


def test_rows_and_settings_together_are_the_entries(project: Project, rows: Any) -> None:
    hourly(rows)
    hourly(rows, "disabled", enabled=False)

    assert {one["name"] for one in project.json("entries")["entries"]} == {"hourly-etl", "settled"}


def test_what_a_row_missed_is_caught_up(project: Project, rows: Any, desk_clock: FakeClock) -> None:
    hourly(rows)
    project.tick()

    desk_clock.set("2026-02-07T12:02:00Z")
    project.tick()

    assert dispatched(project) == ["10:00", "11:00", "12:00"]


def test_a_row_that_is_added_changed_or_disabled_is_seen_without_a_restart(
    project: Project, rows: Any, desk_clock: FakeClock
) -> None:
    with project.beat() as scheduler:
        scheduler.tick()
        row = hourly(rows)
        scheduler.tick()
        desk_clock.set("2026-02-07T10:00:01Z")
        scheduler.tick()
        first = dispatched(project)

        row.crontab.minute = "30"
        row.crontab.save()
        row.save()
        for at in ("10:30:01", "11:00:01"):
            desk_clock.set(f"2026-02-07T{at}Z")
            scheduler.tick()
        second = dispatched(project)

        row.enabled = False
        row.save()
        desk_clock.set("2026-02-07T11:30:01Z")
        scheduler.tick()

        assert (first, second, dispatched(project)) == (["10:00"], ["10:00", "10:30"], ["10:00", "10:30"])
        row.crontab.minute = "0"
        row.crontab.save()


def test_the_admin_sees_when_a_row_last_ran_and_how_often(
    project: Project, rows: Any, desk_clock: FakeClock
) -> None:
    row = hourly(rows)
    project.tick()
    desk_clock.set("2026-02-07T12:02:00Z")

    project.tick()

    row.refresh_from_db()
    assert row.last_run_at == datetime(2026, 2, 7, 12, 2, tzinfo=UTC)
    assert row.total_run_count == 3


def test_a_row_is_bounded_by_its_start_and_end(project: Project, rows: Any, desk_clock: FakeClock) -> None:
    hourly(
        rows,
        start_time=datetime(2026, 2, 7, 10, 30, tzinfo=UTC),
        expires=datetime(2026, 2, 7, 12, 30, tzinfo=UTC),
    )
    project.tick()

    desk_clock.set("2026-02-07T14:02:00Z")
    project.tick()

    assert dispatched(project) == ["11:00", "12:00"]


def test_a_policy_may_name_a_row_that_is_not_there(redis_url: str, desk_clock: FakeClock, rows: Any) -> None:
    project = Project(redis_url, desk_clock, {"settled": HOURLY}, {"gone": ALL}, catchup_source="django")

    project.tick()

    assert [one["name"] for one in project.json("entries")["entries"]] == ["settled"]


def test_a_row_with_a_mistake_in_it_fails_alone_and_the_entries_before_go_on(
    project: Project, rows: Any, desk_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    from django_celery_beat.models import IntervalSchedule

    hourly(rows)
    with project.beat() as scheduler:
        scheduler.tick()
        often, _ = IntervalSchedule.objects.get_or_create(every=100, period="microseconds")
        rows.create(name="too-often", task="proj.etl", interval=often)
        desk_clock.set("2026-02-07T10:00:01Z")
        scheduler.tick()

    assert "entry=too-often" in caplog.text
    assert dispatched(project) == ["10:00"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"kwargs": "[1]"}, "kwargs: expected a JSON object, got '[1]'"),
        ({"kwargs": '"text"'}, "kwargs: expected a JSON object"),
        ({"args": "5"}, "args: expected a JSON array, got '5'"),
        ({"args": '{"a": 1}'}, "args: expected a JSON array"),
        ({"args": "[1,"}, "args: expected a JSON array, got '[1,' ("),
        ({"kwargs": "{not json"}, "kwargs: expected a JSON object, got '{not json' ("),
        ({"headers": "[1]"}, "headers: expected a JSON object"),
    ],
    ids=str,
)
def test_a_row_with_wrong_fields_fails_visibly_and_alone(
    redis_url: str, desk_clock: FakeClock, rows: Any, caplog: Any, fields: dict[str, str], reason: str
) -> None:
    project = Project(
        redis_url, desk_clock, {"settled": HOURLY}, {"hourly-etl": ALL, "*": ALL}, catchup_source="django"
    )
    hourly(rows)
    hourly(rows, "broken", **fields)

    with project.beat() as scheduler:
        for at in ("09:05:00", "09:05:01", "09:05:02", "10:00:01"):
            desk_clock.set(f"2026-02-07T{at}Z")
            scheduler.tick()
        status = project.text("status")

    assert dispatched(project) == dispatched(project, "settled") == ["10:00"]
    assert "broken" in {one["name"] for one in project.json("entries")["entries"]}
    assert "broken" in status
    assert reason in status
    assert caplog.text.count("Entry cannot be dispatched") < 4


def test_a_row_without_a_usable_schedule_fails_alone(
    project: Project, rows: Any, desk_clock: FakeClock
) -> None:
    from django_celery_beat.models import CrontabSchedule

    hourly(rows)
    strange = CrontabSchedule.objects.create(minute="often", hour="*", timezone="UTC")
    rows.create(name="strange", task="proj.etl", crontab=strange)
    hourly(rows, "without")
    rows.filter(name="without").update(crontab=None)
    with project.beat() as scheduler:
        for at in ("09:05:00", "09:05:01", "10:00:01"):
            desk_clock.set(f"2026-02-07T{at}Z")
            scheduler.tick()
        status = project.text("status")

    assert dispatched(project) == ["10:00"]
    assert "strange" in status
    assert "without" in status
    strange.delete()


def test_a_row_that_is_corrected_runs_again(project: Project, rows: Any, desk_clock: FakeClock) -> None:
    row = hourly(rows, args="5")
    with project.beat() as scheduler:
        scheduler.tick()
        row.args = "[]"
        row.save()
        for at in ("09:30:00", "10:00:01"):
            desk_clock.set(f"2026-02-07T{at}Z")
            scheduler.tick()
        status = project.text("status")

    assert dispatched(project) == ["10:00"]
    assert "hourly-etl" not in status


def test_a_database_that_is_away_delays_the_start_and_loses_nothing(
    project: Project, rows: Any, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    from django_celery_beat.models import PeriodicTasks

    hourly(rows)
    project.tick()
    desk_clock.set("2026-02-07T12:02:00Z")

    def away() -> None:
        raise DatabaseError("no connection")

    with monkeypatch.context() as patched:
        patched.setattr(PeriodicTasks, "last_change", away)
        with project.beat() as scheduler:
            waits = [scheduler.tick(), scheduler.tick()]
            patched.undo()
            scheduler.tick()
            scheduler.tick()

    assert min(waits) > 0
    assert caplog.text.count("Entries cannot be read: over") == 1
    assert dispatched(project) == ["10:00", "11:00", "12:00"]


def test_a_database_that_goes_away_under_way_stops_nothing(
    project: Project,
    rows: Any,
    desk_clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from django_celery_beat.models import PeriodicTask, PeriodicTasks

    hourly(rows)
    with project.beat() as scheduler:
        scheduler.tick()

        def away(*_: Any, **__: Any) -> None:
            raise DatabaseError("no connection")

        with monkeypatch.context() as patched:
            patched.setattr(PeriodicTasks, "last_change", away)
            patched.setattr(PeriodicTask.objects, "filter", away)
            desk_clock.set("2026-02-07T10:00:01Z")
            scheduler.tick()
            patched.undo()

    errors = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert len(errors) == 1
    assert dispatched(project) == ["10:00"]
    assert rows.get(name="hourly-etl").total_run_count == 1


# -- rows that run once ----------------------------------------------------------------------


def once(rows: Any) -> Any:
    from django_celery_beat.models import ClockedSchedule

    at, _ = ClockedSchedule.objects.get_or_create(clocked_time=datetime.now(UTC) - timedelta(minutes=1))
    return rows.create(name="once", task="proj.etl", clocked=at, one_off=True)


def test_a_row_that_runs_once_runs_once_and_is_disabled(
    redis_url: str, rows: Any, desk_clock: FakeClock
) -> None:
    desk_clock.set(datetime.now(UTC).isoformat())
    project = Project(redis_url, desk_clock, {}, {"*": ALL}, catchup_source="django")
    row = once(rows)
    with project.beat() as scheduler:
        for _ in range(5):
            desk_clock.advance(seconds=1)
            scheduler.tick()

    row.refresh_from_db()
    with project.operator() as operator:
        assert operator.store.client.llen("celery") == 1
    assert not row.enabled


def test_a_row_that_ran_once_is_not_sent_again_although_the_database_never_heard_of_it(
    redis_url: str, rows: Any, desk_clock: FakeClock
) -> None:
    desk_clock.set((datetime.now(UTC) + timedelta(seconds=1)).isoformat())
    project = Project(redis_url, desk_clock, {}, {"*": ALL}, catchup_source="django")
    once(rows)
    project.tick()
    rows.filter(name="once").update(enabled=True)

    project.tick()

    with project.operator() as operator:
        assert operator.store.client.llen("celery") == 1


def test_a_row_that_runs_once_is_sent_once_although_it_was_saved_by_a_clock_that_is_ahead(
    redis_url: str, rows: Any, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from celery_catchup.beat import django_source

    desk_clock.set((datetime.now(UTC) - timedelta(hours=3)).isoformat())
    project = Project(redis_url, desk_clock, {}, {"*": ALL}, catchup_source="django")
    project.app.conf.beat_schedule = {}
    row = once(rows)
    row.clocked.clocked_time = desk_clock.now()
    row.clocked.save()
    monkeypatch.setattr(django_source, "_EVERY", 3600.0)
    with project.beat() as scheduler:
        for _ in range(5):
            desk_clock.advance(minutes=6)
            scheduler.tick()

    with project.operator() as operator:
        assert operator.store.client.llen("celery") == 1


def test_rows_can_be_copied_into_stored_entries_to_leave_django(
    project: Project, rows: Any, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django_celery_beat.models import ClockedSchedule, IntervalSchedule

    from celery_catchup.stored_entries.entries import Entries, entries

    monkeypatch.setattr(Entries, "clock", desk_clock)
    last = desk_clock.now() - timedelta(hours=2)
    hourly(rows, "hourly", last_run_at=last, queue="slow", kwargs='{"a": 1}')
    hourly(rows, "disabled", enabled=False)
    once = ClockedSchedule.objects.create(clocked_time=desk_clock.now() + timedelta(days=1))
    rows.create(name="once", task="proj.etl", clocked=once, one_off=True)
    quarter = IntervalSchedule.objects.create(every=15, period="minutes")
    rows.create(name="odd", task="proj.etl", interval=quarter, one_off=True)
    project.app.conf.catchup_source = "settings"

    told = project.catchup("import", "django", "--copy")

    assert "3 entries taken over" in told.stdout
    assert '"odd": it runs once' in told.stderr
    found = {one.name: one for one in entries(project.app).list()}
    assert found.keys() == {"hourly", "disabled", "once"}
    assert found["hourly"].schedule == {"cron": "0 * * * *", "timezone": "UTC"}
    assert (found["hourly"].options, found["hourly"].kwargs) == ({"queue": "slow"}, {"a": 1})
    assert not found["disabled"].enabled
    assert list(found["once"].schedule) == ["at"]
