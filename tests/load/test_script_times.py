"""How long the server is kept from its other clients by our longest script, at the sizes that we promise."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery
from celery.schedules import crontab

from celery_catchup.beat.scheduler import Scheduler
from celery_catchup.model import RunState
from celery_catchup.store import Keys, Leases, Store
from celery_catchup.store.connection import RedirectedRedis
from celery_catchup.store.store import all_scripts
from celery_catchup.testing import FakeClock
from tests.results import Recorder

LONGEST_MS = 50
KEYS = Keys("proj")
WAITING = """
for number = tonumber(ARGV[1]), tonumber(ARGV[2]) - 1 do
  local id = string.format('%08d-0000-5000-8000-%012d', number, tonumber(ARGV[5]))
  local at = tonumber(ARGV[3]) + number * 1000
  redis.call('HSET', KEYS[1], id, (string.gsub(ARGV[4], '"@"', string.format('%d', at))))
  redis.call('ZADD', KEYS[2], at, id)
  redis.call('ZADD', KEYS[3], at, id)
  redis.call('ZADD', KEYS[4], at, id)
end
"""
"""Waiting runs of one entry, a second apart."""


def waiting(client: redis.Redis, number: int, *, runs: int, first: int, template: str) -> None:
    entry = f"etl-{number}"
    record = {"entry": entry, "task": "proj.etl", "schedule": 0, "trigger": "catchup", "template": template}
    record |= {"state": "waiting", "attempt": 1, "sends": 0, "slot": "@", "created": "@"}
    names = (KEYS.ledger, KEYS.runs, KEYS.runs_of(entry), KEYS.chain(entry))
    for begin in range(0, runs, 10_000):
        end = min(begin + 10_000, runs)
        client.eval(WAITING, len(names), *names, begin, end, first, json.dumps(record), number)


class Watch:
    """Which of our scripts kept the server busy, and for how long at most.

    What counts is the time that the server's thread was on a processor, reading the command included:
    on a machine that others use as well, the clock on the wall would tell of them.
    """

    def __init__(self, client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
        info: Any = client.info("server")
        self._spent = Path(f"/proc/{info['process_id']}/task/{info['process_id']}/schedstat")
        self._client = client
        self._watching = False
        self.longest: defaultdict[str, float] = defaultdict(float)
        call, start = Store.call, Store.start

        def note(name: str, before: float) -> None:
            if self._watching:
                self.longest[name] = max(self.longest[name], self._on_processor() - before)

        def watched(store: Store, name: str, *args: Any, **more: Any) -> Any:
            before = self._on_processor()
            try:
                return call(store, name, *args, **more)
            finally:
                note(name, before)

        def watched_later(store: Store, name: str, *args: Any, **more: Any) -> Any:
            before = self._on_processor()
            started = start(store, name, *args, **more)
            answer = started.answer

            def answered() -> Any:
                try:
                    return answer()
                finally:
                    note(name, before)

            vars(started)["answer"] = answered
            return started

        monkeypatch.setattr(Store, "call", watched)
        monkeypatch.setattr(Store, "start", watched_later)

    def begin(self) -> None:
        for script in all_scripts().values():  # compiling one is not what is measured
            self._client.script_load(script.text)
        self._watching = True

    def end(self) -> None:
        self._watching = False

    def _on_processor(self) -> float:
        """Milliseconds so far."""
        return int(self._spent.read_text().split()[0]) / 1e6


class Beats:
    """Real schedulers, one after the other, on a clock of the test's own."""

    def __init__(self, url: str, schedule: dict[str, Any], **settings: Any) -> None:
        self.clock = FakeClock(datetime.now(UTC).replace(second=30, microsecond=0))
        self._url, self._schedule, self._settings = url, schedule, settings
        self.scheduler: Any = None

    def start(self, policy: object) -> Any:
        self.stop()
        app = Celery("proj", broker=self._url, set_as_current=False)
        app.conf.update(beat_schedule=self._schedule, catchup_entries={"*": policy}, result_expires=None)
        app.conf.update(self._settings)
        self.scheduler = type("Beat", (Scheduler,), {"clock": self.clock})(app)
        self.settle()
        return self.scheduler

    def settle(self, most: int = 3000) -> None:
        for _ in range(most):
            if self.scheduler.tick() > 0:
                break

    def stop(self) -> None:
        if self.scheduler is not None:
            self.scheduler.close()
            self.scheduler = None


