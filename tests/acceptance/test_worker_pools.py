"""The plugin does the same in every pool that Celery has."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from celery import Celery

from tests.integration.workers import Site, Worker

POOLS = ["prefork", "threads", "solo", "gevent"]

NO_SPAWN = not hasattr(Celery(set_as_current=False).conf, "worker_pool_start_method")


@pytest.fixture
def site(redis_url: str, tmp_path: Path) -> Iterator[Site]:
    site = Site(redis_url, tmp_path)
    yield site
    site.close()


@pytest.fixture(params=POOLS)
def worker(request: pytest.FixtureRequest, site: Site) -> Iterator[Worker]:
    if request.param == "gevent" and find_spec("gevent") is None:
        pytest.skip("needs gevent")
    with Worker(site, pool=request.param, concurrency=4) as worker:
        yield worker


def test_ten_copies_of_one_message_are_executed_once(site: Site, worker: Worker) -> None:
    run_id = site.record()

    site.send(run_id, kwargs={"seconds": 0.3}, copies=10)
    after = site.send_run(entry="another", hour=1)

    assert site.ended(run_id, after) == ["succeeded", "succeeded"]
    assert len(site.lines("start", run_id)) == 1


def test_a_chain_goes_on_in_order_also_behind_a_failure(site: Site, worker: Worker) -> None:
    runs = [
        site.record(hour=0),
        site.record(hour=1, state="waiting", kwargs={"fail": True}),
        site.record(hour=2, state="waiting"),
    ]

    site.send(runs[0], kwargs={"seconds": 0.2})

    assert site.ended(*runs) == ["succeeded", "dead", "succeeded"]
    assert [line["run_id"] for line in site.lines("start")] == runs
    assert site.run(runs[1])["error"] == "ValueError: it did not work"
    assert site.store.zcard(site.keys.active("hourly-etl")) == 0


def test_a_retried_run_stays_the_same_run(site: Site, worker: Worker) -> None:
    run_id = site.send_run("retrying")

    assert site.ended(run_id) == ["succeeded"]
    assert [line["attempt"] for line in site.lines("start", run_id)] == [1, 2, 3]
    assert site.run(run_id)["attempt"] == 3


@pytest.mark.parametrize("task", ["hooked", "by_class"])
def test_hooks_of_the_users_own_run_after_the_claim(site: Site, worker: Worker, task: str) -> None:
    run_id = site.record(task)

    site.send(run_id, task, copies=3)

    assert site.ended(run_id) == ["succeeded"]
    assert [line["what"] for line in site.lines(run_id=run_id)] == ["hook", "start"]


@pytest.mark.skipif(NO_SPAWN, reason="this Celery cannot spawn its processes")
@pytest.mark.parametrize("by_hand", ["", "yes"], ids=["by its settings", "by install()"])
def test_processes_that_are_spawned_have_the_plugin_too(site: Site, by_hand: str) -> None:
    spawning = {"worker_pool_start_method": "spawn"}
    with Worker(site, pool="prefork", env={"CLAIMS_BY_HAND": by_hand}, **spawning):
        run_id = site.record("hooked")

        site.send(run_id, "hooked", copies=3)
        after = site.send_run(entry="another")

        assert site.ended(run_id, after) == ["succeeded", "succeeded"]
    assert [line["what"] for line in site.lines(run_id=run_id)] == ["hook", "start"]


def test_a_worker_is_on_the_roll_until_it_stops(site: Site, worker: Worker) -> None:
    assert site.store.zrange(site.keys.workers, 0, -1) == [worker.name.encode()]

    worker.process.terminate()
    worker.process.wait(20)

    assert site.store.zcard(site.keys.workers) == 0
