"""Fleets that are slow or stopped, on real processes; hours pass by moving what the store has noted."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count, pairwise
from typing import Any

from celery_catchup.model import to_instant
from tests.acceptance.processes import Process, until
from tests.acceptance.sites import LEADING, Site, at
from tests.chaos.oracle import text

ENTRY = "chain"
FIRST = "00:00:30"
MINUTE = 60_000

_LET_PASS = """
local ms = tonumber(ARGV[1])
local shifted = 0
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local run = cjson.decode(redis.call('HGET', KEYS[2], id))
  if run.state == 'queued' then
    redis.call('ZINCRBY', KEYS[1], -ms, id)
    for _, field in ipairs({ 'sent', 'expires', 'queued' }) do
      if run[field] then run[field] = run[field] - ms end
    end
    redis.call('HSET', KEYS[2], id, cjson.encode(run))
    shifted = shifted + 1
  end
end
for _, worker in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
  redis.call('ZINCRBY', KEYS[3], -ms, worker)
end
for _, key in ipairs({ KEYS[4], KEYS[5] }) do
  local fields = redis.call('HGETALL', key)
  for i = 1, #fields, 2 do
    local at = tonumber(fields[i + 1])
    if at then redis.call('HSET', key, fields[i], string.format('%.0f', at - ms)) end
  end
end
return shifted
"""
"""To the leader the same as letting time pass: what the store has noted of runs that wait, of workers that
were seen and of messages that were claimed was so much longer ago. Leases of runs that are executed stay:
their workers would have renewed them."""


@dataclass
class SlowFleet:
    """One entry, caught up by one fleet of workers."""

    site: Site
    slots: int
    seconds: float
    policy: str

    def __post_init__(self) -> None:
        self._names = (f"slow{number}@%h" for number in count())
        self.first = datetime.fromisoformat(at("00:01:00"))
        self.last = self.first + timedelta(minutes=self.slots - 1)

    def begin(self, **settings: Any) -> None:
        """Let the scheduler miss all slots, and decide them at once when it is back."""
        entry = {"schedule": "* * * * *", "kwargs": {"seconds": self.seconds}}
        policy = {
            "window": "2d",
            "overlap_policy": self.policy,
            "end_date": f"{self.last:%Y-%m-%dT%H:%M:%SZ}",
        }
        self.site.declare(
            {ENTRY: entry},
            catchup_entries={ENTRY: policy},
            imports=["celery_catchup.worker"],
            catchup_poll_interval="50ms",
            **settings,
        )
        self.site.set_clock(FIRST)
        before = self.site.leader()
        self.site.until_a_tick_later()
        before.stop()
        self.site.offset += timedelta(minutes=self.slots + 5)
        self.beat = self.site.beat()
        self.beat.until_it_says(LEADING)
        until(lambda: len(self.site.ledger(ENTRY)) == self.slots, what="all runs", within=60)

    def worker(self, *arguments: str) -> Process:
        return self.site.worker(*arguments, "-n", next(self._names))

    def let_pass(self, *, minutes: float) -> None:
        """Let so much time pass for whoever waits, and let the leader look at it."""
        keys = self.site.keys
        names = (keys.leases, keys.ledger, keys.workers, keys.consumers, keys.drained)
        self.site.redis.eval(_LET_PASS, len(names), *names, str(round(minutes * MINUTE)))
        self.site.until_a_tick_later()

    # -- looking -----------------------------------------------------------------------------

    def ended(self) -> int:
        return sum(line[0] == "end" for line in self._lines())

    def until_ended(self, number: int, *, within: float = 60.0) -> None:
        until(lambda: self.ended() >= number, what=f"{number} executions", within=within)

    def until_recorded(self) -> None:
        until(lambda: self.states()["running"] == 0, what="all ends on record")

    def states(self) -> Counter[str]:
        return Counter(
            run["state"] + (" unreported" if run.get("unreported") else "") for run in self.site.ledger(ENTRY)
        )

    def check(self) -> None:
        """Every slot was executed once, in order, one at a time, and is recorded so; no copy was sent."""
        expected = [text(self.first + timedelta(minutes=number)) for number in range(self.slots)]
        lines = self._lines()
        assert [slot for what, slot, *_ in lines if what == "begin"] == expected
        whats = [what for what, *_ in lines]
        overlaps = [
            slot
            for (one, _), (what, (_, slot, *_)) in pairwise(zip(whats, lines, strict=True))
            if one == what
        ]
        assert not overlaps, f"two at once: {overlaps[:10]}"
        assert self.states() == Counter(succeeded=self.slots)
        copies = [run["slot"] for run in self.site.ledger(ENTRY) if run["sends"] != 1]
        assert not copies, f"sent again: {copies[:10]}"
        assert to_instant(self.last) == max(run["slot"] for run in self.site.ledger(ENTRY))

    def _lines(self) -> list[list[Any]]:
        return [json.loads(line) for line in self.site._notes()]
