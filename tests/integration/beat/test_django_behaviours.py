"""The table of django-celery-beat's behaviours: our scheduler and its own `DatabaseScheduler`, side by side.

Both run the same rows for three hours under a clock that jumps from wake-up to wake-up, on SQLite and
PostgreSQL, with and without ``USE_TZ``. What they send, with which options, and what they leave in
the rows must be the same, and as the table says. Entries have no policy here.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import kombu
import pytest
import redis
from celery import _state
from celery.schedules import crontab

from celery_catchup.beat.scheduler import Scheduler
from celery_catchup.config.configuration import BACKEND_CLEANUP
from celery_catchup.dispatch.header_names import IS_CATCHUP, SCHEDULED_TIME, TRIGGER_TYPE
from celery_catchup.testing import FakeClock
from tests.integration.django_projects import DjangoProject, let_django_read
from tests.integration.operating import ALL, Project, TimedCelery

DAY = "2026-02-07"
START, END = "09:05", "12:04"
QUEUES = ("celery*", "reports*")
SECOND = timedelta(seconds=1)


# -- what may be written in a table ----------------------------------------------------------


def at(time: str) -> datetime:
    """A time of the day in UTC, as the database takes it."""
    from django.conf import settings

    moment = datetime.fromisoformat(f"{DAY}T{time}:00+00:00")
    return moment if settings.USE_TZ else moment.replace(tzinfo=None)


def row(name: str = "row", **fields: Any) -> Any:
    from django_celery_beat.models import PeriodicTask

    return PeriodicTask.objects.create(**{"name": name, "task": "proj.etl", **fields})


def interval(every: int = 1, period: str = "hours") -> dict[str, Any]:
    from django_celery_beat.models import IntervalSchedule

    return {"interval": IntervalSchedule.objects.get_or_create(every=every, period=period)[0]}


def cron(minute: str = "0", hour: str = "*", timezone: str = "UTC") -> dict[str, Any]:
    from django_celery_beat.models import CrontabSchedule

    found, _ = CrontabSchedule.objects.get_or_create(minute=minute, hour=hour, timezone=timezone)
    return {"crontab": found}


def clocked(time: str) -> dict[str, Any]:
    from django_celery_beat.models import ClockedSchedule

    return {"clocked": ClockedSchedule.objects.create(clocked_time=at(time)), "one_off": True}


def solar() -> dict[str, Any]:
    from django_celery_beat.models import SolarSchedule

    return {
        "solar": SolarSchedule.objects.get_or_create(event="sunrise", latitude=10, longitude=-60)[0],
    }


def change(name: str = "row", **fields: Any) -> None:
    """Save a row as the admin's form does."""
    from django_celery_beat.models import PeriodicTask

    found = PeriodicTask.objects.get(name=name)
    for key, value in fields.items():
        setattr(found, key, value)
    found.save()


def delete(name: str = "row") -> None:
    from django_celery_beat.models import PeriodicTask

    PeriodicTask.objects.get(name=name).delete()


def switch(*, on: bool) -> None:
    """The admin's actions for the rows that are ticked."""
    from django_celery_beat.models import PeriodicTask, PeriodicTasks

    PeriodicTask.objects.update(**({"enabled": True} if on else {"enabled": False, "last_run_at": None}))
    PeriodicTasks.update_changed()


