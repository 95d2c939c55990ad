"""The limits: a loop around ``send_task``, and a client that pushes ready-made bytes."""

from __future__ import annotations

import time
from typing import Any

import redis
from celery import chain

from benchmarks.subjects.trials import QUEUE, TASK, new_app
from celery_catchup.model import to_rfc3339

_PART = 500


def send_task(*, url: str, folder: str, count: int, task: str = TASK) -> dict[str, float]:
    """What Celery needs to send so many messages, one after the other."""
    app = new_app(url, folder)
    app.send_task(task, queue=f"{app.conf.task_default_queue}-first")  # it connects
    begun, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        app.send_task(task)
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    app.pool.force_close_all()  # a broker may drop what it has not read of a connection that just ends
    return {"rate": count / seconds, "seconds": seconds, "cpu": cpu / count}


def pipeline(*, url: str, folder: str, count: int) -> dict[str, Any]:
    """What a client needs to push the very bytes that are in the queue, several hundred at a time."""
    with redis.Redis.from_url(url) as client:
        found: Any = client.lrange(QUEUE, 0, -1)
        messages = (found * (count // len(found) + 1))[:count]
        begun = time.perf_counter()
        for start in range(0, count, _PART):
            with client.pipeline(transaction=False) as pipe:
                for message in messages[start : start + _PART]:
                    pipe.lpush("benchmarks:copy", message)
                pipe.execute()
        seconds = time.perf_counter() - begun
        client.delete("benchmarks:copy")
    size = sum(map(len, messages)) / count
    return {"rate": count / seconds, "seconds": seconds, "bytes": size}


def native_chain(*, url: str, folder: str, count: int, task: str, slots: bool) -> dict[str, float]:
    """Celery's own chain: one message that carries all that is to follow; with ``slots`` each link tells its
    task for which of them it runs, as a run does."""
    app = new_app(url, folder, task_ignore_result=True)

    def link(minute: int) -> Any:
        told = {"scheduled_time": to_rfc3339(minute * 60_000), "is_catchup": True}
        signature = app.signature(task, immutable=True)
        return signature.set(headers=told) if slots else signature

    begun = time.perf_counter()
    chain(*(link(minute) for minute in range(count)), app=app).apply_async()
    seconds = time.perf_counter() - begun
    app.pool.force_close_all()
    return {"seconds": seconds}
