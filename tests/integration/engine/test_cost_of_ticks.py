"""What a tick may cost: round trips, commands, bytes, calls and memory are counted, and no seconds."""

from __future__ import annotations

import gc
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis
from celery import Celery
from celery.schedules import crontab
from redis.connection import AbstractConnection

from celery_catchup.beat.scheduler import Scheduler
from celery_catchup.planning import planner
from celery_catchup.store import Keys, StartedCommit
from celery_catchup.store.store import all_scripts
from celery_catchup.testing import FakeClock

NAMESPACE = "costs"
MANY = 400  # entries; all of them fit into the work of one tick
POLICY = {"window": "6h"}


@dataclass
class Traffic:
    """What went to servers: one sending is one round trip."""

    sendings: list[int] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(self.sendings)


class CostedBeat:
    """The real scheduler, on a clock of the test's own."""

    def __init__(self, url: str, count: int, policy: object, minute: str = "0", *, alike: bool) -> None:
        app = Celery("tests.costs", broker=url, set_as_current=False)
        entry = {"task": "proj.etl", "schedule": crontab(minute=minute)}
        app.conf.beat_schedule = {
            f"entry-{n}": entry if alike else {**entry, "args": (n,)} for n in range(count)
        }
        app.conf.update(catchup_entries={"*": policy}, catchup_namespace=NAMESPACE, result_expires=None)
        self.clock, self.app, self.count = FakeClock("2026-02-07T09:05:00Z"), app, count
        self.scheduler: Any = None
        self.start()

    def start(self) -> None:
        self.scheduler = type("Beat", (Scheduler,), {"clock": self.clock})(self.app)
        self.scheduler.tick()

    def tick(self, **later: float) -> None:
        self.clock.advance(**later)
        self.scheduler.tick()

    def healthy_until(self, at: str) -> None:
        """A tick just before, as there would be one each second."""
        self.clock.set(at)
        self.clock.advance(seconds=-1)
        self.scheduler.tick()
        self.clock.set(at)


@pytest.fixture
def beat_of(redis_url: str) -> Iterator[Callable[..., CostedBeat]]:
    made: list[CostedBeat] = []

    def start(
        count: int = MANY, policy: object = POLICY, minute: str = "0", *, alike: bool = False
    ) -> CostedBeat:
        made.append(CostedBeat(redis_url, count, policy, minute, alike=alike))
        return made[-1]

    yield start
    for beat in made:
        beat.scheduler.close()


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Traffic:
    """What is sent to a server that takes longer to answer than beat to prepare the next commit."""
    monkeypatch.setattr(StartedCommit, "is_answered", lambda commit: False)
    seen, stock = Traffic(), AbstractConnection.send_packed_command

    def counted(self: Any, command: Any, **options: Any) -> None:
        pieces = [command] if isinstance(command, str | bytes) else list(command)
        seen.sendings.append(sum(map(len, pieces)))
        stock(self, pieces, **options)

    monkeypatch.setattr(AbstractConnection, "send_packed_command", counted)
    return seen


def commands_executed(url: str) -> int:
    """By the server, those inside of scripts included."""
    with redis.Redis.from_url(url) as client:
        stats: Any = client.info("commandstats")
    return sum(command["calls"] for command in stats.values())


@contextmanager
def calls_counted() -> Iterator[list[int]]:
    """How many functions are called: what Python spends its time with."""
    count = [0]

    def note(frame: Any, event: str, arg: Any) -> None:
        if event in ("call", "c_call"):
            count[0] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield count
    finally:
        sys.setprofile(before)


def runs_on_record(url: str) -> int:
    with redis.Redis.from_url(url) as client:
        return int(client.zcard(Keys(NAMESPACE).runs))  # type: ignore[arg-type]


