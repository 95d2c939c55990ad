"""No script keeps the server busy: each has a budget of runs and bytes, and what is left goes on later."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from celery import Celery
from celery.schedules import crontab

from celery_catchup.beat.scheduler import Scheduler
from celery_catchup.model import PlannedRun, RunState
from celery_catchup.store import Keys, Ledger, Store, Template
from celery_catchup.store.batches import MOST_BYTES
from celery_catchup.store.store import StartedCall, all_scripts
from celery_catchup.testing import FakeClock
from tests.integration.beats import NAMESPACE, QUEUE, Beat, Broker
from tests.integration.ledgers import new_backfill

RUNS = 100
"""What one script releases, at the most."""
DAY = {"window": "1d", "overlap_policy": "all"}
AT_ONCE = {"window": "1d", "overlap_policy": "allow"}
KEYS = Keys(NAMESPACE)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock("2026-02-07T09:05:30Z")


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as found:
        yield found


@pytest.fixture
def pushed(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Which script has pushed how many messages."""
    seen: list[tuple[str, int]] = []

    def counted(name: str, action: Callable[[], Any]) -> Any:
        before: Any = client.llen(QUEUE)
        answer = action()
        after: Any = client.llen(QUEUE)
        if after > before:
            seen.append((name, after - before))
        return answer

    call, start, send = Store.call, Store.start, Store.send

    def called(self: Store, name: str, *args: Any, **more: Any) -> Any:
        return counted(name, lambda: call(self, name, *args, **more))

    def started(self: Store, name: str, *args: Any, **more: Any) -> StartedCall:
        calls = list[StartedCall]()

        def whole() -> Any:
            calls.append(start(self, name, *args, **more))
            return calls[0].answer()

        answer = counted(name, whole)
        vars(calls[0]).update(answer=lambda: answer, is_answered=lambda: True)
        return calls[0]

    def sent(self: Store, name: str, *args: Any, **more: Any) -> Callable[[], Any]:
        answer = counted(name, lambda: send(self, name, *args, **more)())
        return lambda: answer

    monkeypatch.setattr(Store, "call", called)
    monkeypatch.setattr(Store, "start", started)
    monkeypatch.setattr(Store, "send", sent)
    return seen


def backlog(url: str, clock: FakeClock, *, minutes: int, names: tuple[str, ...] = ("etl",)) -> None:
    """A chain of waiting runs for each entry."""
    beat = Beat(url, clock, dict.fromkeys(names, ("* * * * *", DAY)))
    beat.tick()
    beat.engine.resign()
    clock.advance(minutes=minutes)
    beat = Beat(url, clock, dict.fromkeys(names, ("* * * * *", DAY)))
    for _ in range(10 * len(names)):
        beat.tick()
    beat.engine.resign()


def in_order(beat: Beat, entry: str) -> bool:
    slots = beat.sent(entry)
    return slots == sorted(set(slots))


def test_a_release_without_a_limit_stops_at_its_budget_and_goes_on_with_the_next_ticks(
    redis_url: str, clock: FakeClock, pushed: list[tuple[str, int]]
) -> None:
    backlog(redis_url, clock, minutes=450)
    pushed.clear()
    beat = Beat(redis_url, clock, {"etl": ("* * * * *", AT_ONCE)})
    beat.tick()

    clock.advance(minutes=1)
    beat.tick()
    after_one = len(beat.messages())
    for _ in range(3):
        beat.tick()

    assert after_one <= 1 + RUNS
    assert max(count for _, count in pushed) <= RUNS
    assert len(beat.messages()) == 451
    assert in_order(beat, "etl")
    assert beat.client.zcard(KEYS.unreleased) == 0


def test_what_a_dead_leader_has_not_released_its_successor_releases(redis_url: str, clock: FakeClock) -> None:
    backlog(redis_url, clock, minutes=350)
    entries = {"etl": ("* * * * *", AT_ONCE)}
    first = Beat(redis_url, clock, entries)
    first.tick()
    clock.advance(minutes=1)
    now = first.engine.now()
    first.engine.lead(now)
    first.engine.advance(now)  # and it is killed

    second = Beat(redis_url, clock, entries)
    second.tick()
    clock.advance(seconds=11)
    second.tick()
    second.tick()

    assert len(second.messages()) == 351
    assert in_order(second, "etl")


def test_the_budget_is_one_for_all_entries_of_a_commit(
    redis_url: str, clock: FakeClock, pushed: list[tuple[str, int]]
) -> None:
    names = tuple(f"etl-{n}" for n in range(5))
    backlog(redis_url, clock, minutes=60, names=names)
    pushed.clear()
    beat = Beat(redis_url, clock, dict.fromkeys(names, ("* * * * *", AT_ONCE)))
    beat.tick()

    clock.advance(minutes=1)
    beat.tick()
    beat.tick()

    assert max(count for _, count in pushed) <= RUNS
    assert len(beat.messages()) == 5 * 61
    assert all(in_order(beat, name) for name in names)