def entries(count: int, **more: Any) -> dict[str, Any]:
    entry = {"task": "proj.etl", "schedule": crontab(), **more}
    return {f"etl-{number}": entry for number in range(count)}


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with RedirectedRedis.from_url(redis_url, socket_timeout=120) as found:
        yield found


@pytest.fixture
def watch(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(client, monkeypatch)


def release_a_backlog(url: str, client: redis.Redis, watch: Watch, *, runs: int) -> None:
    """Waiting runs of three entries, whose policy is then changed to start all of them at once."""
    beats = Beats(url, entries(3))
    beats.start({"window": "29d", "overlap_policy": "all"})
    beats.clock.advance(minutes=1)
    beats.settle()
    (template, *_) = client.hkeys(KEYS.templates)
    first = int(beats.clock.now().timestamp()) * 1000 - 14 * 24 * 3_600_000
    for number in range(3):
        waiting(client, number, runs=runs // 3, first=first, template=template.decode())
    watch.begin()
    beats.start({"window": "29d", "overlap_policy": "allow"})
    beats.clock.advance(minutes=1)
    beats.settle()
    leases = Leases(Store(client, "proj"), ttl_ms=60_000)
    while client.zcard(KEYS.unreleased):
        beats.clock.advance(seconds=1)
        beats.scheduler.tick()
        for run_id in client.zrange(KEYS.active("etl-0"), 0, 0):
            leases.claim(run_id.decode(), owner="w", task="proj.etl", worker="w", entry="etl-0")
            leases.finish(run_id.decode(), owner="w", entry="etl-0", state=RunState.SUCCEEDED)
        client.delete("celery")
    beats.stop()
    assert sum(client.zcard(KEYS.chain(f"etl-{number}")) for number in range(3)) == 0


def adopt_and_tick(url: str, client: redis.Redis, watch: Watch, *, count: int) -> None:
    """A first start with many entries, a restart, and a slot of all of them."""
    client.flushdb()
    beats = Beats(url, entries(count), catchup_batch_size=1000)
    watch.begin()
    beats.start({"window": "6h", "overlap_policy": "all"})
    beats.start({"window": "6h", "overlap_policy": "all"})
    beats.clock.advance(minutes=1)
    beats.settle()
    beats.stop()
    assert client.hlen(KEYS.first_seen) == client.hlen(KEYS.ledger) == count


def send_large_arguments(url: str, client: redis.Redis, watch: Watch, *, slots: int) -> None:
    """A catch-up of runs with two megabytes each, at once and in a chain."""
    for policy in ("allow", "all"):
        client.flushdb()
        beats = Beats(url, entries(2, kwargs={"blob": "x" * 2_000_000}))
        watch.begin()
        beats.start({"window": "1d", "overlap_policy": policy})
        beats.stop()
        beats.clock.advance(minutes=slots)
        beats.start({"window": "1d", "overlap_policy": policy})
        leases = Leases(Store(client, "proj"), ttl_ms=60_000)
        for run_id in client.zrange(KEYS.active("etl-0"), 0, 3):
            leases.claim(run_id.decode(), owner="w", task="proj.etl", worker="w", entry="etl-0")
            leases.finish(run_id.decode(), owner="w", entry="etl-0", state=RunState.SUCCEEDED)
        beats.settle()
        beats.stop()
        assert client.hlen(KEYS.ledger) == 2 * slots


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_no_script_takes_longer_than_fifty_milliseconds(
    redis_url: str, client: redis.Redis, watch: Watch, record_result: Recorder
) -> None:
    release_a_backlog(redis_url, client, watch, runs=1_000_000)
    watch.end()
    adopt_and_tick(redis_url, client, watch, count=100_000)
    watch.end()
    send_large_arguments(redis_url, client, watch, slots=30)
    watch.end()
    record_result(
        "the longest script",
        **{f"{name}_ms": round(longest, 1) for name, longest in sorted(watch.longest.items())},
    )

    assert max(watch.longest.values()) < LONGEST_MS, dict(watch.longest)
