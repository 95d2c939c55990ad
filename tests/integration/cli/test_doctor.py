"""``celery catchup doctor``: each trouble is found, and its fix is said."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from celery import Celery
from celery.schedules import crontab

from celery_catchup.beat.catchup_entry import CatchupEntry
from celery_catchup.beat.unserved import Destination, find_unserved
from celery_catchup.events.log_lines import logfmt
from celery_catchup.model import RunState
from celery_catchup.operations import Operator, fleet
from celery_catchup.store.workers import Workers
from celery_catchup.testing import FakeClock
from celery_catchup.testing.embedded_server import EmbeddedServer
from tests import services
from tests.integration import ledgers
from tests.integration.operating import ALL, HOURLY, Project


@pytest.fixture
def now_clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The operator's clock agrees with the server's."""
    clock = FakeClock(datetime.now(UTC))
    monkeypatch.setattr(Operator, "clock", clock)
    return clock


@pytest.fixture
def lasting() -> Iterator[EmbeddedServer]:
    with services.private_server(appendonly=True) as server:
        yield server


def verdicts(found: Any) -> dict[str, str]:
    """The worst verdict of each check."""
    order = ["ok", "unknown", "warning", "failure"]
    worst: dict[str, str] = {}
    for one in found["findings"]:
        worst[one["check"]] = max(one["verdict"], worst.get(one["check"], "ok"), key=order.index)
    return worst