Act = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One behaviour.

    given    writes the rows before beat starts
    then     what people do meanwhile, by the time at which they do it
    sent     the rows that are sent, each with its time
    left     fields of the row at the end
    naive    ``sent`` with ``USE_TZ = False``, when it is another
    differs  why django-celery-beat does something else; the documentation names each such difference
    """

    given: Act
    sent: list[str]
    then: Mapping[str, Act] = field(default_factory=dict)
    left: Mapping[str, Any] = field(default_factory=dict)
    naive: list[str] | None = None
    differs: str = ""
    schedule: Mapping[str, Any] = field(default_factory=dict)
    begins: str = START

    def expected(self, *, use_tz: bool) -> list[str]:
        return self.sent if use_tz or self.naive is None else self.naive


SETTLED = {"task": "proj.etl", "schedule": crontab(minute=0), "options": {"headers": {}}}

TABLE = {
    "an interval counts from when the row was saved": Case(
        lambda: row(**interval()),
        ["10:05 row", "11:05 row"],
        left={"last_run_at": "11:05", "total_run_count": 2, "enabled": True},
    ),
    "a crontab has its own time zone, unless DJANGO_CELERY_BEAT_TZ_AWARE is off": Case(
        lambda: row(**cron("30", timezone="Asia/Kolkata")),
        ["10:00 row", "11:00 row", "12:00 row"],
        naive=["09:30 row", "10:30 row", "11:30 row"],
    ),
    "a crontab of a fixed hour in its own zone": Case(
        lambda: row(**cron("15", hour="19", timezone="Asia/Tokyo")), ["10:15 row"], naive=[]
    ),
    "a clocked row runs once and is disabled": Case(
        lambda: row(**clocked("10:30")),
        ["10:30 row"],
        left={"enabled": False, "total_run_count": 0, "last_run_at": None},
    ),
    "a clocked row whose time has passed runs at once": Case(lambda: row(**clocked("08:00")), ["09:05 row"]),
    "a solar row": Case(lambda: row(**solar()), ["10:21 row"]),
    "a one-off row runs once and is disabled": Case(
        lambda: row(**interval(), one_off=True),
        ["10:05 row"],
        left={"enabled": False, "total_run_count": 0, "last_run_at": None},
    ),
    "a one-off row that is enabled again runs once more": Case(
        lambda: row(**cron(), one_off=True),
        ["10:00 row", "11:00 row"],
        then={"10:30": lambda: change(enabled=True)},
    ),
    "an interval that never ran runs at its start_time": Case(
        lambda: row(**interval(1, "days"), start_time=at("10:30")), ["10:30 row"]
    ),
    "an interval goes on from its start_time": Case(
        lambda: row(**interval(), start_time=at("09:30")), ["09:30 row", "10:30 row", "11:30 row"]
    ),
    "an interval that never ran and whose start_time has passed runs at once": Case(
        lambda: row(**interval(1, "days"), start_time=at("08:30")), ["09:05 row"]
    ),
    "a crontab runs at its first slot from start_time on": Case(
        lambda: row(**cron(), start_time=at("10:30")),
        ["11:00 row", "12:00 row"],
        differs="theirs also runs off its slots, when the tables are next read after start_time",
    ),
    "a row with a last run does not run at its start_time": Case(
        lambda: row(**interval(1, "days"), start_time=at("08:30"), last_run_at=at("08:31")), []
    ),
    "a row stops at its end, and is disabled": Case(
        lambda: row(**cron(), expires=at("11:30")),
        ["10:00 row", "11:00 row"],
        left={"enabled": False, "last_run_at": None, "total_run_count": 2},
    ),
    "a row that has ended before beat starts is disabled": Case(
        lambda: row(**cron(), expires=at("09:00")), [], left={"enabled": False}
    ),
    "a disabled row does not run": Case(lambda: row(**cron(), enabled=False), [], left={"enabled": False}),
    "a row that is disabled stops": Case(
        lambda: row(**cron()),
        ["10:00 row"],
        then={"10:30": lambda: change(enabled=False)},
        left={"last_run_at": None},
    ),
    "a crontab that is enabled again runs at its next slot": Case(
        lambda: row(**cron()),
        ["10:00 row", "12:00 row"],
        then={"10:30": lambda: change(enabled=False), "11:30": lambda: change(enabled=True)},
    ),
    "an interval that is enabled again counts from then": Case(
        lambda: row(**interval()),
        ["10:05 row", "12:00 row"],
        then={"10:30": lambda: change(enabled=False), "11:00": lambda: change(enabled=True)},
    ),
    "a row that ran before, is disabled, and is enabled again after a restart": Case(
        lambda: row(**interval(1, "days"), enabled=False), [], then={"10:30": lambda: change(enabled=True)}
    ),
    "a row with a start_time that is enabled again runs at once": Case(
        lambda: row(**interval(1, "days"), start_time=at("09:30")),
        ["09:30 row", "11:30 row"],
        then={"10:30": lambda: change(enabled=False), "11:30": lambda: change(enabled=True)},
    ),
    "a row that the admin's action enables again counts from its last change": Case(
        lambda: row(**cron()),
        ["10:00 row", "11:30 row", "12:00 row"],
        then={"10:30": lambda: switch(on=False), "11:30": lambda: switch(on=True)},
    ),
    "a row that was saved while beat was away is late": Case(
        lambda: row(**cron()), ["11:10 row", "12:00 row"], begins="11:10"
    ),
    "beat goes on from the row's last run": Case(
        lambda: row(**interval(2, "hours"), last_run_at=at("08:15")),
        ["10:15 row"],
        left={"last_run_at": "10:15", "total_run_count": 1},
    ),
    "a row is added without a restart": Case(
        lambda: None, ["11:00 row", "12:00 row"], then={"10:30": lambda: row(**cron())}
    ),
    "a row is changed without a restart": Case(
        lambda: row(**cron()),
        ["10:00 row", "10:45 row", "11:45 row"],
        then={"10:30": lambda: change(**cron("45"))},
    ),
    "a row is deleted without a restart": Case(lambda: row(**cron()), ["10:00 row"], then={"10:30": delete}),
    "an entry of the settings runs": Case(
        lambda: row("settled", **cron()),
        ["10:00 settled", "11:00 settled", "12:00 settled"],
        schedule={"settled": SETTLED},
    ),
    "an entry of the settings whose row is disabled does not run": Case(
        lambda: (row("settled", **cron(), enabled=False), row(**cron())),
        ["10:00 row", "11:00 row", "12:00 row"],
        schedule={"settled": SETTLED},
    ),
    "an entry of the settings whose row is disabled under way stops": Case(
        lambda: row("settled", **cron()),
        ["10:00 settled"],
        then={"10:30": lambda: change("settled", enabled=False)},
        schedule={"settled": SETTLED},
    ),
}


# -- both beats ------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What was sent, and what the rows say in the end."""

    sent: list[str] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class Stage:
    """Where a case is played: a database, a clock, and a server for messages."""

    url: str
    clock: FakeClock

    def theirs(self, case: Case) -> Outcome:
        from django_celery_beat.schedulers import DatabaseScheduler

        app = self.project(case).app
        with current(app):
            return self._play(case, lambda: DatabaseScheduler(app=app))

    def ours(self, case: Case) -> Outcome:
        patient = {"catchup_poll_interval": "5m", "catchup_lease_ttl": "1h"}
        project = self.project(case, catchup_source="django", **patient)
        kind = type("Scheduler", (Scheduler,), {"clock": self.clock})
        return self._play(case, lambda: kind(project.app))

    def project(self, case: Case, **settings: Any) -> Project:
        settings = {"result_expires": None, "beat_max_loop_interval": 300, **settings}
        project = Project(self.url, self.clock, policies={}, **settings)
        project.app.conf.beat_schedule = dict(case.schedule)
        project.app.task(name="proj.add", shared=False)(add)
        return project

    def _play(self, case: Case, begin: Callable[[], Any]) -> Outcome:
        from django_celery_beat import models

        self.clean()
        client: redis.Redis = redis.Redis.from_url(self.url)
        case.given()
        self.clock.set(f"{DAY}T{case.begins}:00Z")
        outcome, acts = Outcome(), sorted(case.then.items())
        scheduler = begin()
        try:
            while self._time() < END:
                if acts and acts[0][0] <= self._time():
                    acts.pop(0)[1]()
                wait = scheduler.tick()
                self._collect(client, outcome)
                until = datetime.fromisoformat(f"{DAY}T{acts[0][0] if acts else END}:00+00:00")
                left = (until - self.clock.now()).total_seconds()
                self.clock.advance(milliseconds=max(1, round(1000 * min(wait, left))))
            scheduler.sync()
        finally:
            scheduler.close()
            client.close()
        fields = ("enabled", "total_run_count", "last_run_at")
        for found in models.PeriodicTask.objects.all():
            outcome.rows[found.name] = {one: shown(getattr(found, one)) for one in fields}
        return outcome

    def clean(self) -> None:
        """Begin: no rows, no state, no messages, and the clock at its start."""
        from django_celery_beat import models

        with redis.Redis.from_url(self.url) as client:
            client.flushall()
        kinds = "PeriodicTask PeriodicTasks IntervalSchedule CrontabSchedule SolarSchedule ClockedSchedule"
        for kind in kinds.split():
            getattr(models, kind).objects.all().delete()
        self.clock.set(f"{DAY}T{START}:00Z")

    def _time(self) -> str:
        return f"{self.clock.now() + SECOND / 2:%H:%M}"

    def _collect(self, client: redis.Redis, outcome: Outcome) -> None:
        for key in (key for pattern in QUEUES for key in client.keys(pattern)):
            while client.type(key) == b"list" and (text := client.rpop(key)) is not None:
                message = json.loads(text)  # type: ignore[arg-type]
                name = message["headers"].get("periodic_task_name", "?")
                outcome.sent.append(f"{self._time()} {name}")
                outcome.messages.append({**message, "key": key.decode()})


