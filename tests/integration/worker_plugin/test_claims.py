"""Messages are claimed before they are executed; others are refused, or are ordinary tasks."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.workers import NAMESPACE, SLOT, Site, Worker, headers, until
from tests.services import private_server


@pytest.fixture
def site(redis_url: str, tmp_path: Path) -> Iterator[Site]:
    site = Site(redis_url, tmp_path)
    yield site
    site.close()


@pytest.fixture
def apart(redis_url: str, tmp_path: Path) -> Iterator[Site]:
    """A site whose store is a server of its own, so that what we ask of it can be counted."""
    with private_server() as server:
        site = Site(redis_url, tmp_path, store_url=server.url(db=3))
        yield site
        site.close()


def commands(site: Site) -> int:
    """How many commands the store was asked since it started, those of this test included."""
    stats: Any = site.store.info("commandstats")
    return sum(stat["calls"] for stat in stats.values())


def test_three_workers_that_get_one_message_execute_it_once(site: Site) -> None:
    run_id = site.record()
    with Worker(site, name="w1"), Worker(site, name="w2"), Worker(site, name="w3"):
        site.send(run_id, kwargs={"seconds": 1}, copies=3)
        until(lambda: site.broker.llen("celery") == 0)

        assert site.ended(run_id) == ["succeeded"]

    assert len(site.lines("start")) == 1


@pytest.mark.parametrize("state", ["succeeded", "failed", "revoked", "dead"])
def test_a_run_that_has_ended_is_not_executed(site: Site, state: str) -> None:
    run_id = site.record(state=state)
    with Worker(site) as worker:
        site.send(run_id)

        (line,) = until(lambda: worker.said("Run refused"))

    assert line.endswith(f'msg="Run refused" entry=hourly-etl run_id={run_id} reason=ended')
    assert site.lines() == []
    assert site.states(run_id) == [state]


def test_an_ordinary_task_asks_nothing_of_the_store(apart: Site) -> None:
    ordinary = {"headers": {}, "task_id": None}
    with Worker(apart, pool="prefork"):
        before = commands(apart)

        apart.send("", copies=50, **ordinary)
        apart.send("", "shared", copies=50, **ordinary)
        apart.wait_for("start", 100)

        assert commands(apart) == before + 1  # our own question


def test_a_run_costs_a_claim_and_a_report(apart: Site) -> None:
    with Worker(apart, pool="prefork") as worker:
        assert apart.ended(apart.send_run()) == ["succeeded"]  # connected, scripts loaded
        apart.store.config_resetstat()

        runs = [apart.record(hour=hour) for hour in range(1, 21)]
        for run_id in runs:
            apart.send(run_id)
        until(lambda: apart.store.zcard(apart.keys.active("hourly-etl")) == 0)

        stats: Any = apart.store.info("commandstats")
        assert stats["cmdstat_evalsha"]["calls"] == 2 * len(runs)
        assert "cmdstat_eval" not in stats
        assert worker.process.poll() is None


def test_a_run_that_the_ledger_does_not_know_is_an_ordinary_task(site: Site) -> None:
    forged = str(uuid.uuid4())
    with Worker(site) as worker:
        site.send(forged, copies=3)
        site.wait_for("end", 3)

        (line,) = [line for line in worker.said("Run unknown") if "WARNING" in line]

    assert f'entry=hourly-etl run_id={forged} action="ordinary task"' in line
    assert not site.store.exists(site.keys.ledger, site.keys.leases)
    assert all("run_id" not in line for line in site.lines())


def test_another_task_with_a_runs_headers_is_an_ordinary_task(site: Site) -> None:
    run_id = site.record("work")
    with Worker(site) as worker:
        site.send(run_id, "shared")
        (line,) = site.wait_for("start")

        assert worker.said("Run refused") == []

    assert "run_id" not in line
    assert site.states(run_id) == ["queued"]


@pytest.mark.parametrize("pool", ["solo", "prefork"])
def test_children_that_are_passed_a_runs_headers_are_executed_and_the_run_ends_by_itself(
    site: Site, pool: str
) -> None:
    with Worker(site, pool=pool, concurrency=2) as worker:
        run_id = site.send_run("passing_on")
        children = site.wait_for("child", 3) + site.wait_for("hook", 1)

        assert site.ended(run_id) == ["succeeded"]
        assert worker.said("Run refused") == []

    assert all("run_id" not in line for line in children)
    assert site.run(run_id)["attempt"] == 1


def test_a_child_with_a_runs_headers_that_is_never_executed_does_not_end_the_run(site: Site) -> None:
    run_id = site.record()
    child = {"headers": headers(run_id), "task_id": None}
    with Worker(site) as worker:
        site.send(run_id, expires=-60, **child)
        site.send(run_id, "unheard_of", **child)
        until(lambda: "unheard_of" in worker.output and site.broker.llen("celery") == 0)
        ordinary = site.send_run(hour=1)
        site.ended(ordinary)

    assert site.states(run_id) == ["queued"]
    assert "error" not in site.run(run_id)


@pytest.mark.parametrize("pool", ["solo", "prefork"])
def test_a_run_stays_with_the_task_that_replaces_its_own(site: Site, pool: str) -> None:
    first = site.record("replacing")
    second = site.record("replacing", hour=1, state="waiting")
    with Worker(site, pool=pool, concurrency=2):
        site.send(first, "replacing")

        assert site.ended(first, second) == ["succeeded"] * 2

    told = [(line["what"], line["run_id"]) for line in site.lines()]
    assert told == [(what, run) for run in (first, second) for what in ("replaced", "start", "end")]


def test_a_run_whose_task_is_replaced_by_a_group_ends_with_its_own_task(site: Site) -> None:
    with Worker(site, result_backend=site.url):
        run_id = site.send_run("replacing", kwargs={"by_group": True})

        assert site.ended(run_id) == ["succeeded"]
        (line,) = site.wait_for("start")

    assert "run_id" not in line


def test_a_run_whose_replacement_fails_has_failed(site: Site) -> None:
    with Worker(site):
        run_id = site.send_run("replacing", kwargs={"fail": True})

        assert site.ended(run_id) == ["dead"]


@pytest.mark.parametrize("pool", ["solo", "prefork"])
def test_a_refused_copy_leaves_the_result_as_it_is(site: Site, pool: str) -> None:
    backend = {"result_backend": site.url, "task_track_started": True}

    def result(run_id: str) -> Any:
        found: Any = site.broker.get(f"celery-task-meta-{run_id}")
        return json.loads(found) if found else None

    with Worker(site, pool=pool, **backend) as worker:
        run_id = site.record()
        site.send(run_id, kwargs={"seconds": 0.5, "fail": True})
        until(lambda: (result(run_id) or {}).get("status") == "STARTED")
        assert site.ended(run_id) == ["dead"]
        before = until(lambda: found if (found := result(run_id))["status"] == "FAILURE" else None)

        site.send(run_id, kwargs={"fail": True})
        until(lambda: worker.said("Run refused"))
        ordinary = str(uuid.uuid4())
        site.send("", headers={}, task_id=ordinary, kwargs={"seconds": 0.5})
        until(lambda: (result(ordinary) or {}).get("status") == "STARTED")

    assert result(run_id) == before


STRANGE = [None, [], {}, 7, -1, 10**40, 1.5, True, "", "x" * 10_000_000, "\x00", "*", {"a": [None]}]


def test_strange_headers_are_executed_as_ordinary_tasks(site: Site) -> None:
    with Worker(site, pool="prefork") as worker:
        for strange in STRANGE:
            site.send("", headers=headers(strange), task_id=None)
            site.send("", headers=headers(str(uuid.uuid4()), strange), task_id=None)
            site.send("", headers={"catchup_run_id": strange}, task_id=None)
            site.send("", headers={"headers": strange, **headers(strange)}, task_id=None)

        site.wait_for("end", 4 * len(STRANGE), timeout=60)
        run_id = site.send_run()

        assert site.ended(run_id) == ["succeeded"]
        assert "Traceback" not in worker.output


def test_a_forged_token_does_not_steal_a_running_run(site: Site) -> None:
    with Worker(site, name="w1"), Worker(site, name="w2"):
        run_id = site.send_run(kwargs={"seconds": 1})
        site.wait_for("start")
        forged = site.message(run_id)
        forged["properties"]["catchup_token"] = site.run(run_id)["owner"]

        site.push(forged)

        assert site.ended(run_id) == ["succeeded"]
    assert len(site.lines("start")) == 1


def test_the_task_is_told_its_run(site: Site) -> None:
    with Worker(site, catchup_export_env=True):
        run_id = site.send_run("tell")
        (told,) = site.wait_for("told")
        site.ended(run_id)
        site.send("", task_id=None, headers={})
        site.wait_for("end")

    assert (told["run_id"], told["attempt"], told["entry"]) == (run_id, 1, "hourly-etl")
    assert told["scheduled_time"] == "2026-02-07T10:00:00+00:00"
    assert told["interval"] == ["2026-02-07 09:00:00+00:00", "2026-02-07 10:00:00+00:00"]
    assert (told["is_catchup"], told["trigger"]) == (True, "catchup")
    assert told["lag"] == (site.run(run_id)["started"] - SLOT) / 1000
    assert told["environ"] == {
        "CATCHUP_ENTRY": "hourly-etl",
        "CATCHUP_RUN_ID": run_id,
        "CATCHUP_ATTEMPT": "1",
        "CATCHUP_TRIGGER": "catchup",
        "CATCHUP_SCHEDULED_TIME": "2026-02-07T10:00:00Z",
        "CATCHUP_IS_CATCHUP": "true",
        "CATCHUP_LAG_SECONDS": str(int(told["lag"])),
        "CATCHUP_DATA_INTERVAL_START": "2026-02-07T09:00:00Z",
        "CATCHUP_DATA_INTERVAL_END": "2026-02-07T10:00:00Z",
        "CATCHUP_SLOTS": "1",
    }


def test_a_worker_with_a_mistake_in_its_settings_does_not_start(site: Site) -> None:
    with pytest.raises(AssertionError, match="catchup_run_lease_ttl: 1s is too short"):
        Worker(site, catchup_run_lease_ttl="1s").__enter__()


def test_a_mistake_that_is_beats_business_stops_no_worker(site: Site) -> None:
    with Worker(site, catchup_entries={"no-such-entry": "6h"}, catchup_typo=1):
        assert site.ended(site.send_run()) == ["succeeded"]


def test_the_namespace_is_the_name_of_the_app(site: Site) -> None:
    with Worker(site):
        assert site.store.zcard(f"{{catchup:{NAMESPACE}}}:workers") == 1
