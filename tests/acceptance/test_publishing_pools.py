"""On RabbitMQ the threads of a worker publish what their runs release; none hangs, none fails."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.acceptance.messages import RabbitQueue
from tests.acceptance.processes import Process, until
from tests.acceptance.sites import Site
from tests.results import Recorder

POOLS = ["prefork", "threads", "gevent"]
BUSY = (
    "celery_catchup/worker_plugin/publish_released.py",
    "celery_catchup/dispatch/",
    "basic_publish_confirm",
)
"""What stands in the stack of a thread that publishes; an idle worker has none."""


def chains(
    site: Site, queue: RabbitQueue, pool: str, *, entries: int, slots: int, within: float
) -> dict[str, object]:
    """Let a worker with ten threads, processes or greenlets execute so many chains of so many runs."""
    if pool == "gevent" and find_spec("gevent") is None:
        pytest.skip("needs gevent")
    site.broker = queue.url
    names = [f"chain-{number}" for number in range(entries)]
    site.declare(
        dict.fromkeys(names, "* * * * *"),
        catchup_entries={"*": {"window": "1d", "overlap_policy": "all"}},
        catchup_redis_url=site.url,
        task_default_queue=queue.name,
        imports=["celery_catchup.worker", "tests.projects.stacks"],
        # Celery's gevent worker acknowledges ten messages in a second, and waits for that with a limit.
        worker_prefetch_multiplier=0,
    )
    site.set_clock("00:00:30")
    first = site.leader()
    site.until_a_tick_later()
    first.stop()
    site.offset += timedelta(minutes=slots)
    site.leader()
    until(lambda: sum(len(site.ledger(name)) for name in names) >= entries * slots, what="the chains")

    begun = time.monotonic()
    stacks = site.folder / "stacks"
    worker = site.worker("-P", pool, "-c", "10", CATCHUP_TEST_STACKS=str(stacks))
    wanted = {"succeeded": slots}
    until(
        lambda: all(Counter(site.states(name)[:slots]) == wanted for name in names),
        what="the end of the chains",
        within=within,
        step=0.2,
    )
    seconds = time.monotonic() - begun

    assert _stuck(worker, stacks) == []
    assert worker.stop() == 0
    assert [line for line in worker.text().splitlines() if "ERROR" in line or "outbox" in line] == []
    return {"chains": entries, "runs": entries * slots, "seconds": round(seconds)}


def _stuck(worker: Process, stacks: Path) -> list[str]:
    """The stacks of threads that publish though there is nothing to publish."""
    found: list[str] = []

    def idle() -> bool:
        found[:] = [stack for stack in _dumped(worker, stacks) if any(part in stack for part in BUSY)]
        return not found

    # A beat that goes on has a run for each entry every minute, so it is looked at more than once.
    with suppress(AssertionError):
        until(idle, what="an idle worker", within=15, step=0.5)
    return found


def _dumped(worker: Process, stacks: Path) -> list[str]:
    """What every thread of the worker and its children does now."""
    stacks.write_text("")
    children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
    for pid in (worker.pid, *map(int, children)):
        os.kill(pid, signal.SIGUSR2)
    time.sleep(0.3)
    text = until(stacks.read_text, what="the stacks")
    return str(text).split("\n\n")


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["threads", "gevent"])
def test_threads_of_a_worker_share_the_way_to_rabbitmq(
    site: Site, rabbit_queue: RabbitQueue, pool: str
) -> None:
    chains(site, rabbit_queue, pool, entries=5, slots=10, within=60)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("pool", POOLS)
def test_twenty_chains_of_fifty_runs_leave_no_thread_stuck(
    site: Site, rabbit_queue: RabbitQueue, record_result: Recorder, pool: str
) -> None:
    figures = chains(site, rabbit_queue, pool, entries=20, slots=50, within=600)

    record_result(f"chains on RabbitMQ: {pool}", **figures)