# -- idle ------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [POLICY, POLICY | {"expect_within": "30m"}], ids=["plain", "deadlines"])
def test_an_idle_tick_is_one_small_round_trip_whatever_the_number_of_entries(
    beat_of: Callable[..., CostedBeat], traffic: Traffic, policy: dict[str, str]
) -> None:
    counted = []
    for count in (10, MANY):
        beat = beat_of(count, policy)
        beat.tick(seconds=1)
        traffic.sendings.clear()
        with calls_counted() as calls:
            beat.tick(seconds=1)
        counted.append(calls[0])

        assert len(traffic.sendings) == 1
        assert traffic.bytes < 1_000
        beat.scheduler.close()

    assert counted[1] <= counted[0] + 10  # nobody has looked at the entries


def test_deadlines_that_pass_cost_one_round_trip_for_many_entries(
    beat_of: Callable[..., CostedBeat], traffic: Traffic, redis_url: str
) -> None:
    beat = beat_of(200, POLICY | {"expect_within": "30m"})
    beat.healthy_until("2026-02-07T10:00:00Z")
    beat.tick()
    with redis.Redis.from_url(redis_url) as client:
        ledger: Any = client.hgetall(Keys(NAMESPACE).ledger)
        for run_id, text in ledger.items():
            client.hset(Keys(NAMESPACE).ledger, run_id, text.replace(b'"queued",', b'"succeeded",'))
        client.script_load(all_scripts()["judge_slots"].text)
    beat.healthy_until("2026-02-07T10:30:00Z")
    traffic.sendings.clear()

    beat.tick()
    judged = len(traffic.sendings)
    beat.tick(seconds=1)

    assert judged == 2  # one for the tick, one for all deadlines
    assert len(traffic.sendings) == 3  # nothing is overdue, so nothing is looked at again


@pytest.mark.soak
def test_an_idle_tick_with_ten_thousand_deadlines_takes_less_than_a_millisecond(
    beat_of: Callable[..., CostedBeat], traffic: Traffic
) -> None:
    beat = beat_of(10_000, POLICY | {"expect_within": "30m"}, alike=True)
    for _ in range(40):
        beat.tick(seconds=1)
    traffic.sendings.clear()
    taken = []
    for _ in range(200):
        begun = time.process_time()
        beat.tick(seconds=1)
        taken.append(time.process_time() - begun)

    # Once a minute the leader forgets what is old, which is another round trip.
    assert len(traffic.sendings) <= 200 + 5 * 4
    assert statistics.median(taken) < 0.001, statistics.median(taken)
    print(f"median {statistics.median(taken) * 1e3:.3f} ms")


# -- live ------------------------------------------------------------------------------------


def test_all_that_is_due_costs_three_round_trips(
    beat_of: Callable[..., CostedBeat], traffic: Traffic, redis_url: str
) -> None:
    beat = beat_of()
    beat.healthy_until("2026-02-07T10:00:00Z")
    beat.tick()  # the first one: Celery makes two messages, and declares their queue
    beat.healthy_until("2026-02-07T11:00:00Z")
    _finish_all(redis_url, beat)
    before = commands_executed(redis_url)
    traffic.sendings.clear()

    beat.tick()

    assert len(traffic.sendings) == 3  # the lease, and two commits
    assert traffic.bytes / MANY < 2_700
    assert runs_on_record(redis_url) == 2 * MANY
    assert (commands_executed(redis_url) - before) / MANY < 9


