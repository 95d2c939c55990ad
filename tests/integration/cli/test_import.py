"""``celery catchup import``: a switch from another scheduler loses no slot."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery.beat import PersistentScheduler
from redis import Redis

from celery_catchup.testing import FakeClock
from tests.integration.operating import ALL, HOURLY, Project

BEFORE = datetime(2026, 2, 7, 9, 0, 0, 50_000, tzinfo=UTC)
BACK = "2026-02-07T12:02:00Z"
SCHEDULE = {"hourly-etl": HOURLY, "plain": HOURLY, "off": HOURLY}
POLICIES = {"hourly-etl": ALL, "off": False}


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    desk_clock.set(BACK)
    return Project(redis_url, desk_clock, SCHEDULE, POLICIES)


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(redis_url) as client:
        yield client


def stopped_beat(project: Project, folder: Path, last_runs: dict[str, datetime]) -> str:
    """The file that Celery's own scheduler leaves behind."""
    where = str(folder / "celerybeat-schedule")
    stock = PersistentScheduler(project.app, schedule_filename=where)
    for name, at in last_runs.items():
        stock.schedule[name].last_run_at = at
        stock.schedule[name].total_run_count = 7
    stock.close()
    return where


def redbeat_entry(redis: Redis, name: str, meta: Any) -> None:
    """A key as redbeat 2.4 writes it."""
    key = f"redbeat:{name}"
    redis.hset(key, mapping={"definition": "{}", "meta": json.dumps(meta)})
    redis.zadd("redbeat::schedule", {key: 1})


def when(at: datetime, timezone: object = "UTC") -> dict[str, Any]:
    fields = ("year", "month", "day", "hour", "minute", "second", "microsecond")
    stamp = {"__type__": "datetime", **{name: getattr(at, name) for name in fields}, "timezone": timezone}
    return {"last_run_at": stamp}


# -- from Celery's own scheduler -------------------------------------------------------------


def test_what_celerys_scheduler_missed_before_the_switch_is_caught_up(
    project: Project, tmp_path: Path
) -> None:
    where = stopped_beat(project, tmp_path, dict.fromkeys(SCHEDULE, BEFORE))

    told = project.catchup("import", "shelve", "-s", where)
    project.tick()

    assert told.stdout == (
        "Entry       Last Run              Since Then\n"
        "----------  --------------------  --------------------------------------\n"
        "hourly-etl  2026-02-07 09:00:00Z  3 runs would be dispatched.\n"
        "off         2026-02-07 09:00:00Z  0 runs would be dispatched, 3 skipped.\n"
        "plain       2026-02-07 09:00:00Z  as under Celery's own scheduler\n"
        "\n"
        "3 entries taken over.\n"
    )
    assert [slot[11:16] for slot, _ in project.slots("hourly-etl")] == ["10:00", "11:00", "12:00"]
    assert {trigger for _, trigger in project.slots("hourly-etl")} == {"catchup"}
    (skip,) = project.json("runs", "off", "--state", "skipped")["skipped"]
    assert (skip["count"], skip["reason"]) == (3, "catchup_off")


def test_an_entry_without_a_policy_makes_its_one_late_run_and_keeps_its_count(
    project: Project, tmp_path: Path
) -> None:
    where = stopped_beat(project, tmp_path, dict.fromkeys(SCHEDULE, BEFORE))

    project.catchup("import", "shelve", "-s", where)
    project.tick()

    with project.operator() as operator:
        assert operator.read_stored().last_runs["plain"].endswith(" 8")


def test_without_the_import_the_same_switch_recovers_nothing(project: Project, tmp_path: Path) -> None:
    stopped_beat(project, tmp_path, dict.fromkeys(SCHEDULE, BEFORE))

    project.tick()

    assert project.slots("hourly-etl") == []


def test_an_interval_keeps_the_phase_it_had(redis_url: str, desk_clock: FakeClock, tmp_path: Path) -> None:
    desk_clock.set(BACK)
    entry = {"task": "proj.etl", "schedule": timedelta(hours=1)}
    project = Project(redis_url, desk_clock, {"every": entry}, {"every": ALL})
    where = stopped_beat(project, tmp_path, {"every": datetime(2026, 2, 7, 9, 17, tzinfo=UTC)})

    project.catchup("import", "shelve", "-s", where)
    project.tick()

    assert [slot[11:16] for slot, _ in project.slots("every")] == ["10:17", "11:17"]


