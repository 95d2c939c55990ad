"""Entries created at run time, one for each customer, beside the same entries in the settings."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

import redis

import celery_catchup
from benchmarks.counting import CountingProxy
from benchmarks.subjects.ours import NAMESPACE, POLICY, ShiftedClock, scheduler_of
from benchmarks.subjects.trials import TASK, new_app, peak, resident
from celery_catchup.flower.operators import operator_of
from celery_catchup.stored_entries.entries import MOST_ENTRIES

_CREATED = 200
_LOOKS = 5


def customers(count: int) -> dict[str, dict[str, Any]]:
    """Hourly entries at different minutes of the second half of the hour; every beat here starts before."""
    return {
        f"customers/{i:06}": {
            "task": TASK,
            "schedule": f"{31 + i % 29} * * * *",
            "kwargs": {"customer": i, "path": f"s3://bucket/{i}"},
            "options": {"queue": f"queue{i % 5}"},
        }
        for i in range(count)
    }


def _half_past() -> datetime:
    return datetime.now(UTC).replace(minute=30, second=5, microsecond=0)


def _app(url: str, folder: str, kind: str, count: int) -> Any:
    declared = {"beat_schedule": customers(count), "catchup_entries": {"*": POLICY}}
    return new_app(url, folder, catchup_namespace=NAMESPACE, **(declared if kind == "declared" else {}))


def _entries(url: str, folder: str, *, minutes: int) -> Any:
    """The stored entries, changed some minutes before the beats start."""
    entries = celery_catchup.entries(_app(url, folder, "stored", 0), actor="benchmark")
    type(entries).clock = ShiftedClock(_half_past() - timedelta(minutes=minutes))
    return entries


def fill(*, url: str, folder: str, count: int) -> dict[str, float]:
    """Store the entries in calls as large as they may be."""
    entries = _entries(url, folder, minutes=20)
    sets = [{**fields, "name": name, "catchup": POLICY} for name, fields in customers(count).items()]
    with redis.Redis.from_url(url) as client:
        begun, cpu, server = time.perf_counter(), time.process_time(), _server_cpu(client)
        for first in range(0, count, MOST_ENTRIES):
            entries.apply(sets[first : first + MOST_ENTRIES])
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
        server = _server_cpu(client) - server
    # One waits for the other, so on a machine with nothing else to do this is the time that passes.
    return {"rate": count / seconds, "cpu_rate": count / (cpu + server), "server_cpu": server}


def _server_cpu(client: Any) -> float:
    found: Any = client.info("cpu")
    return float(found["used_cpu_user"] + found["used_cpu_sys"])


def create(*, url: str, folder: str, count: int) -> dict[str, float]:
    """Create single entries beside those that are there."""
    entries = _entries(url, folder, minutes=15)
    seconds, cpu = [], time.process_time()
    for number in range(_CREATED):
        begun = time.perf_counter()
        entries.create(
            f"more/{number}", task=TASK, schedule={"cron": "7 * * * *"}, kwargs={"customer": number},
            catchup=POLICY,
        )  # fmt: skip
        seconds.append(time.perf_counter() - begun)
    cpu = (time.process_time() - cpu) / _CREATED
    for number in range(_CREATED):
        entries.delete(f"more/{number}")
    return {"create": median(seconds), "create_cpu": cpu}


def seed(*, url: str, folder: str, kind: str, count: int) -> None:
    """Leave the state of a beat that knew the entries ten minutes ago."""
    clock = ShiftedClock(_half_past() - timedelta(minutes=10))
    before = scheduler_of(_app(url, folder, kind, count), clock)
    before.tick()
    while not (engine := before._work.engine).entries.settled(engine.now()):
        before.tick()  # the first slots of new entries are decided a few hundred at a time
    before.close()


def start(*, url: str, folder: str, kind: str, count: int, ticks: int) -> dict[str, float]:
    """Start until the end of the first tick, then stand idle."""
    memory = resident()
    with CountingProxy(url) as proxy:
        app = _app(proxy.url, folder, kind, count)
        begun, cpu = time.perf_counter(), time.process_time()
        scheduler = scheduler_of(app, ShiftedClock(_half_past()))
        scheduler.tick()
        found = {"startup": time.perf_counter() - begun, "startup_cpu": time.process_time() - cpu}
        assert len(scheduler.schedule) >= count
        trips, idle = [], []
        for _ in range(ticks):
            before, at = proxy.so_far().trips, time.process_time()
            scheduler.tick()
            trips.append(proxy.so_far().trips - before)
            idle.append(time.process_time() - at)
    found |= {"trips": median(trips), "idle_cpu": median(idle)}
    return found | {"memory": resident() - memory, "peak": peak() - memory}


def pages(*, url: str, folder: str, count: int) -> dict[str, float]:
    """Ask a Flower in this process for pages of its tab, once it knows the entries."""
    from tests.integration.flowers import flower

    app = _app(url, folder, "stored", count)
    begun = time.process_time()
    operator_of(app)
    found = {"open_cpu": time.process_time() - begun}
    with flower(app) as site:
        paths = {
            "page": "/catchup",
            "later": f"/catchup?offset={count // 2}",
            "search": f"/catchup?search=customers/{count - 1:06}",
            "prefix": f"/catchup?prefix=customers/{count // 2000:03}&sort=next",
            "stored": "/catchup/entries?search=customers",
            "entry": f"/catchup/entry?entry=customers/{count // 2:06}",
            "api": "/api/catchup/v1/entries?prefix=customers",
        }
        for what, path in paths.items():
            times, spent = [], []
            for _ in range(_LOOKS):
                begun, cpu = time.perf_counter(), time.process_time()
                answer = site.ask(path)
                times.append(time.perf_counter() - begun)
                spent.append(time.process_time() - cpu)
                assert answer.status == 200, (path, answer.status, answer.text[:500])
            found |= {what: median(times), f"{what}_cpu": median(spent)}
    return found