def test_a_worker_that_ends_a_run_releases_no_more_than_the_budget(
    redis_url: str, clock: FakeClock, pushed: list[tuple[str, int]]
) -> None:
    backlog(redis_url, clock, minutes=250)
    beat = Beat(redis_url, clock, {"etl": ("* * * * *", AT_ONCE)})
    beat.tick()
    (active,) = beat.ledger.active("etl")
    pushed.clear()

    beat.leases.claim(active, owner="w", task="proj.etl", worker="w", entry="etl")
    beat.leases.finish(active, entry="etl", owner="w", state=RunState.SUCCEEDED)
    by_the_worker = list(pushed)
    beat.tick()

    assert by_the_worker == [("finish", RUNS)]
    assert len(beat.messages()) == 250
    assert in_order(beat, "etl")


def test_delayed_runs_of_many_entries_are_admitted_with_a_call_for_a_hundred_of_them(
    redis_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    stock = Store.call
    monkeypatch.setattr(
        Store, "call", lambda self, name, *a, **k: (calls.append(name), stock(self, name, *a, **k))[1]
    )
    jittered = {"window": "6h", "overlap_policy": "all", "jitter": "5m"}
    beat = Beat(redis_url, clock, {f"etl-{n}": ("0 * * * *", jittered) for n in range(300)})
    beat.tick()
    clock.set("2026-02-07T10:00:00Z")
    beat.tick()
    delayed: Any = beat.client.zcard(KEYS.delayed)

    clock.advance(minutes=6)
    calls.clear()
    beat.tick()

    assert delayed > 250
    assert beat.client.zcard(KEYS.delayed) == 0
    assert len(beat.messages()) == 300
    assert calls.count("admit") + calls.count("release") <= 2 * (300 // 100) + 2


def test_a_delayed_run_of_an_entry_that_is_gone_is_sent_and_delays_no_other(
    redis_url: str, clock: FakeClock
) -> None:
    jittered = {"window": "6h", "overlap_policy": "all", "jitter": "5m"}
    both = {"gone": ("0 * * * *", jittered), "etl": ("0 * * * *", jittered)}
    before = Beat(redis_url, clock, both)
    before.tick()
    clock.set("2026-02-07T10:00:00Z")
    before.tick()
    before.engine.resign()

    beat = Beat(redis_url, clock, {"etl": both["etl"]})
    clock.advance(minutes=6)
    beat.tick()

    assert {message["entry"] for message in beat.messages()} == {"gone", "etl"}
    assert beat.client.zcard(KEYS.delayed) == 0


def test_what_waits_in_a_cancelled_backfill_is_revoked_in_steps(redis_url: str, clock: FakeClock) -> None:
    beat = Beat(redis_url, clock, {"etl": ("* * * * *", DAY)})
    beat.tick()
    now = beat.engine.now()
    fields = {"reprocess": "none", "newest_first": False, "max_active": 1, "created": now, "total": 400}
    made = beat.backfills.create(
        new_backfill({"entry": "etl", "start": now - 400 * 60_000, "end": now, **fields})
    )
    for _ in range(3):
        beat.tick()
    waiting = beat.backfills.waiting(made)

    beat.backfills.set_state(made.id, "cancelled")
    at_once = waiting - beat.backfills.waiting(made)
    beat.tick()

    states = [run["state"] for run in beat.ledger.runs_of("etl")]
    assert waiting > 2 * RUNS
    assert at_once == RUNS
    assert beat.backfills.waiting(made) == 0
    assert states.count("revoked") == waiting


class LargeBroker(Broker):
    """Messages of some size."""

    def __init__(self, size: int, *, hooked: bool = False) -> None:
        super().__init__()
        self.size, self.hooked = size, hooked

    def template(self, entry: str, run: PlannedRun, run_id: str, **options: Any) -> Template:
        small = super().template(entry, run, run_id, **options)
        message = json.dumps({**json.loads(small.message), "blob": "x" * self.size})
        return Template(message, queue=small.queue, db=small.db, run=small.run)


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Scripts, and how many characters their calls had."""
    seen: list[tuple[str, int]] = []

    def weighed(stock: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: Store, name: str, args: Any, **more: Any) -> Any:
            words = [*args.values(), *more.get("more_args", ())]
            seen.append((name, sum(len(str(word)) for word in words)))
            return stock(self, name, args, **more)

        return method

    monkeypatch.setattr(Store, "call", weighed(Store.call))
    monkeypatch.setattr(Store, "start", weighed(Store.start))
    return seen


@pytest.mark.parametrize("hooked", [False, True], ids=["shared", "hooked"])
def test_large_messages_are_committed_in_several_steps_and_none_is_lost(
    redis_url: str, clock: FakeClock, commands: list[tuple[str, int]], hooked: bool
) -> None:
    size, entries = 200_000, {f"etl-{n}": ("* * * * *", AT_ONCE) for n in range(3)}
    first = Beat(redis_url, clock, entries, broker=LargeBroker(size, hooked=hooked))
    first.tick()
    first.engine.resign()
    clock.advance(minutes=20)

    beat = Beat(redis_url, clock, entries, broker=LargeBroker(size, hooked=hooked))
    for _ in range(60):
        beat.tick()

    assert all(len(beat.sent(name)) == 20 and in_order(beat, name) for name in entries)
    assert max(weight for _, weight in commands) < 2 * MOST_BYTES


def test_a_message_larger_than_the_budget_is_committed_alone(
    redis_url: str, clock: FakeClock, commands: list[tuple[str, int]]
) -> None:
    entries = {"large": ("* * * * *", AT_ONCE), "other": ("* * * * *", AT_ONCE)}
    beat = Beat(redis_url, clock, entries, broker=LargeBroker(2_000_000))
    beat.tick()

    clock.advance(minutes=1)
    beat.tick()

    assert [name for name, weight in commands if weight > 1_000_000] == ["commit", "commit"]
    assert len(beat.messages()) == 2


def test_a_chain_that_shares_a_large_template_is_decided_in_large_steps(
    redis_url: str, clock: FakeClock, commands: list[tuple[str, int]]
) -> None:
    first = Beat(redis_url, clock, {"etl": ("* * * * *", DAY)}, broker=LargeBroker(2_000_000))
    first.tick()
    first.engine.resign()
    clock.advance(minutes=400)

    beat = Beat(redis_url, clock, {"etl": ("* * * * *", DAY)}, broker=LargeBroker(2_000_000))
    for _ in range(4):
        beat.tick()

    assert len(beat.ledger.runs_of("etl")) == 400
    assert sum(weight > 1_000_000 for _, weight in commands) == 1


def test_a_backfill_of_large_messages_is_filled_in_parts(
    redis_url: str, clock: FakeClock, commands: list[tuple[str, int]]
) -> None:
    beat = Beat(redis_url, clock, {"etl": ("* * * * *", DAY)}, broker=LargeBroker(200_000, hooked=True))
    beat.tick()
    now = beat.engine.now()
    fields = {"reprocess": "none", "newest_first": False, "max_active": 100, "created": now, "total": 20}
    beat.backfills.create(new_backfill({"entry": "etl", "start": now - 20 * 60_000, "end": now, **fields}))

    for _ in range(60):
        beat.tick()

    assert len(beat.messages()) == 20
    assert in_order(beat, "etl")
    assert max(weight for _, weight in commands) < 2 * MOST_BYTES


def test_entries_are_noted_and_read_a_bounded_number_at_a_time(
    redis_url: str, client: redis.Redis, clock: FakeClock
) -> None:
    client.config_set("slowlog-log-slower-than", 0)
    client.config_set("slowlog-max-len", 10_000)
    entries = {f"etl-{n}": ("0 * * * *", DAY) for n in range(1200)}
    client.slowlog_reset()

    beat = Beat(redis_url, clock, entries)
    beat.tick()
    again = Beat(redis_url, clock, entries)
    stored: Any = again.engine.services.states.load()

    adopting = all_scripts()["store_entries"].sha.encode()
    seen: Any = client.slowlog_get(10_000)
    assert sum(adopting in one["command"] for one in seen) == 3
    assert set(stored.first_seen) == set(stored.policies) == set(entries)
    assert not any(one["command"].startswith(b"HGETALL") and b"first_seen" in one["command"] for one in seen)


def test_entries_without_a_policy_are_noted_in_several_commits(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[int] = []
    stock = Ledger.commit

    def counted(self: Ledger, leadership: Any, batch: Any, **more: Any) -> Any:
        noted.append(len(batch.unmanaged))
        return stock(self, leadership, batch, **more)

    monkeypatch.setattr(Ledger, "commit", counted)
    app = Celery("tests.budgets", broker=redis_url, set_as_current=False)
    entry = {"task": "proj.etl", "schedule": crontab(minute=0)}
    app.conf.update(beat_schedule={f"plain-{n}": entry for n in range(1200)}, result_expires=None)
    scheduler = Scheduler(app)

    scheduler.tick()
    scheduler.close()

    assert max(noted) <= 500
    assert sum(noted) == 1200


def test_thousands_of_runs_of_an_entry_are_all_found(redis_url: str, clock: FakeClock) -> None:
    beat = Beat(redis_url, clock, {"etl": ("* * * * *", DAY)})
    runs = {f"run-{n}": {"entry": "etl", "slot": 1_000 + n // 2, "schedule": n % 2} for n in range(4500)}
    common = {"state": "succeeded", "attempt": 1, "sends": 1}
    texts = {run_id: json.dumps({**run, **common}) for run_id, run in runs.items()}
    beat.client.hset(KEYS.ledger, mapping=texts)
    beat.client.zadd(KEYS.runs_of("etl"), {run_id: run["slot"] for run_id, run in runs.items()})

    found = beat.engine.services.states.recorded("etl", 999, 10_000)

    assert len(found) == 4500