def test_a_second_import_changes_nothing(project: Project, tmp_path: Path) -> None:
    where = stopped_beat(project, tmp_path, dict.fromkeys(SCHEDULE, BEFORE))
    project.catchup("import", "shelve", "-s", where)
    project.tick()
    before = project.json("watermark", "show")

    again = project.catchup("import", "shelve", "-s", where)

    assert again.stdout == "0 entries taken over.\n"
    assert '"hourly-etl": already known here, and left alone.' in again.stderr
    assert project.json("watermark", "show") == before


def test_a_dry_run_tells_and_takes_over_nothing(project: Project, tmp_path: Path) -> None:
    where = stopped_beat(project, tmp_path, dict.fromkeys(SCHEDULE, BEFORE))

    told = project.json("import", "shelve", "-s", where, "-n")["entries"]
    project.tick()

    by_name = {one["entry"]: one for one in told}
    assert by_name["hourly-etl"]["fate"] == "taken over"
    assert by_name["hourly-etl"]["dispatched"] == 3
    assert project.slots("hourly-etl") == []


def test_a_file_that_is_not_there_is_said_in_a_sentence(project: Project, tmp_path: Path) -> None:
    refused = project.catchup("import", "shelve", "-s", str(tmp_path / "nothing"), code=1)

    assert "name the file that beat used with -s" in refused.stderr


def test_a_file_of_something_else_is_refused(project: Project, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("no database")

    refused = project.catchup("import", "shelve", "-s", str(other), code=1)

    assert "cannot be read" in refused.stderr


# -- from redbeat ----------------------------------------------------------------------------


def test_what_redbeat_missed_before_the_switch_is_caught_up(project: Project, redis: Redis) -> None:
    redbeat_entry(redis, "hourly-etl", when(BEFORE))
    redbeat_entry(redis, "gone", when(BEFORE))

    told = project.catchup("import", "redbeat")
    project.tick()

    assert "1 entry taken over." in told.stdout
    assert "\"gone\": not declared here, and its definition has no 'schedule'." in told.stderr
    assert [slot[11:16] for slot, _ in project.slots("hourly-etl")] == ["10:00", "11:00", "12:00"]


@pytest.mark.parametrize(("zone", "hour"), [("Europe/Berlin", 10), (3600.0, 10), ("UTC", 9)])
def test_redbeat_may_have_written_in_any_zone(
    project: Project, redis: Redis, zone: object, hour: int
) -> None:
    redbeat_entry(redis, "hourly-etl", when(BEFORE.replace(hour=hour), zone))

    (told,) = project.json("import", "redbeat", "-n")["entries"]

    assert told["lastRunAt"].startswith("2026-02-07T09:00:00")


@pytest.mark.parametrize("meta", [{}, {"last_run_at": None}, {"last_run_at": {"__type__": "datetime"}}, [1]])
def test_an_entry_that_redbeat_never_ran_or_cannot_be_read_is_left_out(
    project: Project, redis: Redis, meta: Any
) -> None:
    redbeat_entry(redis, "hourly-etl", meta)

    assert project.json("import", "redbeat")["entries"] == []


def test_a_scheduler_that_runs_here_already_recovers_an_imported_entry_too(
    redis_url: str, redis: Redis, desk_clock: FakeClock
) -> None:
    desk_clock.set("2026-02-07T12:00:30Z")
    Project(redis_url, desk_clock, {"other": HOURLY}, {"other": ALL}).tick()
    desk_clock.set(BACK)
    project = Project(redis_url, desk_clock, {"hourly-etl": HOURLY, "other": HOURLY}, {"*": ALL})
    redbeat_entry(redis, "hourly-etl", when(BEFORE))

    project.catchup("import", "redbeat")
    project.tick()

    assert [slot[11:16] for slot, _ in project.slots("hourly-etl")] == ["10:00", "11:00", "12:00"]


def test_a_last_run_in_the_future_is_not_believed(project: Project, redis: Redis) -> None:
    redbeat_entry(redis, "hourly-etl", when(BEFORE + timedelta(days=400)))

    told = project.catchup("import", "redbeat")

    assert "its last run is in the future; compare the clocks" in told.stderr


def test_without_django_the_import_says_so(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "django_celery_beat.models", None)  # another test may have imported it

    refused = project.catchup("import", "django", code=1)

    assert "run this in its project" in refused.stderr
