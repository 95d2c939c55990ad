"""A ledger of a million runs: ticks, lists and the forgetting of runs take as long as with a few."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from statistics import median
from typing import Any

import pytest
import redis

from celery_catchup.operations import Operator
from celery_catchup.operations.runs import list_runs
from celery_catchup.operations.status import status
from celery_catchup.store import Actor, Keys, Origin
from celery_catchup.testing import FakeClock
from tests.integration.servers import a_scheduler
from tests.results import Recorder

DAY = 24 * 60 * 60 * 1000
FILL = """
for number = tonumber(ARGV[1]), tonumber(ARGV[2]) - 1 do
  local id = string.format('%08d-0000-5000-8000-%012d', number, tonumber(ARGV[3]) % 1000000)
  local at = tonumber(ARGV[3]) + number
  redis.call('HSET', KEYS[1], id, (string.gsub(ARGV[4], '"@"', string.format('%d', at))))
  redis.call('ZADD', KEYS[2], at, id)
  redis.call('ZADD', KEYS[3], at, id)
  redis.call('ZADD', KEYS[4], at, id)
end
"""
"""Ended runs of one entry, a millisecond apart, made by the server itself: a million in some seconds."""


def fill(client: redis.Redis, keys: Keys, *, runs: int, first: int) -> None:
    moments = ("slot", "created", "queued", "started", "attempt_started", "finished")
    record = {"entry": "etl", "task": "proj.etl", "schedule": 0, "trigger": "scheduler", "template": "t"}
    record |= {"state": "succeeded", "attempt": 1, "sends": 1, "worker": "celery@worker"}
    record |= dict.fromkeys(moments, "@")
    names = (keys.ledger, keys.runs, keys.runs_of("etl"), keys.ended)
    for begin in range(0, runs, 10_000):
        end = min(begin + 10_000, runs)
        client.eval(FILL, len(names), *names, begin, end, first, json.dumps(record))


def in_ms(call: Callable[[], Any], times: int = 20) -> float:
    """How long it takes, as a rule."""
    seconds = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
    return median(seconds) * 1000


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_million_runs_cost_as_little_as_a_few(redis_url: str, record_result: Recorder) -> None:
    runs, keys = 1_000_000, Keys("proj")
    clock = FakeClock(datetime.now(UTC))
    with (
        redis.Redis.from_url(redis_url) as client,
        a_scheduler(redis_url, clock) as scheduler,
    ):
        scheduler.tick()
        operator = Operator(scheduler.app, actor=Actor("tester", Origin.PYTHON))
        work = {
            "tick": scheduler.tick,
            "list": lambda: list_runs(operator, limit=50),
            "status": lambda: status(operator),
        }
        server_ms = int(client.time()[0]) * 1000
        fill(client, keys, runs=1000, first=server_ms - DAY)
        few = {name: in_ms(call) for name, call in work.items()}
        before: Any = client.info("memory")
        # One half is older than the ledger keeps (30 days), one is not; a millisecond apart.
        fill(client, keys, runs=runs, first=server_ms - 30 * DAY - runs // 2)
        after: Any = client.info("memory")
        many = {name: in_ms(call) for name, call in work.items()}
        clock.advance(minutes=2)
        left, ticks, longest = client.zcard(keys.ended), 0, 0.0
        scheduler._work.engine.housekeeping._swept_at = 0  # a minute has passed on the server
        while client.zcard(keys.ended) > runs // 2 + 1000 and ticks < 2 * runs // 500:
            begun = time.perf_counter()
            scheduler.tick()
            longest, ticks = max(longest, time.perf_counter() - begun), ticks + 1
        forgotten = left - client.zcard(keys.ended)
        operator.close()
    record_result(
        "a ledger of a million runs",
        **{f"{name}_ms": f"{many[name]:.1f} (with a few: {few[name]:.1f})" for name in work},
        bytes_a_run=round((after["used_memory"] - before["used_memory"]) / runs),
        forgotten=forgotten,
        in_ticks=ticks,
        longest_tick_ms=round(longest * 1000),
    )

    for name in work:
        assert many[name] < 5 * few[name] + 20, name
    assert forgotten >= runs // 2
    assert longest < 1.0
