"""The questions that people ask of a ledger."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import redis
from celery.schedules import crontab

from benchmarks.subjects.ours import NAMESPACE, ShiftedClock, scheduler_of
from benchmarks.subjects.trials import TASK, new_app, timed
from celery_catchup.model import RunState
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.previews import preview
from celery_catchup.operations.runs import list_runs, show_run
from celery_catchup.operations.status import status
from celery_catchup.store import Actor, Keys, Origin
from celery_catchup.store.listing import IDS_LOOKED_AT

_PART = 5_000
_MINUTE = 60_000
# Copies one record under many ids, which is a hundred times as fast as sending each.
_COPY = """
local first, last = tonumber(ARGV[1]), tonumber(ARGV[2])
local newest, entries = tonumber(ARGV[3]), tonumber(ARGV[4])
for number = first, last do
  local entry = 'entry-' .. (number % entries)
  local id = string.format('%08x-0000-5000-8000-%012x', (number * 2654435761) % 4294967296, number)
  local slot = newest - math.floor(number / entries) * 60000
  local record = cjson.decode(ARGV[5])
  record.entry, record.slot = entry, slot
  redis.call('HSET', KEYS[1], id, cjson.encode(record))
  redis.call('ZADD', KEYS[2], slot, id)
  redis.call('ZADD', KEYS[3], slot, id)
  redis.call('ZADD', KEYS[4] .. entry, slot, id)
end
"""


def _app(url: str, folder: str, entries: int) -> Any:
    return new_app(
        url,
        folder,
        beat_schedule={f"entry-{i}": {"task": TASK, "schedule": crontab()} for i in range(entries)},
        catchup_entries={"*": {"window": "7d", "overlap_policy": "all"}},
        catchup_namespace=NAMESPACE,
    )


def fill(*, url: str, folder: str, runs: int, entries: int) -> None:
    """A ledger of ended runs up to an hour ago; they look like one that a beat has made."""
    then = datetime.now(UTC).replace(second=5, microsecond=0) - timedelta(hours=1)
    clock = ShiftedClock(then - timedelta(minutes=1))
    beat = scheduler_of(_app(url, folder, entries), clock)
    beat.tick()
    clock.set(then)
    beat.tick()
    beat.close()
    keys = Keys(NAMESPACE)
    with redis.Redis.from_url(url) as client:
        found: Any = client.hvals(keys.ledger)
        record = found[0].replace(b'"queued"', b'"succeeded"', 1)
        newest = int(then.timestamp() // 60) * _MINUTE - _MINUTE
        of_entry = keys.runs_of("")
        for first in range(0, runs, _PART):
            last = min(runs, first + _PART) - 1
            client.eval(
                _COPY, 4, keys.ledger, keys.runs, keys.ended, of_entry, first, last, newest, entries, record
            )


def look(*, url: str, folder: str, runs: int, entries: int) -> dict[str, float]:
    """Seconds for each question, the first time it is asked."""
    with redis.Redis.from_url(url) as client:
        place = min(runs, IDS_LOOKED_AT) // 2  # ids are searched for among so many of the newest
        found: Any = client.zrevrange(Keys(NAMESPACE).runs, place, place)
    middle = found[0].decode()
    long_ago = datetime.fromtimestamp(time.time() - 86400, UTC)
    operator = Operator(_app(url, folder, entries), actor=Actor("benchmark", Origin.PYTHON))
    operator.store.client.ping()
    questions: dict[str, Callable[[], object]] = {
        "runs: the newest 50": lambda: list_runs(operator),
        "runs: 50 of one entry": lambda: list_runs(operator, ["entry-1"]),
        "runs: 50 from a day ago": lambda: list_runs(operator, until=long_ago),
        "runs: those that failed (none did)": lambda: list_runs(operator, states=[RunState.FAILED]),
        "a run by the beginning of its id": lambda: show_run(operator, middle[:13]),
        "status": lambda: status(operator),
        "preview of one entry, an hour missed": lambda: preview(operator, ["entry-1"]),
        f"preview of all {entries} entries": lambda: preview(operator),
    }
    return {what: timed(question) for what, question in questions.items()}