def test_a_server_that_answers_at_once_gets_commits_of_fifty(
    beat_of: Callable[..., CostedBeat],
    traffic: Traffic,
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(StartedCommit, "is_answered", lambda commit: True)
    beat = beat_of()
    beat.healthy_until("2026-02-07T10:00:00Z")
    beat.tick()
    beat.healthy_until("2026-02-07T11:00:00Z")
    _finish_all(redis_url, beat)
    traffic.sendings.clear()

    beat.tick()

    assert len(traffic.sendings) == 1 + MANY / 50


def test_messages_that_were_never_sent_before_cost_as_many(
    beat_of: Callable[..., CostedBeat], traffic: Traffic, redis_url: str
) -> None:
    beat = beat_of()
    beat.healthy_until("2026-02-07T10:00:00Z")
    traffic.sendings.clear()

    beat.tick()

    assert len(traffic.sendings) < 12  # a queue is declared and looked at, once
    assert traffic.bytes / MANY < 4_500
    assert runs_on_record(redis_url) == MANY


def test_a_live_run_takes_few_calls_and_the_short_way_through_the_planner(
    beat_of: Callable[..., CostedBeat], monkeypatch: pytest.MonkeyPatch, redis_url: str
) -> None:
    beat = beat_of()
    beat.healthy_until("2026-02-07T10:00:00Z")
    beat.tick()
    beat.healthy_until("2026-02-07T11:00:00Z")
    _finish_all(redis_url, beat)
    monkeypatch.setattr(planner, "plan_in_full", _never)

    with calls_counted() as calls:
        beat.tick()

    assert runs_on_record(redis_url) == 2 * MANY
    assert calls[0] / MANY < 220


def test_busy_entries_are_planned_again_in_a_handful_of_round_trips(
    beat_of: Callable[..., CostedBeat], traffic: Traffic, redis_url: str
) -> None:
    beat = beat_of()
    for hour in (10, 11):  # nobody executes what is due at ten
        beat.healthy_until(f"2026-02-07T{hour}:00:00Z")
        traffic.sendings.clear()
        beat.tick()

    assert len(traffic.sendings) < 7
    assert runs_on_record(redis_url) == MANY


# -- after an outage -------------------------------------------------------------------------


def test_a_long_chain_is_recorded_many_runs_at_a_time(
    beat_of: Callable[..., CostedBeat], traffic: Traffic, redis_url: str
) -> None:
    beat = beat_of(1, {"window": "2d", "overlap_policy": "all"}, "*")
    missed = 1000
    beat.scheduler.close()
    beat.clock.advance(minutes=missed)
    beat.start()
    before, recorded = commands_executed(redis_url), runs_on_record(redis_url)
    traffic.sendings.clear()

    beat.tick()

    assert len(traffic.sendings) == 2
    made = missed - recorded
    assert traffic.bytes / made < 600
    assert runs_on_record(redis_url) == missed
    assert (commands_executed(redis_url) - before) / made < 0.3


def test_entries_that_missed_slots_are_read_and_written_together(
    beat_of: Callable[..., CostedBeat], traffic: Traffic, redis_url: str
) -> None:
    beat = beat_of()
    beat.scheduler.close()
    beat.clock.advance(hours=3)
    traffic.sendings.clear()

    beat.start()

    assert len(traffic.sendings) < 40  # connections and their greetings, the state, one commit
    assert runs_on_record(redis_url) == MANY


def test_entries_that_differ_in_their_names_share_one_stored_message(
    beat_of: Callable[..., CostedBeat], traffic: Traffic, redis_url: str
) -> None:
    beat = beat_of(alike=True)
    beat.healthy_until("2026-02-07T10:00:00Z")
    traffic.sendings.clear()

    beat.tick()

    with redis.Redis.from_url(redis_url) as client:
        assert client.hlen(Keys(NAMESPACE).templates) == 2  # the message, and its inputs
    assert traffic.bytes / MANY < 2_000


# -- memory ----------------------------------------------------------------------------------


def test_an_entry_needs_a_few_kilobytes(beat_of: Callable[..., CostedBeat]) -> None:
    sizes = []
    for count in (100, 500):
        gc.collect()
        tracemalloc.start()
        beat = beat_of(count)
        beat.healthy_until("2026-02-07T10:00:00Z")
        beat.tick()
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        beat.scheduler.close()

    assert (sizes[1] - sizes[0]) / 400 < 9_000


def _never(*_: Any, **__: Any) -> Any:
    raise AssertionError("the rules need not be asked")


def _finish_all(url: str, beat: CostedBeat) -> None:
    """As if workers had executed everything."""
    keys = Keys(NAMESPACE)
    with redis.Redis.from_url(url) as client:
        client.delete(*(keys.active(f"entry-{n}") for n in range(beat.count)))
