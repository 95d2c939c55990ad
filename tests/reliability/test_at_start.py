"""What is seen before the first tick, or at the first contact: refused in one line, or said once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import redis
from celery.beat import BeatLazyFunc
from celery.schedules import crontab

from celery_catchup.store import Keys
from celery_catchup.store.states import SCHEMA
from celery_catchup.testing import FakeClock
from tests.integration.servers import Server, a_scheduler, a_server

NINE, TEN = "2026-02-07T09:04:00Z", "2026-02-07T10:00:00Z"
NOWHERE = "redis://127.0.0.1:1/0"
"""Nothing is asked of it: what is looked at here is looked at before."""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NINE)


def refused(capsys: pytest.CaptureFixture[str], clock: FakeClock, url: str = NOWHERE, **conf: Any) -> str:
    """What a beat says that does not start."""
    with pytest.raises(SystemExit) as ended, a_scheduler(url, clock, **conf) as scheduler:
        scheduler.tick()
    assert ended.value.code == 2
    return capsys.readouterr().err


def warned(caplog: pytest.LogCaptureFixture, clock: FakeClock, **conf: Any) -> list[str]:
    """What a beat says that starts all the same."""
    with a_scheduler(NOWHERE, clock, **conf):
        pass
    return [
        record.getMessage() for record in caplog.records if "Configuration warning" in record.getMessage()
    ]


def etl(**fields: Any) -> dict[str, Any]:
    return {"etl": {"task": "proj.etl", "schedule": crontab(minute="0"), **fields}}


# -- several brokers -----------------------------------------------------------------------------


@pytest.mark.parametrize("urls", [[NOWHERE, "redis://b/0"], f"{NOWHERE};redis://b/0"])
def test_state_on_the_first_of_several_brokers_is_a_warning(
    caplog: pytest.LogCaptureFixture, clock: FakeClock, urls: object
) -> None:
    (told,) = warned(caplog, clock, broker_url=urls)

    assert "broker_url names 2 Redis servers" in told
    assert "set catchup_redis_url" in told


@pytest.mark.parametrize(
    "conf",
    [
        {"broker_url": [NOWHERE, "redis://b/0"], "catchup_redis_url": NOWHERE},
        {
            "broker_url": "sentinel://a:1;sentinel://b:1",
            "broker_transport_options": {"master_name": "m"},
        },
    ],
    ids=["state elsewhere", "Sentinels"],
)
def test_several_brokers_are_no_trouble_with_state_in_one_place(
    caplog: pytest.LogCaptureFixture, clock: FakeClock, conf: dict[str, Any]
) -> None:
    assert warned(caplog, clock, **conf) == []


# -- what cannot be a message --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"kwargs": {"job": object()}}, "beat_schedule.etl: its arguments cannot be serialised as 'json'"),
        ({"args": ({1, 2},), "options": {"serializer": "no such"}}, "serialised as 'no such'"),
        ({"options": {"headers": {"x": object()}}}, "its headers cannot be serialised"),
        ({"options": {"task_id": "fixed"}}, "beat_schedule.etl.options.task_id: each run has its own"),
    ],
    ids=["an object", "an unknown serialiser", "headers", "a task id"],
)
def test_an_entry_that_cannot_be_sent_is_refused_at_start(
    capsys: pytest.CaptureFixture[str], clock: FakeClock, fields: dict[str, Any], named: str
) -> None:
    told = refused(capsys, clock, beat_schedule=etl(**fields))

    assert named in told
    assert "Traceback" not in told


def test_protocol_1_is_refused_at_start_when_an_entry_has_a_policy(
    capsys: pytest.CaptureFixture[str], clock: FakeClock
) -> None:
    both = etl() | {"other": {"task": "proj.other", "schedule": crontab(minute="0")}}
    policies = {"etl": "6h", "other": "6h"}
    told = refused(capsys, clock, beat_schedule=both, catchup_entries=policies, task_protocol=1)

    assert told.count("task_protocol: expected 2, got 1") == 1
    assert "Traceback" not in told


def test_protocol_1_is_taken_when_no_entry_has_a_policy(
    caplog: pytest.LogCaptureFixture, clock: FakeClock
) -> None:
    assert warned(caplog, clock, beat_schedule=etl(), catchup_entries={}, task_protocol=1) == []


def test_a_foreign_error_is_shown_in_one_printable_line(
    capsys: pytest.CaptureFixture[str], clock: FakeClock
) -> None:
    strange = {"serializer": "no\nsuch\x1b[31m"}
    (_, line) = refused(capsys, clock, beat_schedule=etl(options=strange)).splitlines()

    assert line.isprintable()


def test_what_celery_can_serialise_is_taken_and_what_is_made_later_is_not_tried(
    caplog: pytest.LogCaptureFixture, clock: FakeClock
) -> None:
    lazy = BeatLazyFunc(object)
    arguments = {"kwargs": {"at": datetime(2026, 2, 7, tzinfo=UTC), "price": Decimal("1.5"), "later": lazy}}

    assert warned(caplog, clock, beat_schedule=etl(**arguments)) == []


# -- what works otherwise than it looks ----------------------------------------------------------


@pytest.mark.parametrize(
    ("conf", "named"),
    [
        ({"catchup_entries": {"etl": "30m"}}, "its window, 30m, is shorter than the 1h between its slots"),
        (
            {"catchup_entries": {"etl": {"window": "1m"}}},
            "is not longer than its misfire_threshold, 1m: nothing will ever be caught up",
        ),
        (
            {
                "beat_schedule": etl(options={"expires": 3}),
                "catchup_entries": {"etl": {"window": "6h", "overlap_policy": "allow"}},
            },
            "up to 6 missed slots are sent at once and each message expires after 3 s, "
            "so workers have 0.5 s for each",
        ),
        ({"beat_schedule": etl(options={"expires": datetime(2026, 2, 7, tzinfo=UTC)})}, "which is past"),
        ({"task_always_eager": True}, "task_always_eager is on"),
        ({"broker_url": "memory://", "catchup_redis_url": NOWHERE}, "the broker is memory://"),
        ({"broker_url": "filesystem://", "catchup_redis_url": NOWHERE}, "the broker is filesystem://"),
        (
            {"broker_transport_options": {"socket_timeout": 30}},
            "socket_timeout is 30 s, longer than 3.3 s: a broker that falls silent costs the lead after 10 s",
        ),
        (
            {"beat_schedule": {"etl": {"task": "proj.etl", "schedule": "0 0 30 2 *"}}},
            "matches no date at all",
        ),
        (
            {"catchup_entries": {"etl": {"window": "6h", "end_date": "2026-02-07T09:00Z"}}},
            "it never runs again, because its end_date, 2026-02-07T09:00:00Z, has passed",
        ),
        (
            {
                "beat_schedule": {
                    "etl": {"task": "t", "schedule": [{"cron": "0 * * * *", "end_date": "2026-02-07"}]}
                },
                "catchup_entries": {"etl": {"window": "6h"}},
            },
            "beat_schedule.etl.schedule[0] never runs again",
        ),
        (
            {"catchup_entries": {"etl": {"window": "6h", "timezone": "Asia/Kathmandu"}}},
            "timezone 'Asia/Kathmandu' does not apply to a crontab(), which Celery reads in UTC",
        ),
        ({"catchup_entries": {"etl": {"window": "6h", "keep": "newest"}}}, "keep has no effect"),
        ({"catchup_entries": {"etl": {"window": "6h", "catchup": "all"}}}, "set overlap_policy to all"),
    ],
    ids=(
        "window,misfire,expiry,expired,eager,memory,files,time-out,30 February,"
        "ended,a schedule ended,zone,keep,pasted"
    ).split(","),
)
def test_it_is_said_once_when_beat_starts(
    caplog: pytest.LogCaptureFixture, clock: FakeClock, conf: dict[str, Any], named: str
) -> None:
    (line,) = warned(caplog, clock, **conf)

    assert named in line


@pytest.mark.parametrize(
    "entries",
    [
        {"etl": {"window": "6h", "end_date": "2026-02-07T10:00Z"}},
        {"etl": {"window": "6h", "timezone": "UTC"}},
        {"etl": {"window": "6h", "timezone": "Asia/Kathmandu"}},
    ],
    ids=["ends later", "the crontab's own zone", "a cron string"],
)
def test_what_has_an_effect_is_not_said(
    caplog: pytest.LogCaptureFixture, clock: FakeClock, entries: dict[str, Any]
) -> None:
    strange = entries["etl"].get("timezone") == "Asia/Kathmandu"
    schedule = etl(schedule="0 * * * *") if strange else etl()

    assert warned(caplog, clock, catchup_entries=entries, beat_schedule=schedule) == []


def test_a_setting_that_celery_does_not_read_keeps_beat_from_starting(
    capsys: pytest.CaptureFixture[str], clock: FakeClock
) -> None:
    told = refused(capsys, clock, CELERY_CATCHUP_ENTRIES={"etl": "6h"}, catchup_batch_size=0)

    assert "2 mistakes" in told
    assert "CELERY_CATCHUP_ENTRIES: is not read without a namespace; write catchup_entries" in told


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"window": "6h"}, "beat_schedule.etl.window: belongs to a policy; write 'catchup': {'window': …}"),
        ({"catchupWindow": "6h"}, "beat_schedule.etl.catchupWindow: belongs to a policy"),
        ({"overlapPolicy": "all"}, "beat_schedule.etl.overlapPolicy: belongs to a policy"),
        ({"shedule": 5}, "beat_schedule.etl.shedule: unknown field; did you mean 'schedule'?"),
        ({"task": None}, "beat_schedule.etl.task: missing, so there is nothing to run"),
        ({"task": ""}, "beat_schedule.etl.task: missing"),
        ({"schedule": True}, "beat_schedule.etl.schedule: expected a cron string"),
    ],
)
@pytest.mark.parametrize("entries", [{}, {"etl": "6h"}], ids=["without a policy", "with one"])
def test_a_field_that_belongs_elsewhere_is_refused_with_its_place(
    capsys: pytest.CaptureFixture[str],
    clock: FakeClock,
    fields: dict[str, Any],
    named: str,
    entries: dict[str, str],
) -> None:
    told = refused(capsys, clock, beat_schedule=etl(**fields), catchup_entries=entries)

    assert named in told
    assert "1 mistake" in told


def test_a_sound_configuration_is_not_worth_a_look(
    caplog: pytest.LogCaptureFixture, clock: FakeClock
) -> None:
    entries = {"etl": {"window": "6h", "overlap_policy": "all"}}

    assert warned(caplog, clock, catchup_entries=entries, beat_schedule=etl(options={"expires": 3})) == []


# -- the first contact ---------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with a_server(tmp_path) as running:
        yield running


@pytest.fixture
def admin(server: Server) -> Iterator[redis.Redis]:
    with server.admin() as client:
        yield client


def test_a_missing_password_is_one_line_and_the_end(
    server: Server, admin: redis.Redis, capsys: pytest.CaptureFixture[str], clock: FakeClock
) -> None:
    admin.config_set("requirepass", "secret")

    told = refused(capsys, clock, server.url())

    assert told.count("\n") == 1
    assert "the server requires a password; put it into the URL" in told


def test_a_wrong_password_is_one_line_without_it(
    server: Server, admin: redis.Redis, capsys: pytest.CaptureFixture[str], clock: FakeClock
) -> None:
    admin.acl_setuser("app", enabled=True, passwords=["+right"], categories=["+@all"], keys=["*"])

    told = refused(capsys, clock, server.url(user="app", password="hunter2"))

    assert "authentication failed" in told
    assert "hunter2" not in told


def test_a_missing_right_is_printed_as_the_rule_that_grants_it(
    server: Server, admin: redis.Redis, capsys: pytest.CaptureFixture[str], clock: FakeClock
) -> None:
    admin.acl_setuser(
        "app", enabled=True, passwords=["+pw"], categories=["+@all"], commands=["-zadd"], keys=["*"]
    )

    told = refused(capsys, clock, server.url(user="app", password="pw"))

    assert "~{catchup:proj}:* +zadd" in told


def test_a_database_that_the_server_has_not_is_refused(
    server: Server, capsys: pytest.CaptureFixture[str], clock: FakeClock
) -> None:
    told = refused(capsys, clock, server.url(db=99))

    assert "the server has fewer databases; correct the number in the URL" in told


@pytest.mark.parametrize("schema", [str(SCHEMA + 1), "garbage"])
def test_state_that_this_version_cannot_use_is_refused_and_the_lead_is_free(
    server: Server, admin: redis.Redis, capsys: pytest.CaptureFixture[str], clock: FakeClock, schema: str
) -> None:
    admin.hset(Keys("proj").meta, "schema", schema)

    told = refused(capsys, clock, server.url())

    assert "stored state" in told
    assert schema in told
    assert admin.exists(Keys("proj").leader) == 0


def test_a_beat_that_meets_newer_state_later_waits_and_leaves_the_lead_to_others(
    server: Server, admin: redis.Redis, caplog: pytest.LogCaptureFixture, clock: FakeClock
) -> None:
    with a_scheduler(server.url(), clock) as scheduler:
        scheduler.tick()
        admin.hset(Keys("proj").meta, "schema", SCHEMA + 1)
        admin.incr(Keys("proj").version)
        wait = scheduler.tick()

        assert wait > 0.5
        assert admin.exists(Keys("proj").leader) == 0
    assert f"knows {SCHEMA}" in caplog.text


def test_a_server_that_may_evict_our_state_is_refused_unless_that_is_accepted(
    server: Server, admin: redis.Redis, capsys: pytest.CaptureFixture[str], clock: FakeClock
) -> None:
    admin.config_set("maxmemory", "100mb")
    admin.config_set("maxmemory-policy", "allkeys-lru")

    told = refused(capsys, clock, server.url())
    assert "maxmemory-policy is allkeys-lru" in told
    assert "catchup_allow_eviction" in told

    with a_scheduler(server.url(), clock, catchup_allow_eviction=True) as scheduler:
        scheduler.tick()
        clock.set(TEN)
        scheduler.tick()
    assert admin.llen("celery") == 1


def test_a_policy_that_becomes_dangerous_later_is_a_warning(
    server: Server, admin: redis.Redis, caplog: pytest.LogCaptureFixture, clock: FakeClock
) -> None:
    with a_scheduler(server.url(), clock) as scheduler:
        scheduler.tick()
        admin.config_set("maxmemory", "100mb")
        admin.config_set("maxmemory-policy", "allkeys-lru")
        admin.delete(Keys("proj").leader)  # a new term
        scheduler.tick()
        clock.set(TEN)
        scheduler.tick()

    assert admin.llen("celery") == 1
    assert [r.levelno for r in caplog.records if "State may be evicted" in r.getMessage()] == [
        logging.WARNING
    ]


def test_an_unexpected_error_ends_no_beat_and_a_second_one_is_not_silent(
    server: Server, caplog: pytest.LogCaptureFixture, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_scheduler(server.url(), clock) as scheduler:
        scheduler.tick()
        with monkeypatch.context() as broken:
            broken.setattr(type(scheduler), "_tick", lambda _: 1 // 0)
            waits = [scheduler.tick() for _ in range(5)]
        clock.set(TEN)
        scheduler.tick()

        assert min(waits) > 0.5
    told = [record.getMessage() for record in caplog.records if "Tick failed" in record.getMessage()]
    assert len([line for line in told if "ZeroDivisionError" in line]) == 1


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"kwargs": [1]}, "beat_schedule.etl.kwargs: expected a mapping such as {'day': 1}, got [1]"),
        ({"kwargs": "[1]"}, "beat_schedule.etl.kwargs: expected a mapping such as {'day': 1}, got '[1]'"),
        ({"args": 5}, "beat_schedule.etl.args: expected a list such as [1, 'a'], got 5"),
        ({"args": "5"}, "beat_schedule.etl.args: expected a list such as [1, 'a'], got '5'"),
        ({"options": ["queue"]}, "beat_schedule.etl.options: expected a mapping such as {'queue': 'slow'}"),
    ],
)
@pytest.mark.parametrize("policies", [{}, {"*": {"window": "6h"}}], ids=["plain", "policy"])
def test_an_entry_with_values_of_the_wrong_type_is_named(
    capsys: pytest.CaptureFixture[str],
    clock: FakeClock,
    fields: dict[str, Any],
    said: str,
    policies: dict[str, Any],
) -> None:
    assert said in refused(capsys, clock, beat_schedule=etl(**fields), catchup_entries=policies)
