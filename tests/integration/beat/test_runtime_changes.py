"""What other code does to a scheduler while it runs, and subclasses: as under Celery's own scheduler."""

from __future__ import annotations

import json
import logging
from base64 import b64decode
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
import redis
from celery import Celery
from celery.beat import ScheduleEntry

from celery_catchup.beat.entry_sources import EntrySource, ExpandingSource
from celery_catchup.beat.scheduler import Scheduler
from celery_catchup.store import Keys
from celery_catchup.testing import FakeClock

START = "2026-02-07T11:59:58Z"
KEYS = Keys("project")


class Clocked(Celery):
    """An app whose time is the test's."""

    clock: FakeClock

    def now(self) -> datetime:
        return self.clock.now()


class Site:
    """An app, its clock, and schedulers of any kind that are started on one server."""

    def __init__(self, url: str) -> None:
        self.clock = FakeClock(START)
        self.app = Clocked("project", set_as_current=False)
        self.app.clock = self.clock
        self.app.conf.update(broker_url=url, result_expires=None)
        self.redis = redis.Redis.from_url(url, decode_responses=True)
        self.scheduler: Any = None

    def start(self, kind: type[Scheduler] = Scheduler, **schedule: Any) -> Any:
        self.stop()
        self.app.conf.beat_schedule = {
            name: {"task": name, **(entry if isinstance(entry, dict) else {"schedule": entry})}
            for name, entry in schedule.items()
        }
        self.scheduler = type("Clockwork", (kind,), {"clock": self.clock})(app=self.app)
        self.scheduler.tick()
        return self.scheduler

    def stop(self) -> None:
        if self.scheduler is not None:
            self.scheduler.close()
            self.scheduler = None

    def run_for(self, *, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(seconds=1)
            self.scheduler.tick()

    def sent(self) -> list[str]:
        raw: Any = self.redis.lrange("celery", 0, -1)
        return [json.loads(text)["headers"]["task"] for text in reversed(raw)]

    def arguments(self) -> list[Any]:
        raw: Any = self.redis.lrange("celery", 0, -1)
        return [json.loads(b64decode(json.loads(text)["body"]))[0] for text in reversed(raw)]

    def known(self, name: str) -> str | None:
        found: Any = self.redis.hget(KEYS.last_runs, name)
        return found


@pytest.fixture
def site(redis_url: str) -> Iterator[Site]:
    made = Site(redis_url)
    yield made
    made.stop()
    made.redis.close()


# -- run-time changes ----------------------------------------------------------------------------


def test_an_entry_that_is_added_at_run_time_is_sent_from_then_on(site: Site) -> None:
    scheduler = site.start(old=10.0)
    site.run_for(seconds=5)

    scheduler.add(name="new", task="new", schedule=timedelta(seconds=3))
    site.run_for(seconds=7)

    assert site.sent() == ["new", "old", "new"]


def test_entries_that_are_updated_at_run_time_are_sent_as_they_are_now(site: Site) -> None:
    scheduler = site.start(a={"schedule": 10.0, "args": ["old"]})

    scheduler.update_from_dict({"a": {"task": "a", "schedule": 4.0, "args": ["new"]}})
    site.run_for(seconds=6)

    assert site.arguments() == [["new"]]


def test_an_entry_that_is_taken_away_at_run_time_is_not_sent_any_more(site: Site) -> None:
    scheduler = site.start(stays=3.0, goes=3.0)

    scheduler.schedule.pop("goes")
    site.run_for(seconds=4)

    assert site.sent() == ["stays"]


def test_a_schedule_that_is_replaced_at_run_time_is_followed(site: Site) -> None:
    scheduler = site.start(old=3.0)

    scheduler.schedule = {"new": scheduler.Entry(name="new", task="new", schedule=3.0, app=site.app)}
    site.run_for(seconds=4)

    assert site.sent() == ["new"]


def test_an_entry_with_a_policy_may_come_at_run_time(site: Site) -> None:
    scheduler = site.start(old=100.0)

    scheduler.add(name="managed", task="managed", schedule="* * * * *", catchup={"window": "6h"})
    site.run_for(seconds=5)

    assert site.sent() == ["managed"]


@pytest.mark.parametrize(
    "fields",
    [
        {"kwargs": [1]},
        {"args": 5},
        {"kwargs": "[1]"},
        {"catchup": {"window": "soon"}},
        {"catchup": {"window": "6h"}, "options": {"task_id": "fixed"}},
    ],
)
def test_a_wrong_entry_that_comes_at_run_time_fails_alone(
    site: Site, caplog: pytest.LogCaptureFixture, fields: dict[str, Any]
) -> None:
    scheduler = site.start(old=3.0)

    scheduler.add(name="wrong", task="wrong", schedule=timedelta(seconds=1), **fields)
    scheduler.add(name="right", task="right", schedule=timedelta(seconds=3))
    site.run_for(seconds=4)

    assert sorted(site.sent()) == ["old", "right"]
    failing: Any = site.redis.hgetall(KEYS.failing)
    assert list(failing) == ["wrong"]
    assert [record.levelname for record in caplog.records if "wrong" in record.message] == ["ERROR"]


def test_a_wrong_entry_of_a_source_fails_alone_from_the_start(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Source(EntrySource):
        def entries(self) -> dict[str, Any]:
            return {
                "wrong": {"task": "wrong", "schedule": 1.0, "kwargs": [1]},
                "right": {"task": "right", "schedule": 3.0},
            }

    monkeypatch.setattr(
        "celery_catchup.beat.scheduler.open_source", lambda app, *_: ExpandingSource(app, Source(app))
    )
    site.start()
    site.run_for(seconds=4)

    assert site.sent() == ["right"]
    failing: Any = site.redis.hgetall(KEYS.failing)
    assert list(failing) == ["wrong"]


# -- subclasses ----------------------------------------------------------------------------------


class AddsInSetup(Scheduler):
    def setup_schedule(self) -> None:
        super().setup_schedule()
        self.add(name="added", task="added", schedule=timedelta(seconds=3))


class OwnSetup(Scheduler):
    def setup_schedule(self) -> None:
        self.install_default_entries(self.schedule)
        self.update_from_dict({"own": {"task": "own", "schedule": 3.0}})


def test_a_subclass_may_add_entries_when_the_schedule_is_set_up(site: Site) -> None:
    site.start(AddsInSetup, declared=3.0)
    site.run_for(seconds=4)

    assert sorted(site.sent()) == ["added", "declared"]


def test_a_subclass_may_set_up_a_schedule_of_its_own(site: Site) -> None:
    site.start(OwnSetup, declared=3.0)
    site.run_for(seconds=4)

    assert site.sent() == ["own"]


class Calls(Scheduler):
    """Notes which methods are called."""

    made: list[tuple[str, str]]

    def __init__(self, *args: Any, **options: Any) -> None:
        self.made = []
        super().__init__(*args, **options)


class ApplyEntry(Calls):
    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        self.made.append(("apply_entry", entry.name))
        super().apply_entry(entry, producer=producer)


class ApplyAsync(Calls):
    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **options: Any) -> Any:
        self.made.append(("apply_async", entry.name))
        return super().apply_async(entry, producer=producer, advance=advance, **options)


class SendTask(Calls):
    def send_task(self, *args: Any, **options: Any) -> Any:
        self.made.append(("send_task", args[0]))
        return super().send_task(*args, **options)


class Reserve(Calls):
    def reserve(self, entry: Any) -> Any:
        self.made.append(("reserve", entry.name))
        return super().reserve(entry)


@pytest.mark.parametrize("kind", [ApplyEntry, ApplyAsync, SendTask, Reserve])
def test_methods_that_a_subclass_replaces_are_called_for_entries_without_a_policy(
    site: Site, caplog: pytest.LogCaptureFixture, kind: type[Calls]
) -> None:
    caplog.set_level(logging.INFO)
    scheduler = site.start(kind, plain=3.0)
    site.run_for(seconds=7)

    method = {ApplyEntry: "apply_entry", ApplyAsync: "apply_async", SendTask: "send_task"}.get(
        kind, "reserve"
    )
    assert scheduler.made == [(method, "plain")] * 2
    assert site.sent() == ["plain"] * 2
    assert (site.known("plain") or "").split()[1] == "2"
    said = [record.message for record in caplog.records if record.name == "celery.beat"]
    assert said == ["Scheduler: Sending due task plain (plain)"] * 2
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_methods_that_are_not_called_for_entries_with_a_policy_are_reported_once(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    entry = {"schedule": "* * * * *", "catchup": {"window": "6h"}}
    scheduler = site.start(ApplyEntry, managed=entry)
    site.run_for(seconds=5)

    assert (scheduler.made, site.sent()) == ([], ["managed"])
    (warning,) = [record.message for record in caplog.records if "methods are not called" in record.message]
    assert "apply_entry" in warning


def test_a_reserve_that_fails_delays_no_other_entry(site: Site) -> None:
    class Broken(Scheduler):
        def reserve(self, entry: Any) -> Any:
            raise ZeroDivisionError

    site.start(Broken, a=3.0, b=3.0)
    site.run_for(seconds=7)

    assert sorted(site.sent()) == ["a", "a", "b", "b"]


class MyScheduleEntry(ScheduleEntry):  # type: ignore[misc]
    """An entry class of a user's own."""

    def is_due(self) -> Any:
        due, wait = super().is_due()
        return due and self.name != "muted", wait


def test_entries_may_be_of_a_class_of_their_own(site: Site) -> None:
    class Own(Scheduler):
        Entry = MyScheduleEntry

    site.start(Own, loud=3.0, muted=3.0)
    site.run_for(seconds=7)

    assert site.sent() == ["loud"] * 2


# -- the log -------------------------------------------------------------------------------------


def test_each_live_run_has_the_line_of_celerys_own_scheduler(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    managed = {"task": "proj.managed", "schedule": "* * * * *", "catchup": {"window": "6h"}}
    site.start(plain={"task": "proj.plain", "schedule": 4.0}, managed=managed)
    site.run_for(seconds=5)

    said = [(r.levelname, r.message) for r in caplog.records if r.name == "celery.beat"]
    assert said == [
        ("INFO", "Scheduler: Sending due task managed (proj.managed)"),
        ("INFO", "Scheduler: Sending due task plain (proj.plain)"),
    ]
