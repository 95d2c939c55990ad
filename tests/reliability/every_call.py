"""Every call to the store × everything that can become of it.

A scenario is played once to count its calls, then once more for each call and each outcome: the
server refuses, is cut off before or after it has executed the command, or does not answer in time.
Afterwards the scenario goes on, as beats, workers and operators do, and has to end as it should.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import redis
from celery import Celery
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    MasterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from celery_catchup.model import RunState, to_instant
from celery_catchup.operations import Operator
from celery_catchup.operations.status import status
from celery_catchup.store import Actor, Origin
from celery_catchup.store.connection import STORE_FAILS
from celery_catchup.store.leases import ClaimOutcome, ReportOutcome
from celery_catchup.testing import FakeClock
from tests.integration.beats import Beat
from tests.integration.ledgers import new_backfill
from tests.integration.servers import a_scheduler

NINE, TEN, NOON = "2026-02-07T09:04:00Z", "2026-02-07T10:00:00Z", "2026-02-07T12:00:30Z"
TRIES = 14
"""Ticks after which a scenario has to be over; one that is not never will be."""

REFUSALS: tuple[Exception, ...] = (
    ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"),
    NoScriptError("No matching script"),
    OutOfMemoryError("command not allowed when used memory > 'maxmemory'"),
    ResponseError("BUSY Redis is busy running a script"),
    ReadOnlyError("You can't write against a read only replica"),
    ResponseError("NOREPLICAS Not enough good replicas to write"),
    ResponseError("MISCONF Redis is configured to save RDB snapshots"),
    MasterDownError("Link with MASTER is down"),
    ClusterDownError("The cluster is down"),
    RedisClusterException("no reachable node"),
    AuthenticationError("Authentication required."),
    NoPermissionError("this user has no permissions to run the 'evalsha' command"),
    BusyLoadingError("Redis is loading the dataset in memory"),
    TryAgainError("Multiple keys request during rehashing of slot"),
    ConnectionError("max number of clients reached"),
)


@dataclass(frozen=True)
class Outcome:
    """What becomes of one call: an error, after the command was executed or instead of it."""

    name: str
    error: Exception
    executed: bool


OUTCOMES = (
    *(Outcome(f"{type(error).__name__}: {str(error)[:12]}", error, executed=False) for error in REFUSALS),
    Outcome("cut before", ConnectionError("Connection reset by peer"), executed=False),
    Outcome("cut after", ConnectionError("Connection closed by server."), executed=True),
    Outcome("time-out, not executed", TimeoutError("Timeout reading from socket"), executed=False),
    Outcome("time-out, executed", TimeoutError("Timeout reading from socket"), executed=True),
)


@dataclass
class Fault:
    """Lets one call of many end otherwise; counts them all."""

    at: int = -1
    outcome: Outcome | None = None
    calls: int = 0
    struck: bool = False
    over: bool = False

    def into(self, client: Any) -> None:
        """Stand between a client and its server."""
        stock = client.follow

        def follow(call: Callable[[], Any]) -> Any:
            if self.over:  # the test looks at what has become of it
                return stock(call)
            self.calls += 1
            if self.outcome is None or self.calls - 1 != self.at:
                return stock(call)
            self.struck = True
            if self.outcome.executed:
                stock(call)
            raise self.outcome.error

        client.follow = follow


Scenario = Callable[[str, Fault], None]


def cases(scenario: Scenario, url: str) -> Iterator[tuple[int, Outcome]]:
    """Every call of a scenario with every outcome."""
    play(scenario, url, Fault())  # the server knows all scripts then, as it does later
    counting = Fault()
    play(scenario, url, counting)
    for at in range(counting.calls):
        for outcome in OUTCOMES:
            yield at, outcome


def play(scenario: Scenario, url: str, fault: Fault) -> None:
    with redis.Redis.from_url(url) as client:
        client.flushall()
    scenario(url, fault)


# -- scenarios -----------------------------------------------------------------------------------


def first_start(url: str, fault: Fault) -> None:
    clock = FakeClock(NINE)
    _beats(url, clock, fault, until=[])
    clock.set(TEN)
    _beats(url, clock, Fault(), until=[TEN])


def live_tick(url: str, fault: Fault) -> None:
    clock = FakeClock("2026-02-07T09:59:00Z")
    _beats(url, clock, Fault(), until=[])
    clock.set(TEN)
    _beats(url, clock, fault, until=[TEN])


def catch_up(url: str, fault: Fault) -> None:
    clock = FakeClock(NINE)
    _beats(url, clock, Fault(), until=[])
    clock.set(NOON)
    _beats(url, clock, fault, until=[TEN, "2026-02-07T11:00:00Z", "2026-02-07T12:00:00Z"])


def claim_and_finish(url: str, fault: Fault) -> None:
    beat = _chain(url)
    first, second, _ = (run["id"] for run in beat.ledger.runs_of("etl"))
    # A call whose answer is awaited later takes another way to the server; when it fails, it is made again.
    vars(beat.store)["send"] = lambda name, args, **keys: partial(beat.store.call, name, args, **keys)
    fault.into(beat.client)
    claim = _repeated(lambda: beat.leases.claim(first, owner="w", task="proj.etl", worker="w"))
    assert claim.answer is ClaimOutcome.GRANTED
    assert _repeated(lambda: beat.leases.renew([(first, "w")])) == []
    ending = _repeated(lambda: beat.leases.finish(first, entry="etl", owner="w", state=RunState.SUCCEEDED))
    fault.over = True
    assert ending[0] in (ReportOutcome.RECORDED, ReportOutcome.ENDED)
    states = [run["state"] for run in beat.ledger.runs_of("etl")]
    assert states == ["succeeded", "queued", "waiting"]
    assert [message["id"] for message in beat.messages()] == [first, second]


def backfill(url: str, fault: Fault) -> None:
    clock = FakeClock(NOON)
    beat = Beat(url, clock, _ENTRIES)
    beat.tick()
    day = to_instant(FakeClock("2026-02-07T00:00:00Z").now())
    fields = {
        "entry": "etl", "start": day, "end": day + 3 * 3_600_000, "reprocess": "none", "newest_first": False,
        "max_active": 10, "created": beat.engine.now(), "total": 4,
    }  # fmt: skip
    fault.into(beat.client)
    _repeated(lambda: beat.backfills.create(new_backfill(fields)))
    for _ in range(TRIES):
        clock.advance(seconds=1)
        _repeated(beat.tick)
    fault.over = True
    slots = beat.sent("etl")
    assert sorted(slots) == [f"2026-02-07T{hour:02}:00:00Z" for hour in range(4)]


def looking(url: str, fault: Fault) -> None:
    beat = _chain(url)
    before = {key: beat.client.dump(key) for key in beat.client.keys("*")}  # type: ignore[union-attr]
    app = _app(url)
    operator = Operator(app, actor=Actor("tester", Origin.PYTHON))
    fault.into(operator.store.client)
    found = _repeated(lambda: status(operator))
    assert found.in_flight == 1
    operator.close()
    app.close()
    assert {key: beat.client.dump(key) for key in beat.client.keys("*")} == before  # type: ignore[union-attr]


SCENARIOS: dict[str, Scenario] = {
    "first start": first_start,
    "live tick": live_tick,
    "catch-up": catch_up,
    "claim and finish": claim_and_finish,
    "backfill": backfill,
    "status": looking,
}

_ENTRIES = {"etl": ("0 * * * *", {"window": "6h", "overlap_policy": "all"})}


def _repeated(call: Callable[[], Any]) -> Any:
    """As its callers do: when the store fails it is tried again, and nothing else may happen."""
    for _ in range(TRIES):
        try:
            return call()
        except STORE_FAILS:
            continue
    raise AssertionError("the store never came back")


def _beats(url: str, clock: FakeClock, fault: Fault, *, until: list[str]) -> None:
    """A beat, and another one when it does not start; in the end these slots were sent, each once."""
    for _ in range(3):
        try:
            with a_scheduler(url, clock) as scheduler:
                fault.into(scheduler._work.store.client)  # type: ignore[union-attr]
                for _ in range(TRIES):
                    scheduler.tick()
                    clock.advance(seconds=1)
            break
        except SystemExit as ended:
            if ended.code != 2:
                raise AssertionError("a beat ends by itself only when it does not start") from ended
    assert _sent(url) == until


def _sent(url: str) -> list[str]:
    with redis.Redis.from_url(url) as client:
        found: Any = client.lrange("celery", 0, -1)
    return [json.loads(message)["headers"]["scheduled_time"] for message in reversed(found)]


def _chain(url: str) -> Beat:
    """Three slots were missed; the first is sent, the others wait."""
    clock = FakeClock(NINE)
    beat = Beat(url, clock, _ENTRIES)
    beat.tick()
    clock.set(NOON)
    beat.tick()
    return beat


def _app(url: str) -> Any:
    app = Celery("proj", broker=url, set_as_current=False)
    app.conf.update(
        catchup_namespace="test", beat_schedule={"etl": {"task": "proj.etl", "schedule": "0 * * * *"}}
    )
    return app
