"""Leases are renewed while a run is executed and lost when they are taken; reports survive an outage."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from celery_catchup.testing.embedded_server import EmbeddedServer
from tests.integration.workers import Site, Worker, until
from tests.services import private_server

SHORT = {"catchup_run_lease_ttl": "3s"}


@pytest.fixture
def site(redis_url: str, tmp_path: Path) -> Iterator[Site]:
    site = Site(redis_url, tmp_path)
    yield site
    site.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedServer]:
    """A server for the ledger alone, which keeps what it was told when it is killed."""
    with private_server(appendonly=True) as server:
        yield server


@pytest.fixture
def apart(redis_url: str, store: EmbeddedServer, tmp_path: Path) -> Iterator[Site]:
    site = Site(redis_url, tmp_path, store_url=store.url())
    yield site
    site.close()


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo", "gevent"])
def test_a_run_longer_than_its_lease_keeps_it(site: Site, pool: str) -> None:
    if pool == "gevent":
        pytest.importorskip("gevent")
    with Worker(site, pool=pool, **SHORT), Worker(site, name="w2", **SHORT):
        run_id = site.send_run(kwargs={"seconds": 5})
        site.wait_for("start")
        first = site.lease(run_id)
        assert first is not None

        until(lambda: (site.lease(run_id) or 0) > first + 3000)  # the first lease has run out
        site.send(run_id, copies=3)

        assert site.ended(run_id) == ["succeeded"]
    assert len(site.lines("start")) == 1


def test_the_main_process_renews_for_a_child_that_cannot(site: Site) -> None:
    with Worker(site, pool="prefork", **SHORT):
        run_id = site.send_run(kwargs={"seconds": 60})
        (line,) = site.wait_for("start")
        signal_to(line["pid"], signal.SIGSTOP)
        first = site.lease(run_id)
        assert first is not None

        until(lambda: (site.lease(run_id) or 0) > first + 3000)


def test_nobody_renews_for_a_child_that_is_dead(site: Site) -> None:
    with Worker(site, pool="prefork", **SHORT) as worker:
        run_id = site.send_run("redelivered")
        until(lambda: worker.said("Run refused"))  # Celery delivers it again at once

        until(lambda: (site.lease(run_id) or 0) < server_ms(site))
        site.send(run_id, "redelivered")

        assert site.ended(run_id) == ["succeeded"]
    assert [line["attempt"] for line in site.lines("start")] == [1, 2]


def test_a_task_is_told_when_its_run_is_taken(site: Site) -> None:
    with Worker(site, pool="threads", **SHORT) as worker:
        run_id = site.send_run("checking", kwargs={"seconds": 20})
        site.wait_for("start")

        site.store.hset(site.keys.ledger, run_id, json.dumps(site.run(run_id) | {"owner": "somebody else"}))
        (end,) = site.wait_for("end")
        (line,) = until(lambda: worker.said("Report superseded"))

    assert end["lost"]
    assert f"entry=hourly-etl run_id={run_id} state=failed" in line
    assert len(worker.said("Run lost")) == 1
    assert "LeaseLostError" in worker.output
    assert site.states(run_id) == ["running"]


def test_a_worker_that_was_stopped_past_its_lease_is_refused(site: Site) -> None:
    with Worker(site, pool="prefork", **SHORT) as first:
        run_id = site.send_run(kwargs={"seconds": 8})  # longer than a second worker takes to start
        following = site.record(hour=1, state="waiting")
        site.wait_for("start")
        with Worker(site, name="w2", **SHORT) as second:
            first.signal(signal.SIGSTOP)
            until(lambda: (site.lease(run_id) or 0) < server_ms(site))
            until(lambda: site.store.hget(site.keys.contact, "since") < str(server_ms(site) - 3000).encode())
            site.send(run_id, kwargs={"seconds": 6})
            site.wait_for("start", 2)

            first.signal(signal.SIGCONT)
            (line,) = until(lambda: first.said("Report superseded"))

            assert site.states(run_id, following) == ["running", "waiting"]
            assert site.ended(run_id, following) == ["succeeded", "succeeded"]
            assert second.said("Report superseded") == []
    assert run_id in line
    assert [entry["attempt"] for entry in site.lines("start", run_id)] == [1, 2]


def test_while_the_store_is_away_messages_go_back(apart: Site, store: EmbeddedServer) -> None:
    with Worker(apart, pool="prefork", env={"CLAIMS_COUNTDOWN": "1"}) as worker:
        run_id = apart.record()
        store.kill()
        apart.send(run_id)
        until(lambda: worker.said("Run cannot be claimed"))
        assert apart.lines() == []

        store.start()

        assert apart.ended(run_id) == ["succeeded"]
    assert len(apart.lines("start")) == 1
    assert apart.lines("start")[0]["attempt"] == 1
    assert "action=retry" in worker.said("Run cannot be claimed")[0]


def test_a_run_may_be_executed_unclaimed(apart: Site, store: EmbeddedServer) -> None:
    with Worker(apart, env={"CLAIMS_COUNTDOWN": "1"}, catchup_on_store_failure="execute") as worker:
        run_id = apart.record("tell")
        store.kill()
        apart.send(run_id, "tell")
        (told,) = apart.wait_for("told")
        assert told["run_id"] == run_id
        assert told["scheduled_time"] == "2026-02-07T10:00:00+00:00"

        store.start()

        assert apart.ended(run_id) == ["succeeded"]  # by a report that waited for the store
    assert "action=execute" in worker.said("Run cannot be claimed")[0]
    assert len(apart.lines()) == 1


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_a_report_waits_for_the_store(apart: Site, store: EmbeddedServer, pool: str) -> None:
    with Worker(apart, pool=pool) as worker:
        run_id = apart.send_run(kwargs={"seconds": 1})
        apart.wait_for("start")
        store.kill()
        apart.wait_for("end")
        until(lambda: worker.said("Redis cannot be used"))

        store.start()

        assert apart.ended(run_id) == ["succeeded"]
        until(lambda: worker.said("Redis cannot be used: over"))
    assert len(apart.lines("start")) == 1


@pytest.mark.parametrize("pool", ["prefork", "solo"])
def test_a_worker_that_stops_during_an_outage_waits_to_report(
    apart: Site, store: EmbeddedServer, pool: str
) -> None:
    with Worker(apart, pool=pool) as worker:
        run_id = apart.send_run(kwargs={"seconds": 1})
        apart.wait_for("start")
        store.kill()
        apart.wait_for("end")
        until(lambda: worker.said("Redis cannot be used"))

        worker.process.terminate()
        time.sleep(2)  # without the wait its processes have ended
        store.start()

        assert apart.ended(run_id) == ["succeeded"]
        assert worker.process.wait(timeout=20) == 0


def test_the_main_process_keeps_its_reports_for_the_store(apart: Site, store: EmbeddedServer) -> None:
    with Worker(apart, pool="prefork", **SHORT) as worker:
        run_id = apart.send_run(kwargs={"seconds": 60})
        (line,) = apart.wait_for("start")
        store.kill()
        signal_to(line["pid"], signal.SIGKILL)
        until(lambda: worker.said("Redis cannot be used"))

        store.start()

        assert apart.ended(run_id) == ["dead"]


def signal_to(pid: int, number: int) -> None:
    os.kill(pid, number)


def server_ms(site: Site) -> float:
    seconds, micros = site.store.time()
    return float(seconds * 1000 + micros / 1000)


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_message_that_waits_in_a_worker_is_renewed(site: Site, pool: str) -> None:
    """It is not lost: it waits behind a long task, and nobody else can have it."""
    with Worker(site, pool=pool, env={"CLAIMS_RENEW": "0.5"}, worker_prefetch_multiplier=4, **SHORT):
        site.send_run(kwargs={"seconds": 6})
        site.wait_for("start")
        waiting = site.send_run()
        site.store.zadd(site.keys.leases, {waiting: 1})

        until(lambda: (site.lease(waiting) or 0) > server_ms(site) + 200_000)

        assert site.states(waiting) == ["queued"]
        assert site.ended(waiting) == ["succeeded"]


def test_after_an_outage_of_the_store_longer_than_the_lease_a_copy_is_not_executed_beside_the_first(
    apart: Site, store: EmbeddedServer
) -> None:
    with Worker(apart, pool="threads", **SHORT) as first, Worker(apart, name="w2", **SHORT) as second:
        run_id = apart.send_run("work", kwargs={"seconds": 8})
        apart.wait_for("start")
        store.kill()
        time.sleep(4.5)  # the lease is over, and nobody could renew it
        apart.send(run_id, copies=3)
        store.start()

        assert apart.ended(run_id) == ["succeeded"]
        refused = until(lambda: first.said("Run refused") + second.said("Run refused"))

    assert len(apart.lines("start")) == 1
    assert refused
