"""What every scheduler goes through, in this order: start, idle, one due, all due."""

from __future__ import annotations

import gc
import os
import resource
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import redis
from celery import Celery
from celery.schedules import crontab

from benchmarks.counting import CountingProxy

TASK = "benchmarks.project.nothing"
QUEUE = "celery"
LONG_AGO = timedelta(hours=3)


class Contestant(Protocol):
    """A scheduler, and how its entries are made due."""

    scheduler: Any
    sends_all_in_a_tick: bool

    def start(self) -> None:
        """Build the scheduler as ``celery beat`` does, banner and all."""

    def one_due(self, index: int) -> None:
        """Make one entry due, whatever that takes; its tick is what is measured."""

    def all_due(self) -> int:
        """Make all entries due; how many that are."""


def new_app(url: str, folder: str, **settings: Any) -> Celery:
    """An app that logs to a file, at the level that beat has by default."""
    broker = os.environ.get("BENCHMARK_BROKER")
    place = (
        {"catchup_redis_url": url, "task_default_queue": os.environ.get("BENCHMARK_QUEUE")} if broker else {}
    )
    app = Celery("benchmarks", broker=broker or url, set_as_current=True)
    app.conf.update(result_expires=None, **{**place, **settings})
    app.log.setup(loglevel="WARNING", logfile=str(Path(folder) / "log"), redirect_stdouts=False)
    return app


def hourly(count: int) -> dict[str, dict[str, Any]]:
    """Hourly entries, none of which is due in the next twenty minutes."""
    minute = datetime.now(UTC).minute
    return {
        f"entry-{i}": {"task": TASK, "schedule": crontab(minute=str((minute + 20 + i % 20) % 60))}
        for i in range(count)
    }


def contest(
    make: Callable[[], Contestant], *, url: str, ticks: int, birds: int, patience: float
) -> dict[str, float]:
    """All measurements of one scheduler with so many entries; ``make`` declares them."""
    memory = resident()
    one = make()
    begun = time.perf_counter()
    one.start()
    built = time.perf_counter()
    one.scheduler.tick()
    ready = time.perf_counter()
    found = {"build": built - begun, "startup": ready - begun}
    found["idle"] = median(timed(one.scheduler.tick) for _ in range(ticks))
    found["memory"] = resident() - memory
    found["one"] = median([_bird(one, index) for index in range(birds)])
    found |= _all(one, url, patience)
    found["peak"] = peak() - memory
    return found


def counted(make: Callable[[str], Contestant], *, url: str, ticks: int, birds: int) -> dict[str, float]:
    """Round trips, bytes and commands of an idle tick, and of a tick with one entry due; ``make`` is
    given the address to connect to."""
    with CountingProxy(url) as proxy, redis.Redis.from_url(url) as client:
        one = make(proxy.url)
        one.start()
        one.scheduler.tick()
        idle = [_cost(one.scheduler.tick, proxy, client) for _ in range(ticks)]
        due = []
        for index in range(birds):
            one.one_due(index)
            due.append(_cost(one.scheduler.tick, proxy, client))
    # The first entry that is sent also connects to the broker and loads scripts: the median is of the others.
    return {
        f"{kind}_{name}": median(cost[name] for cost in costs)
        for kind, costs in (("idle", idle), ("one", due))
        for name in ("trips", "bytes", "commands")
    }


def _cost(tick: Callable[[], object], proxy: CountingProxy, client: Any) -> dict[str, float]:
    client.config_resetstat()
    before = proxy.so_far()
    tick()
    passed = proxy.so_far() - before
    stats = client.info("commandstats")
    asked = sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("info", "config|resetstat"))
    commands = sum(one["calls"] for one in stats.values()) - asked
    return {"trips": passed.trips, "bytes": passed.bytes, "commands": commands}


def _bird(one: Contestant, index: int) -> float:
    one.one_due(index)
    return timed(one.scheduler.tick)


def _all(one: Contestant, url: str, patience: float) -> dict[str, float]:
    with redis.Redis.from_url(url) as client:
        client.delete(QUEUE)
        return drain(
            one.scheduler.tick, one.all_due(), client, patience, every=1 if one.sends_all_in_a_tick else 20
        )


def drain(
    tick: Callable[[], object], count: int, client: Any, patience: float, *, every: int = 1
) -> dict[str, float]:
    """Tick until so many messages are in the queue, or patience is at its end; ``every`` how many
    ticks the queue is looked at."""
    gc.collect()
    begun, cpu, ticks = time.perf_counter(), time.process_time(), 0
    while True:
        tick()
        ticks += 1
        elapsed = time.perf_counter() - begun
        if elapsed > patience or ((ticks % every == 0 or ticks >= count) and client.llen(QUEUE) >= count):
            break
    sent = client.llen(QUEUE)
    return {
        "sent": sent,
        "rate": sent / elapsed,
        "cpu": (time.process_time() - cpu) / max(1, sent),
        "seconds": elapsed,
        "ticks": ticks,
    }


def timed(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def resident() -> int:
    """Bytes of memory that this process has now; where the system does not tell, the most it ever had."""
    gc.collect()
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return peak()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) * 1024


def peak() -> int:
    """The most bytes that this process ever had."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