def test_doctor_shows_the_warnings_of_a_beats_start(
    redis_url: str, desk_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    policies = {
        "a": {"window": "30m", "keep": "newest", "timezone": "Asia/Kathmandu"},
        "b": {"window": "6h", "catchup": "all"},
        "c": {"window": "6h", "end_date": "2026-02-07"},
    }
    project = Project(redis_url, desk_clock, dict.fromkeys(policies, HOURLY), policies)

    project.tick()
    found = project.json("doctor", code=1)

    said = [
        record.getMessage() for record in caplog.records if "Configuration warning" in record.getMessage()
    ]
    shown = [
        one["detail"]
        for one in found["findings"]
        if (one["check"], one["verdict"]) == ("configuration", "warning")
    ]
    assert len(shown) == 5
    assert sorted(logfmt("Configuration warning", detail=detail) for detail in shown) == sorted(said)


def finding(found: Any, check: str) -> dict[str, Any]:
    return next(dict(one) for one in found["findings"] if one["check"] == check and one["verdict"] != "ok")


def with_workers(
    monkeypatch: pytest.MonkeyPatch, queues: Mapping[str, list[str]], *tasks: str, poor: tuple[str, ...] = ()
) -> None:
    """Let workers answer that they consume these queues and know these tasks; the poor know none."""
    known = {name: frozenset(() if name in poor else tasks) for name in queues}
    monkeypatch.setattr(fleet, "ask_workers", lambda app, timeout: dict(queues))
    monkeypatch.setattr(fleet, "ask_tasks", lambda app, timeout: known)


def with_a_worker(project: Project, monkeypatch: pytest.MonkeyPatch, *, plugin: bool = True) -> None:
    with_workers(monkeypatch, {"celery@here": ["celery"]}, "proj.etl")
    if plugin:
        with project.operator() as operator:
            Workers(operator.store).record_alive("celery@here")


def test_a_healthy_installation_is_told_so(
    lasting: EmbeddedServer, now_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(lasting.url(), now_clock)
    with_a_worker(project, monkeypatch)
    with project.beat() as beat:
        beat.tick()

        found = project.json("doctor")
        text = project.text("doctor")

    assert [one for one in found["findings"] if one["verdict"] != "ok"] == []
    assert found["healthy"] is True
    assert set(verdicts(found)) == {
        "versions",
        "configuration",
        "store",
        "server",
        "persistence",
        "eviction",
        "clocks",
        "stored state",
        "scheduler",
        "held catch-ups",
        "namespace",
        "dispatch",
        "workers",
        "runs",
        "leases",
        "dead letters",
        "lost slots",
        "windows",
        "memory",
        "flower",
    }
    assert text.splitlines()[-1] == "0 failures, 0 warnings."
    assert "ok: dispatch: atomic: " in text


def test_a_worker_without_the_plugin_beside_one_with_it_is_a_failure_in_doctor_and_status(
    redis_url: str, now_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(redis_url, now_clock)
    with_a_worker(project, monkeypatch)
    with project.operator() as operator:
        server_ms = int(float(operator.store.client.time()[0]) * 1000)
        operator.workers.record_alive("celery@here", ["celery"])
        operator.workers.note_consumers(
            {"celery@there": ["celery", "other"], "celery@here": ["celery"]}, now=server_ms
        )

    found = finding(project.json("doctor", code=1), "workers")

    assert found["verdict"] == "failure"
    assert found["detail"].startswith(
        "queue 'celery': celery@there without the plugin beside workers with it"
    )
    assert project.json("status")["withoutPlugin"] == ["celery@there"]
    assert "Workers without the plugin: celery@there" in project.text("status")


def test_without_a_beat_and_workers_it_is_not_healthy(redis_url: str, now_clock: FakeClock) -> None:
    project = Project(redis_url, now_clock)

    found = project.json("doctor", code=1)
    text = project.text("doctor", code=1)

    worst = verdicts(found)
    assert (worst["scheduler"], worst["workers"], worst["persistence"]) == ("failure", "failure", "warning")
    assert "failure: scheduler: no beat has ever led in namespace 'proj'\n    fix: start one: " in text


def test_a_beat_that_is_gone_is_a_failure(redis_url: str, now_clock: FakeClock) -> None:
    project = Project(redis_url, now_clock)
    with project.beat() as beat:
        beat.tick()
        now_clock.advance(minutes=10)

        found = finding(project.json("doctor", code=1), "scheduler")

    assert found["detail"] == "no beat leads; the last tick was 10m ago"


def test_all_mistakes_are_listed_and_the_rest_is_still_examined(redis_url: str, now_clock: FakeClock) -> None:
    project = Project(redis_url, now_clock, None, {"hourly-etl": {"windw": "6h"}, "nobody": "1h"})

    found = project.json("doctor", code=1)

    mistakes = [one["detail"] for one in found["findings"] if one["check"] == "configuration"]
    assert mistakes == [
        "catchup_entries.nobody: no such entry in beat_schedule (known: hourly-etl)",
        "catchup_entries.hourly-etl.windw: unknown field; did you mean 'window'?",
    ]
    assert verdicts(found)["store"] == "ok"
    assert verdicts(found)["server"] == "ok"


@pytest.mark.parametrize(
    ("namespace", "key", "right"),
    [
        ("CELERY", "CATCHUP_ENTRIES", "write CELERY_CATCHUP_ENTRIES"),
        (None, "CELERY_CATCHUP_ENTRIES", "write catchup_entries, or give config_from_object namespace="),
    ],
)
def test_a_policy_that_celery_does_not_read_is_a_mistake(
    redis_url: str, now_clock: FakeClock, namespace: str | None, key: str, right: str
) -> None:
    project = Project(redis_url, now_clock)
    prefix, case = (f"{namespace}_", str.upper) if namespace else ("", str.lower)
    ours = {"broker_url": redis_url, "beat_schedule": {"hourly-etl": HOURLY}}
    written = {f"{prefix}{case(name)}": value for name, value in ours.items()} | {key: {"hourly-etl": "6h"}}
    project.app = Celery("proj", set_as_current=False)
    project.app.config_from_object(type("Conf", (), written), namespace=namespace)

    found = project.json("doctor", code=1)

    assert verdicts(found)["configuration"] == "failure"
    (mistake,) = [one["detail"] for one in found["findings"] if one["check"] == "configuration"]
    assert mistake.startswith(f"{key}: is not read")
    assert right in mistake


def test_an_unreachable_store_is_a_finding_without_a_password(now_clock: FakeClock) -> None:
    project = Project("redis://:tiger@127.0.0.1:1/0", now_clock)

    found = project.catchup("doctor", code=1)

    assert "failure: store: redis://***@127.0.0.1:1/0: " in found.stdout
    assert "tiger" not in found.output
    assert "ok: configuration" in found.stdout


def test_no_store_at_all_is_a_finding(now_clock: FakeClock) -> None:
    project = Project("amqp://", now_clock)

    found = finding(project.json("doctor", code=1), "store")

    assert found["fix"] == "set catchup_redis_url"


def test_eviction_endangers_what_is_stored(lasting: EmbeddedServer, now_clock: FakeClock) -> None:
    project = Project(lasting.url(), now_clock)
    with project.operator() as operator:
        operator.store.client.config_set("maxmemory-policy", "allkeys-lru")
        assert verdicts(project.json("doctor", code=1))["eviction"] == "warning"
        operator.store.client.config_set("maxmemory", "100mb")
        assert verdicts(project.json("doctor", code=1))["eviction"] == "failure"
        operator.store.client.config_set("maxmemory-policy", "volatile-lru")
        assert verdicts(project.json("doctor", code=1))["eviction"] == "warning"


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(0, "ok"), (20, "warning"), (-20, "warning"), (600, "failure")]
)
def test_clocks_that_disagree_are_noticed(
    redis_url: str, now_clock: FakeClock, seconds: int, verdict: str
) -> None:
    project = Project(redis_url, now_clock)
    now_clock.advance(seconds=seconds)

    assert verdicts(project.json("doctor", code=1))["clocks"] == verdict


def test_a_worker_without_the_plugin_is_named(
    redis_url: str, now_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(redis_url, now_clock)
    with_a_worker(project, monkeypatch, plugin=False)

    found = finding(project.json("doctor", code=1), "workers")

    assert found["detail"] == "celery@here without the plugin: runs are not claimed"
    assert found["fix"] == ('add imports += ["celery_catchup.worker"] to their settings, and restart them')


def test_workers_that_were_seen_a_minute_ago_and_do_not_answer_are_dead(
    redis_url: str, now_clock: FakeClock
) -> None:
    project = Project(redis_url, now_clock)
    with project.operator() as operator:
        operator.workers.record_alive("celery@here", ["celery"])
    with project.beat() as beat:
        beat.tick()

        found = finding(project.json("doctor", code=1), "workers")
        told = project.text("status", code=0)
        project.text("status", "--check", code=0)  # another beat would not help
        project.text("status", "--check", "--workers", code=1)

    assert (found["verdict"], found["detail"]) == ("failure", "none answers: no run is executed")
    assert found["fix"] == "start one: celery -A YOUR_APP worker"
    assert "Workers: none answers" in told.splitlines()


def test_a_solo_worker_that_executes_a_task_cannot_answer_and_is_not_called_absent(
    redis_url: str, now_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = {
        "hourly-etl": HOURLY,
        "slow": {"task": "proj.etl", "schedule": 60.0, "options": {"queue": "slow"}},
    }
    project = Project(redis_url, now_clock, schedule)
    with_workers(monkeypatch, {"w1": ["celery"]}, "proj.etl")
    with project.operator() as operator, project.beat() as beat:
        operator.workers.record_alive("w1", ["celery"])
        operator.workers.record_alive("w2", ["slow"], solo=True)
        beat.tick()

        found = project.text("doctor")
        told = project.text("status", code=0)
        project.text("status", "--check", "--workers", code=0)
        with_workers(monkeypatch, {})
        alone = project.text("status", code=0)
        operator.store.client.zadd(operator.store.keys.workers, {"w2": 1})  # killed a while ago
        dead = project.text("status", code=0)

    busy = "every queue is consumed; w2 cannot answer while executing a task (pool solo)"
    assert f"ok: workers: 1 answers, with the plugin; {busy}" in found.splitlines()
    executing = "1 executes a task and cannot answer (pool solo)"
    assert f"Workers: 1 answers, 0 of them without the plugin; {executing}" in told.splitlines()
    assert f"Workers: 0 answer, 0 of them without the plugin; {executing}" in alone.splitlines()
    assert "Workers: none answers" in dead.splitlines()


def test_tasks_of_celery_itself_are_not_called_unknown() -> None:
    cleanup = Destination("celery.backend_cleanup", "celery.backend_cleanup", "celery")

    assert list(find_unserved([cleanup], {"w1": ["celery"]}, {"w1": {"proj.etl"}})) == []


@pytest.mark.parametrize(
    ("queues", "tasks", "poor", "verdict", "detail"),
    [
        (
            {"w1": ["other"]},
            ["proj.etl"],
            (),
            "failure",
            "no worker consumes queue 'celery'; entries: hourly-etl",
        ),
        (
            {"w1": ["celery"]},
            ["proj.xyz"],
            (),
            "failure",
            "no worker of queue 'celery' knows task 'proj.etl'",
        ),
        (
            {"w1": ["celery"], "w2": ["celery"]},
            ["proj.etl"],
            ("w2",),
            "warning",
            "w2 of several workers of queue 'celery' does not know task 'proj.etl'; entries: hourly-etl",
        ),
    ],
    ids=["queue without workers", "task unknown", "worker without tasks"],
)
def test_entries_that_no_worker_serves_are_found(
    redis_url: str,
    now_clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    queues: dict[str, list[str]],
    tasks: list[str],
    poor: tuple[str, ...],
    verdict: str,
    detail: str,
) -> None:
    project = Project(redis_url, now_clock)
    with_workers(monkeypatch, queues, *tasks, poor=poor)
    with project.beat() as beat:
        beat.tick()

        found = finding(project.json("doctor", code=1 if verdict == "failure" else None), "workers")
        told = project.text("status")
        project.text("status", "--check", "--workers", code=1 if verdict == "failure" else 0)

    assert found["verdict"] == verdict
    assert found["detail"].startswith(detail)
    assert f"Not served: {found['detail']}" in told


def test_a_run_that_hangs_is_named_with_the_slots_that_it_blocks_and_the_command_that_ends_it(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = Project(redis_url, desk_clock, {"sync": HOURLY}, {"sync": {"window": "6h"}})
    project.tick()
    for hour in (10, 11):
        desk_clock.set(f"2026-02-07T{hour}:00:00Z")
        project.tick()
        project.execute("sync") if hour == 10 else None
    with project.running("sync") as run:
        for hour in (12, 13):
            desk_clock.set(f"2026-02-07T{hour}:00:00Z")
            project.tick()

        told = project.catchup("status")
        (found,) = project.json("status")["longRunning"]
        advice = finding(project.json("doctor", code=1), "runs")

    assert (found["runId"], found["taskId"], found["blocked"]) == (run.run_id, run.run_id, 2)
    assert (
        f"Running long: sync for 2h, usually 0s, 2 slots blocked ({run.run_id[:8]} on celery@here, "
        in told.stdout
    )
    command = f"celery -A YOUR_APP catchup runs cancel {run.run_id} --terminate"
    assert command in told.stderr
    assert advice["fix"] == f"to end it: {command}"


def test_runs_that_wait_in_a_queue_are_counted_with_the_oldest(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock)
    project.tick()
    desk_clock.set("2026-02-07T10:00:00Z")
    project.tick()
    (run_id,) = [run["runId"] for run in project.json("runs")["runs"]]
    desk_clock.set("2026-02-07T10:30:00Z")

    told = project.text("status")
    advice = finding(project.json("doctor", code=1), "runs")

    where = f"the oldest for 30m ({run_id[:8]} of hourly-etl), 1 message in the queue"
    assert f"Queued: 1 run in celery, {where}" in told
    assert "Runs in flight: 1 (1 queued, 0 running)" in told
    assert advice["fix"].endswith(f"celery -A YOUR_APP catchup runs resend {run_id}")


def test_lost_slots_dead_letters_and_short_windows_are_found(redis_url: str, now_clock: FakeClock) -> None:
    now_clock.set(datetime.now(UTC).replace(minute=5, second=0))
    schedule = {"off": HOURLY, "short": HOURLY, "narrow": HOURLY}
    policies = {
        "off": False,
        "short": {"window": "90m", "overlap_policy": "all"},
        "narrow": {**ALL, "window": "3h30m"},
    }
    project = Project(redis_url, now_clock, schedule, policies)
    project.tick()
    now_clock.advance(hours=4)
    project.tick()
    project.execute("short", state=RunState.FAILED, error="no")

    found = project.json("doctor", code=1)

    lost = finding(found, "lost slots")
    assert lost["detail"] == "entry 'off' lost 4 slots in the last week: its catch-up is off"
    assert lost["fix"].startswith("run them: celery -A YOUR_APP catchup backfill off --start ")
    windows = [one["detail"] for one in found["findings"] if one["check"] == "windows"]
    assert windows == [
        "the window of entry 'short' is 1h30m, and 2 slots fell out of it",
        "the window of entry 'narrow' is 3h30m, and a run was 3h5m late",
    ]
    assert finding(found, "dead letters")["detail"] == "runs that used up all attempts: 1"


def test_stale_leases_are_found(redis_url: str, now_clock: FakeClock) -> None:
    project = Project(redis_url, now_clock)
    with project.operator() as operator:
        operator.store.client.zadd(operator.store.keys.leases, {"some-run": 1})

    assert "without a sign of life: 1" in finding(project.json("doctor", code=1), "leases")["detail"]


def test_a_broken_record_or_key_stops_no_other_check(redis_url: str, now_clock: FakeClock) -> None:
    project = Project(redis_url, now_clock)
    with project.operator() as operator:
        operator.store.client.set(operator.store.keys.leases, "not a sorted set")

    found = project.json("doctor", code=1)

    assert verdicts(found)["leases"] == "unknown"
    assert verdicts(found)["windows"] == "ok"


def test_a_newer_schema_is_a_failure(redis_url: str, now_clock: FakeClock) -> None:
    project = Project(redis_url, now_clock)
    with project.operator() as operator:
        operator.store.client.hset(operator.store.keys.meta, "schema", "99")

    assert "schema 99" in finding(project.json("doctor", code=1), "schema")["detail"]


def test_the_broker_is_a_finding_of_its_own(redis_url: str, now_clock: FakeClock) -> None:
    project = Project("redis://127.0.0.1:1/0", now_clock, catchup_redis_url=redis_url)

    found = finding(project.json("doctor", code=1), "dispatch")

    assert found["detail"].startswith("broker unreachable")
    assert json.dumps(found)


def test_memory_is_forecast_from_the_runs_of_the_last_week(
    lasting: EmbeddedServer, now_clock: FakeClock
) -> None:
    project = Project(lasting.url(), now_clock, catchup_ledger_ttl="40d")
    with project.operator() as operator:
        ledgers.fill(operator, runs_each=24 * 7)

    (memory,) = [one for one in project.json("doctor", code=1)["findings"] if one["check"] == "memory"]

    assert memory["verdict"] == "ok"
    assert re.search(r"in 168 runs, \d{3,4} bytes each; growing by 48 runs \(.* KB\) a day", memory["detail"])
    assert memory["detail"].endswith("when runs are forgotten after 40d")


def test_a_server_that_will_be_full_before_runs_are_forgotten_is_a_warning(
    lasting: EmbeddedServer, now_clock: FakeClock
) -> None:
    project = Project(lasting.url(), now_clock, catchup_ledger_ttl="9000d")
    with project.operator() as operator:
        ledgers.fill(operator, runs_each=24 * 7)
        operator.store.client.config_set("maxmemory", 100_000_000)

    memory = finding(project.json("doctor", code=1), "memory")

    assert memory["verdict"] == "warning"
    assert "of 100.0 MB (maxmemory)" in memory["detail"]
    assert "catchup_max_ledger_runs" in memory["fix"]


def test_an_entry_that_was_built_without_an_app_is_checked_as_any_other(
    redis_url: str, desk_clock: FakeClock
) -> None:
    built = CatchupEntry(name="etl", task="proj.etl", schedule=crontab(minute=0), catchup={"window": "6h"})
    project = Project(redis_url, desk_clock, {"etl": built}, {})

    assert [entry["name"] for entry in project.json("entries")["entries"]] == ["etl"]
