"""A workload as users have it: many tasks, own arguments, several queues, and a restart after an outage.

Each scheduler first leaves state of two hours ago (``seed``), then starts and ticks until all entries are
sent (``drain``). The broker is the server of the state, or RabbitMQ.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import redis
from celery.schedules import crontab
from kombu.exceptions import OperationalError

from benchmarks.subjects.ours import NAMESPACE, ShiftedClock, scheduler_of
from benchmarks.subjects.trials import new_app, resident
from celery_catchup.store import Keys

OUTAGE = timedelta(hours=2)
TASKS = 20
QUEUES = tuple(f"{os.environ.get('BENCHMARK_QUEUE', 'benchmarks')}-{number}" for number in range(5))


def entries(count: int) -> dict[str, dict[str, Any]]:
    """Hourly entries that were due five minutes ago, each with arguments of its own."""
    minute = (datetime.now(UTC).minute - 5) % 60
    return {
        f"entry-{i}": {
            "task": f"benchmarks.mixed.task{i % TASKS}",
            "schedule": crontab(minute=str(minute)),
            "args": (i,),
            "kwargs": {"tenant": f"tenant-{i}", "path": f"s3://bucket/{i}/data"},
            "options": {"queue": QUEUES[i % len(QUEUES)], "expires": 3600},
        }
        for i in range(count)
    }


def minutes_of_one() -> dict[str, dict[str, Any]]:
    """One minutely entry."""
    return {
        "entry-0": {"task": "benchmarks.mixed.task0", "schedule": crontab(), "options": {"queue": QUEUES[0]}}
    }


class Broker:
    """Count and delete the messages of our queues."""

    def __init__(self, app: Any) -> None:
        self._connection = app.connection_for_write()
        self._channel: Any = None
        url = str(app.conf.broker_url)
        # kombu creates a client for each queue that it looks at, and this is done within the measured time.
        self._redis = redis.Redis.from_url(url) if url.startswith("redis://") else None

    def clear(self) -> None:
        for queue in QUEUES:
            self._connection.default_channel.queue_delete(queue)

    def messages(self) -> int:
        if self._redis is not None:
            return sum(int(self._redis.llen(queue)) for queue in QUEUES)
        return sum(map(self._messages, QUEUES))

    def _messages(self, queue: str) -> int:
        self._channel = self._channel or self._connection.channel()
        try:
            return int(self._channel.queue_declare(queue, passive=True).message_count)
        except (OperationalError, *self._connection.channel_errors):
            self._channel = None  # AMQP closes it
            return 0


def ours(*, url: str, folder: str, count: int, policy: Any) -> dict[str, float]:
    """Leave state of two hours ago, then restart; ``count`` 0 is one entry with a minute a slot."""
    app = _app(
        url, folder, entries(count) if count else minutes_of_one(),
        catchup_namespace=NAMESPACE, catchup_entries={"*": policy},
    )  # fmt: skip
    now = datetime.now(UTC)
    outage = OUTAGE if count else timedelta(minutes=10_080)
    before = scheduler_of(app, ShiftedClock(now - outage))
    before.tick()
    before.close()
    with redis.Redis.from_url(url) as client:
        empty = _used(client)
        memory = resident()
        begun = time.perf_counter()
        scheduler = scheduler_of(app, ShiftedClock(now))
        started = time.perf_counter() - begun
        if policy.get("overlap_policy") == "all":  # one message; the others wait in the ledger for their turn
            found = _record(scheduler.tick, client, 10_080)
        else:
            found = _drain(scheduler.tick, Broker(app), count or 10_080, patience=600)
        stored = _used(client) - empty
        while client.zcard(Keys(NAMESPACE).outbox):  # what is marked as sent only now counts as well
            scheduler.tick()
    return found | {"start": started, "memory": resident() - memory, "stored": stored / max(1, count)}


def redbeat(*, url: str, folder: str, count: int, patience: float) -> dict[str, float]:
    """celery-redbeat with its lock."""
    from redbeat.schedulers import RedBeatScheduler, RedBeatSchedulerEntry, acquire_distributed_beat_lock

    options: dict[str, Any] = {"redbeat_redis_url": url, "redbeat_redis_options": {}}
    app = _app(url, folder, entries(count), **options)

    def start() -> Any:
        scheduler = RedBeatScheduler(app)
        acquire_distributed_beat_lock(sender=SimpleNamespace(scheduler=scheduler))
        return scheduler

    before = start()
    for name in app.conf.beat_schedule:
        key = RedBeatSchedulerEntry.generate_key(app, name)
        RedBeatSchedulerEntry.from_key(key, app=app).reschedule(last_run_at=datetime.now(UTC) - OUTAGE)
    before.close()
    return _drain(start().tick, Broker(app), count, patience=patience)


def stock(*, url: str, folder: str, count: int, patience: float) -> dict[str, float]:
    """Celery's own scheduler."""
    from celery.beat import PersistentScheduler

    app = _app(url, folder, entries(count))
    file = str(Path(folder) / "schedule")
    before = PersistentScheduler(app, schedule_filename=file)
    for entry in before.schedule.values():
        entry.last_run_at = datetime.now(UTC) - OUTAGE
    before.close()
    scheduler = PersistentScheduler(app, schedule_filename=file)
    return _drain(scheduler.tick, Broker(app), count, patience=patience, every=20)


def send_task(*, url: str, folder: str, count: int) -> dict[str, float]:
    """A loop around ``send_task`` with the same tasks, arguments and queues, without confirmation."""
    app = _app(url, folder, {})
    messages = entries(count).values() if count else list(minutes_of_one().values()) * 10_080
    with app.connection_for_write() as connection:
        producer = app.amqp.Producer(connection)
        for queue in QUEUES:
            app.send_task("benchmarks.first", producer=producer, queue=queue)
        begun, cpu = time.perf_counter(), time.process_time()
        for one in messages:
            app.send_task(
                one["task"], one.get("args"), one.get("kwargs"), producer=producer, **one["options"]
            )
        seconds = time.perf_counter() - begun
    sent = len(messages)
    return {"rate": sent / seconds, "cpu": (time.process_time() - cpu) / sent}


def _app(url: str, folder: str, schedule: dict[str, Any], **settings: Any) -> Any:
    """An app on the broker, whose queues are empty; the log is at the level of ``celery beat``."""
    app = new_app(url, folder, beat_schedule=schedule, task_ignore_result=True, **settings)
    Broker(app).clear()
    return app


def _drain(
    tick: Callable[[], object], broker: Broker, count: int, *, patience: float, every: int = 1
) -> dict[str, float]:
    """Tick until all messages are with the broker, or patience ends."""
    begun, cpu, sent, ticks = time.perf_counter(), time.process_time(), 0, 0
    while sent < count and time.perf_counter() - begun < patience:
        tick()
        ticks += 1
        sent = broker.messages() if ticks % every == 0 else sent
    seconds = time.perf_counter() - begun
    return {"rate": sent / seconds, "sent": sent, "cpu": (time.process_time() - cpu) / max(1, sent)}


def _record(tick: Callable[[], object], client: Any, count: int) -> dict[str, float]:
    """Tick until all runs are in the ledger."""
    begun, cpu = time.perf_counter(), time.process_time()
    while client.zcard(Keys(NAMESPACE).runs) < count:
        tick()
    return {"rate": count / (time.perf_counter() - begun), "cpu": (time.process_time() - cpu) / count}


def _used(client: Any) -> int:
    return int(client.info("memory")["used_memory"])
