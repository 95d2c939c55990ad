"""A chain under fire: workers are killed, messages doubled, runs fail and retry. The order holds.

The oracle is outside of the package: tasks append lines to a file, and the file tells what was
executed, when, and whether two were at it at once.
"""

from __future__ import annotations

import json
import random
import signal
import time
from datetime import timedelta
from itertools import count, pairwise
from typing import Any

import pytest

from celery_catchup.model import to_rfc3339
from tests.acceptance.messages import RabbitQueue
from tests.acceptance.processes import Process, until
from tests.acceptance.sites import Site
from tests.projects.storm import kind
from tests.results import Recorder

ENDED = {"succeeded", "dead", "revoked"}


def storm(site: Site, *, slots: int, kills: int, seed: int = 11, **settings: Any) -> dict[str, int]:
    """Catch up so many minutes in one chain, while workers are killed; what there was to count."""
    site.declare(
        {"storm": {"schedule": "* * * * *", "task": "tests.projects.storm.rage"}},
        catchup_entries={"storm": {"window": "7d", "overlap_policy": "all"}},
        imports=["celery_catchup.worker", "tests.projects.storm"],
        catchup_run_lease_ttl="3s",
        **{"broker_transport_options": {"visibility_timeout": 3}, **settings},
    )
    site.set_clock("00:00:30")
    first = site.leader()
    site.until_a_tick_later()
    first.stop()
    site.offset += timedelta(minutes=slots)
    site.leader()
    until(lambda: len(site.ledger("storm")) >= slots, what="the chain", within=60)
    killed = _fire(site, slots=slots, kills=kills, rng=random.Random(seed))
    _check(site, slots)
    return {"seed": seed, "kills": killed, **_count(site, slots)}


def _fire(site: Site, *, slots: int, kills: int, rng: random.Random) -> int:
    """Kill and start workers while the chain runs, and send copies of messages; how many were killed."""
    killed = 0
    names = (f"storm{number}@%h" for number in count())
    workers = [site.worker("-n", next(names)) for _ in range(2)]
    _revoke(site)
    for _ in range(kills):
        time.sleep(rng.uniform(0.3, 2.0))
        _double(site)
        victim = rng.randrange(len(workers))
        _kill_with_children(workers[victim])
        killed += 1
        workers[victim] = site.worker("-n", next(names))
    until(
        lambda: set(_states(site, slots)) <= ENDED,
        what="the end of the chain",
        # A message that died on the way from the queue to its worker is missed after five minutes.
        within=360 + slots / 20 + kills * 15,
        step=0.5,
    )
    return killed


def _kill_with_children(worker: Process) -> None:
    worker.end()
    assert worker.code() == -signal.SIGKILL


def _revoke(site: Site) -> None:
    """Revoke some runs before their turn; a worker that is killed forgets it, and they are executed."""
    runs = [run["id"] for run in site.ledger("storm") if kind(_slot(run)) == "revoked"]
    assert site.start_celery("control", "revoke", *runs[:200]).wait() == 0


def _slot(run: dict[str, Any]) -> str:
    return to_rfc3339(run["slot"])


def _double(site: Site) -> None:
    """Put a copy of the newest message into the queue, where that can be done from outside."""
    message: Any = site.redis.lindex("celery", 0)
    if message is not None:
        site.redis.lpush("celery", message)


def _states(site: Site, slots: int) -> list[str]:
    return [run["state"] for run in site.ledger("storm")[:slots]]


def _check(site: Site, slots: int) -> None:
    runs = site.ledger("storm")[:slots]
    begins, ends = _times(site)
    executed = [slot for run in runs if (slot := _slot(run)) in begins]

    assert len(runs) == slots
    for run in runs:
        slot = _slot(run)
        expected = {"fails": {"dead"}, "revoked": {"revoked", "succeeded"}}.get(kind(slot), {"succeeded"})
        assert run["state"] in expected, (slot, run)
        assert run["state"] == "revoked" or slot in begins, f"{slot} was not executed"
    for before, after in pairwise(executed):
        assert begins[after][0] > begins[before][0], f"{after} began before {before}"
        assert not ends.get(before) or begins[after][0] >= max(ends[before]), f"{before} and {after} at once"


def _count(site: Site, slots: int) -> dict[str, int]:
    """Runs that were executed, and neighbours of them that began in the wrong order."""
    begins, _ = _times(site)
    executed = [slot for run in site.ledger("storm")[:slots] if (slot := _slot(run)) in begins]
    wrong = sum(begins[after][0] <= begins[before][0] for before, after in pairwise(executed))
    return {"executed": len(executed), "out_of_order": wrong}


def _times(site: Site) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """When each slot was begun and ended, as often as it was."""
    begins: dict[str, list[float]] = {}
    ends: dict[str, list[float]] = {}
    for line in site.diary.read_text().splitlines():
        what, slot, _, moment = json.loads(line)
        (begins if what == "begin" else ends).setdefault(slot, []).append(moment)
    return begins, ends


def storm_on_rabbitmq(site: Site, queue: RabbitQueue, **size: int) -> dict[str, int]:
    site.broker = queue.url
    elsewhere = {"catchup_redis_url": site.url, "task_default_queue": queue.name}
    return storm(site, **size, **elsewhere, broker_transport_options={})


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_chain_keeps_its_order_while_workers_are_killed(site: Site) -> None:
    storm(site, slots=150, kills=3)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_chain_keeps_its_order_on_rabbitmq_too(site: Site, rabbit_queue: RabbitQueue) -> None:
    storm_on_rabbitmq(site, rabbit_queue, slots=150, kills=3)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_three_thousand_runs_in_order(site: Site, record_result: Recorder) -> None:
    figures = storm(site, slots=3000, kills=12)

    record_result("one chain, workers killed: Redis", **figures)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_three_thousand_runs_in_order_on_rabbitmq(
    site: Site, rabbit_queue: RabbitQueue, record_result: Recorder
) -> None:
    figures = storm_on_rabbitmq(site, rabbit_queue, slots=3000, kills=12)

    record_result("one chain, workers killed: RabbitMQ", **figures)
