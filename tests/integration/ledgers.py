"""Ledgers of any size, written as the scripts would have written them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

from celery_catchup.model import Instant, RunState, SkipReason, Slot, Trigger, run_id
from celery_catchup.operations import Operator
from celery_catchup.store import Backfill

HOUR = 3_600_000
_TRIGGERS = (*[Trigger.SCHEDULER] * 8, Trigger.CATCHUP, Trigger.BACKFILL)


def new_backfill(fields: Mapping[str, Any]) -> Backfill:
    """Return a backfill with these fields and an id of its own."""
    return Backfill(id=secrets.token_hex(4), **fields)


def fill(operator: Operator, *, runs_each: int, dead_every: int = 50, every: int = HOUR) -> int:
    """Give every entry its last runs, some of them dead, a span of skips, its hours; how many runs."""
    now = operator.now()
    last = now - now % every
    pipe, keys = operator.store.client.pipeline(transaction=False), operator.store.keys
    made = 0
    pipe.hset(keys.scheduler, mapping={"watermark": now, "last_tick": now})
    pipe.hset(keys.meta, "schema", 1)
    for number, name in enumerate(operator.schedule):
        first = last - runs_each * every
        for column in ("first_seen", "anchors"):
            pipe.hset(getattr(keys, column), name, first - every)
        pipe.hset(keys.decided, name, last)
        for back in range(runs_each):
            slot = last - back * every
            made += 1
            record = _record(name, slot, made, dead=made % dead_every == 0, every=every)
            identity = run_id("proj", name, Slot(slot))
            pipe.hset(keys.ledger, identity, json.dumps(record, separators=(",", ":")))
            pipe.zadd(keys.runs, {identity: slot})
            pipe.zadd(keys.runs_of(name), {identity: slot})
            pipe.zadd(keys.ended, {identity: slot + 5000})
            if record["state"] == RunState.DEAD:
                pipe.zadd(keys.dead, {identity: slot + 5000})
                pipe.hset(keys.letters, identity, json.dumps({"type": "KeyError", "category": "permanent"}))
        skip = {
            "schedule": 0,
            "first": first - 5 * every,
            "last": first,
            "count": 6,
            "reason": SkipReason.EXPIRED,
        }
        pipe.zadd(keys.skips(name), {json.dumps(skip): first})
        pipe.hset(keys.hours_of(name), mapping=_hours(now, 1 + runs_each * every // HOUR))
        if number % 20 == 0:
            pipe.execute()
    pipe.hset(keys.hours, mapping=_hours(now, 192))
    pipe.execute()
    return made


def _record(name: str, slot: Instant, number: int, *, dead: bool, every: int) -> dict[str, Any]:
    return {
        "entry": name,
        "task": "proj.etl",
        "schedule": 0,
        "slot": slot,
        "previous": slot - every,
        "trigger": str(_TRIGGERS[number * every // HOUR % len(_TRIGGERS)]),
        "template": "0" * 24,
        "state": str(RunState.DEAD if dead else RunState.SUCCEEDED),
        "attempt": 1,
        "sends": 1,
        "created": slot + 100,
        "queued": slot + 100,
        "started": slot + 1000,
        "attempt_started": slot + 1000,
        "finished": slot + 5000,
        "worker": "celery@host-1",
        **({"error": "KeyError: 'x'"} if dead else {}),
    }


def _hours(now: Instant, count: int) -> dict[str, str]:
    hour = now // HOUR
    return {
        str(at % 192): json.dumps({"hour": at, "scheduler": 1, "catchup": 1, "missed": 1, "lag": 1000})
        for at in range(hour - min(count, 192) + 1, hour + 1)
    }