def shown(value: Any) -> Any:
    """A time as the table writes it; the database's zone is UTC."""
    if not isinstance(value, datetime):
        return value
    return f"{(value.astimezone(UTC) if value.tzinfo else value) + SECOND / 2:%H:%M}"


def add(one: int, two: str, three: object = None) -> None:
    """The body of a task that nobody executes."""


@contextmanager
def current(app: TimedCelery) -> Iterator[None]:
    """django-celery-beat's schedules ask the current app for the time."""
    before = _state._tls.current_app
    app.set_current()
    try:
        yield
    finally:
        _state._tls.current_app = before


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[True, False], ids=["USE_TZ", "naive"])
def use_tz(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def stage(
    django_project: DjangoProject,
    database: str,
    use_tz: bool,
    redis_url: str,
    desk_clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Stage]:
    from celery_catchup.beat import django_source

    monkeypatch.setattr(django_source, "_EVERY", 0.0)
    let_django_read(desk_clock, monkeypatch)
    with django_project.on(database, use_tz=use_tz):
        yield Stage(redis_url, desk_clock)


@pytest.mark.parametrize("name", TABLE)
def test_both_do_the_same(stage: Stage, name: str, use_tz: bool) -> None:
    case = TABLE[name]

    theirs, ours = stage.theirs(case), stage.ours(case)

    expected = case.expected(use_tz=use_tz)
    assert ours.sent == expected
    assert (theirs.sent == expected) is not bool(case.differs), theirs.sent
    for one, fields in ours.rows.items():
        assert {**fields, **case.left} == fields
        assert case.differs or fields == theirs.rows[one]


# -- messages --------------------------------------------------------------------------------


def told(message: dict[str, Any]) -> dict[str, Any]:
    """What a consumer sees of a message; ids and our own headers apart."""
    headers, properties = dict(message["headers"]), dict(message["properties"])
    for one in (SCHEDULED_TIME, IS_CATCHUP, TRIGGER_TYPE, "id", "root_id", "origin"):
        headers.pop(one, None)
    for one in ("correlation_id", "reply_to", "delivery_tag"):
        properties.pop(one)
    expires = headers.pop("expires")
    return {
        "queue": message["key"],
        "headers": headers,
        "properties": properties,
        "expires": expires and f"{datetime.fromisoformat(expires) + SECOND / 2:%H:%M}",
        "body": json.loads(b64decode(message["body"])),
    }


def test_messages_have_the_options_of_the_row(stage: Stage) -> None:
    def given() -> None:
        with kombu.Connection(stage.url) as connection:
            kombu.Queue("reports", kombu.Exchange("reports"), routing_key="daily")(connection).declare()
        row("queue", **cron("1"), queue="reports")
        row("exchange", **cron("2"), exchange="reports", routing_key="daily")
        row("priority", **cron("3"), priority=6)
        row("headers", **cron("4"), headers='{"team": "sales"}')
        row("expires", **cron("5"), expires=at("11:30"))
        row("seconds", **cron("6"), expire_seconds=600)
        row("arguments", **cron("7"), task="proj.add", args='[1, "two"]', kwargs='{"three": null}')
        row("nothing", **cron("8"), args="null", kwargs="")

    case = Case(given, [], schedule={"settled": {**SETTLED, "options": {"queue": "reports"}}})
    theirs, ours = stage.theirs(case), stage.ours(case)

    assert ours.sent == theirs.sent
    assert list(map(told, ours.messages)) == list(map(told, theirs.messages))
    by_name = {one["headers"]["periodic_task_name"]: told(one) for one in ours.messages}
    assert by_name["queue"]["queue"] == by_name["exchange"]["queue"] == "reports"
    assert by_name["settled"]["queue"] == "reports"
    assert by_name["priority"]["properties"]["priority"] == 6
    assert by_name["headers"]["headers"]["team"] == "sales"
    assert (by_name["expires"]["expires"], by_name["seconds"]["expires"]) == ("11:30", "11:16")
    assert by_name["arguments"]["body"][:2] == [[1, "two"], {"three": None}]


# -- rows beside others, and the end of beat -------------------------------------------------


def test_rows_with_wrong_fields_do_not_keep_others_from_running(stage: Stage) -> None:
    def given() -> None:
        row("list", **cron(), kwargs="[1]")
        row("number", **cron(), args="5")
        row("text", **cron(), args="[1,")
        row(**cron(), start_time=at("09:00"), expires=at("11:30"))

    ours = stage.ours(Case(given, []))

    assert [one for one in ours.sent if "row" in one] == ["09:05 row", "10:00 row", "11:00 row"]
    assert {one.split()[1] for one in ours.sent} == {"row"}
    assert [ours.rows[one]["enabled"] for one in ("list", "number", "text", "row")] == [True] * 3 + [False]


@pytest.mark.parametrize(("enabled", "sent"), [(None, 1), (True, 1), (False, 0)])
def test_the_cleanup_of_results_runs_unless_its_row_is_disabled(
    stage: Stage, tmp_path: Path, enabled: bool | None, sent: int
) -> None:
    stage.clean()
    project = stage.project(Case(lambda: None, []), catchup_source="django", result_expires=60)
    project.app.conf.result_backend = f"file://{tmp_path}"
    if enabled is not None:
        row(BACKEND_CLEANUP, **cron("0", "4"), task=BACKEND_CLEANUP, enabled=enabled)

    project.tick()
    stage.clock.set("2026-02-08T04:00:01Z")
    project.tick()

    with redis.Redis.from_url(stage.url) as client:
        assert client.llen("celery") == sent


@pytest.mark.parametrize("paused", [False, True])
def test_a_row_with_a_policy_is_disabled_when_all_slots_up_to_its_end_are_decided(
    stage: Stage, paused: bool
) -> None:
    from django_celery_beat.models import PeriodicTask

    stage.clean()
    row(**cron(), start_time=at("09:30"), expires=at("11:30"))
    project = Project(stage.url, stage.clock, policies={"row": ALL}, catchup_source="django")
    project.app.conf.beat_schedule = {}
    project.tick()
    if paused:
        project.text("pause", "row")

    stage.clock.set(f"{DAY}T12:02:00Z")
    project.tick()

    found = PeriodicTask.objects.get(name="row")
    assert [slot[11:16] for slot, _ in project.slots("row")] == ([] if paused else ["10:00", "11:00"])
    assert found.enabled is paused
    if not paused:
        assert found.total_run_count == 2


def test_last_runs_are_imported_from_rows(stage: Stage) -> None:
    stage.clean()
    row(**cron(), last_run_at=at("08:00"), total_run_count=7)
    project = stage.project(Case(lambda: None, []), catchup_source="django")
    stage.clock.set(f"{DAY}T{START}:00Z")

    assert "taken over" in project.text("import", "django")


def test_bounds_hold_without_use_tz_although_crontabs_are_left_aware(stage: Stage) -> None:
    from django.test import override_settings

    case = Case(lambda: row(**cron(), start_time=at("10:30"), expires=at("11:30")), [])
    with override_settings(USE_TZ=False, DJANGO_CELERY_BEAT_TZ_AWARE=True):
        theirs = stage.theirs(case).sent
        ours = stage.ours(case)

    assert ours.sent == ["11:00 row"]
    assert ours.rows["row"]["enabled"] is False
    assert theirs != ours.sent
