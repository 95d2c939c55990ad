"""Ticks that take longer than the leader's lease: it is renewed within, and nothing is sent twice."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import kombu
import pytest
from celery import Celery
from celery.schedules import crontab
from redis import Redis

from celery_catchup.beat.scheduler import Scheduler
from celery_catchup.dispatch.broker import Broker as Connection
from celery_catchup.engine import DispatchFailedError, catchup
from celery_catchup.model import PlannedRun
from celery_catchup.planning.planner import survey
from celery_catchup.store import Batch, FencedError, Keys, OutboxRun, Store, Template
from celery_catchup.testing import FakeClock
from tests.integration.beats import Beat, Broker

NINE = "2026-02-07T09:00:30Z"
LEASE = 10
MINUTELY = {"etl": ("* * * * *", {"window": "6h", "overlap_policy": "allow"})}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NINE)


class SlowBroker(Broker):
    """Takes a while for each message; meanwhile the standby ticks."""

    def __init__(self, *, atomic: bool = False) -> None:
        super().__init__(atomic=atomic)
        self.meanwhile: Callable[[], Any] = lambda: None

    def send(self, one: OutboxRun) -> DispatchFailedError | None:
        self.meanwhile()
        return super().send(one)

    def template(self, entry: str, run: PlannedRun, run_id: str, **options: Any) -> Template:
        if self.atomic:
            self.meanwhile()
        return super().template(entry, run, run_id, **options)


class Pair:
    """A leader with a slow broker, and a standby that sends through the same one."""

    def __init__(self, url: str, clock: FakeClock, entries: Any = MINUTELY, *, atomic: bool = False) -> None:
        self.clock = clock
        self.broker, quick = SlowBroker(atomic=atomic), Broker(atomic=atomic)
        self.leader = Beat(url, clock, entries, broker=self.broker)
        self.standby = Beat(url, clock, entries, broker=quick)
        self.leader.tick()
        self.standby.tick()
        quick.published = self.broker.published

    def second_passes(self) -> None:
        self.clock.advance(seconds=1)
        self.standby.tick()

    def sent(self) -> Counter[str]:
        return Counter(self.broker.published)


def test_slow_confirms_cost_no_leadership_and_nothing_is_sent_twice(redis_url: str, clock: FakeClock) -> None:
    pair = Pair(redis_url, clock)
    pair.broker.meanwhile = pair.second_passes
    clock.advance(minutes=40)

    for _ in range(60):
        assert pair.leader.tick()

    assert len(pair.sent()) >= 40
    assert set(pair.sent().values()) == {1}
    assert not pair.standby.engine.leading


def test_live_slots_do_not_wait_until_a_slow_broker_has_taken_the_whole_outbox(
    redis_url: str, clock: FakeClock
) -> None:
    pair = Pair(redis_url, clock)
    pair.broker.meanwhile = pair.second_passes
    clock.advance(minutes=40)

    pair.leader.tick()

    assert 1 <= len(pair.broker.published) <= LEASE / 2


def test_a_leader_that_was_replaced_within_its_tick_publishes_nothing_more(
    redis_url: str, clock: FakeClock
) -> None:
    pair = Pair(redis_url, clock)
    clock.advance(minutes=40)

    def frozen() -> None:
        """The leader stops before it sends the third; the standby takes over and sends all that is left."""
        if len(pair.broker.published) == 2:
            for _ in range(2 * LEASE):
                pair.second_passes()

    pair.broker.meanwhile = frozen
    leads = pair.leader.tick()

    assert not leads
    assert pair.standby.engine.leading
    # Nothing is recorded before the end of a window: what it had sent of it is sent again.
    twice = {slot for slot, times in pair.sent().items() if times > 1}
    assert twice == {*pair.broker.published[:2], pair.broker.published[-1]}


def test_planning_longer_than_the_lease_costs_no_leadership(redis_url: str, clock: FakeClock) -> None:
    entries = {f"etl-{number}": MINUTELY["etl"] for number in range(30)}
    pair = Pair(redis_url, clock, entries, atomic=True)
    pair.broker.meanwhile = pair.second_passes
    clock.advance(minutes=1)

    assert pair.leader.tick()

    assert not pair.standby.engine.leading
    assert len(pair.leader.sent()) >= 30


def test_counting_what_was_missed_longer_than_the_lease_costs_no_leadership(
    redis_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = {f"etl-{number}": MINUTELY["etl"] for number in range(30)}
    pair = Pair(redis_url, clock, entries, atomic=True)

    def slow(*args: Any) -> int:
        pair.second_passes()
        return survey(*args)

    monkeypatch.setattr(catchup, "survey", slow)
    clock.advance(minutes=5)

    assert pair.leader.tick()

    assert not pair.standby.engine.leading


def test_a_renewal_within_a_tick_leaves_the_watermark_and_is_a_sign_of_life(
    redis_url: str, clock: FakeClock
) -> None:
    beat = Beat(redis_url, clock, MINUTELY)
    beat.tick()
    before = beat.client.hget(beat.keys.scheduler, "watermark")

    clock.advance(seconds=2 * LEASE)
    assert beat.engine.services.leadership.keep()
    clock.advance(seconds=2 * LEASE)
    last_tick = beat.client.hget(beat.keys.scheduler, "last_tick")
    beat.tick()

    assert beat.client.hget(beat.keys.scheduler, "watermark") == before
    assert last_tick == str(beat.engine.now() - 2 * LEASE * 1000).encode()
    assert beat.client.zcard(beat.keys.outages) == 0


def test_a_renewal_is_asked_for_after_a_third_of_the_lease_and_not_before(
    redis_url: str, clock: FakeClock
) -> None:
    beat = Beat(redis_url, clock, MINUTELY)
    beat.tick()
    leadership = beat.engine.services.leadership

    asked = [leadership.keep()]
    clock.advance(seconds=3)
    asked.append(leadership.keep())
    clock.advance(seconds=1)
    asked.append(leadership.keep())
    asked.append(leadership.keep())

    assert asked == [False, False, True, False]


def test_every_write_of_the_leader_renews_in_time(redis_url: str, clock: FakeClock) -> None:
    pair = Pair(redis_url, clock)
    leadership = pair.leader.engine.services.leadership

    for _ in range(4):
        clock.advance(seconds=LEASE / 2)
        pair.leader.ledger.commit(leadership, Batch(), now=pair.leader.engine.now())
        pair.standby.tick()

    assert not pair.standby.engine.leading


def test_a_renewal_that_took_longer_than_the_lease_is_not_relied_on(
    redis_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat = Beat(redis_url, clock, MINUTELY)
    beat.tick()
    leadership = beat.engine.services.leadership
    call = beat.store.call

    def slow(*args: Any, **kwargs: Any) -> Any:
        answer = call(*args, **kwargs)
        clock.advance(seconds=LEASE)
        return answer

    clock.advance(seconds=LEASE / 2)
    monkeypatch.setattr(Store, "call", lambda self, *args, **kwargs: slow(*args, **kwargs))
    with pytest.raises(FencedError, match="too late"):
        leadership.keep()
    monkeypatch.undo()

    assert beat.tick()


def test_a_server_that_forgot_renewals_ends_the_tick_and_the_next_one_tells_the_loss(
    redis_url: str, clock: FakeClock
) -> None:
    beat = Beat(redis_url, clock, MINUTELY)
    for _ in range(3):
        beat.tick()
    leadership = beat.engine.services.leadership
    beat.client.hset(beat.keys.leader, "beat", 1)

    clock.advance(seconds=LEASE / 2)
    with pytest.raises(FencedError):
        leadership.keep()

    assert leadership.lead(now=beat.engine.now()).lost


# -- entries without a policy, published one by one ------------------------------------------------


@pytest.fixture
def stock(
    redis_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Scheduler]]:
    """Makes beats of 30 entries without a policy, whose broker is elsewhere."""
    made: list[Scheduler] = []

    def beat() -> Scheduler:
        app = Celery("proj", broker="memory://", set_as_current=False)
        app.conf.update(
            catchup_redis_url=redis_url,
            catchup_lease_ttl=f"{LEASE}s",
            beat_schedule={f"stock-{n:02}": {"task": "proj.stock", "schedule": 60.0} for n in range(30)},
        )
        monkeypatch.setattr(app, "now", clock.now)
        made.append(type("Beat", (Scheduler,), {"clock": clock})(app))
        return made[-1]

    yield beat
    for one in made:
        one.close()


def test_slow_confirms_of_entries_without_a_policy_cost_no_leadership(
    stock: Callable[[], Scheduler], clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, standby = stock(), stock()
    leader.tick()
    standby.tick()
    sent: list[str] = []

    def publish(_: Connection, publication: Mapping[str, Any]) -> None:
        sent.append(publication["headers"]["id"])
        clock.advance(seconds=1)
        standby.tick()

    monkeypatch.setattr(Connection, "publish", publish)
    clock.advance(seconds=60)
    for _ in range(12):
        leader.tick()

    assert not standby._work.engine.leading
    assert len(sent) == 30


def test_after_a_leader_is_replaced_its_published_entries_without_a_policy_are_not_sent_again(
    stock: Callable[[], Scheduler], clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, standby = stock(), stock()
    leader.tick()
    standby.tick()
    sent: list[str] = []

    def publish(_: Connection, publication: Mapping[str, Any]) -> None:
        sent.append(publication["headers"]["id"])
        clock.advance(milliseconds=60)
        if len(sent) == 20:  # the leader is frozen with this one in its hands
            for _ in range(2 * LEASE):
                clock.advance(seconds=1)
                standby.tick()

    monkeypatch.setattr(Connection, "publish", publish)
    clock.advance(seconds=60)
    leader.tick()

    assert not leader._work.engine.leading
    assert standby._work.engine.leading
    assert len(sent) == 31


# -- two beats in real time ------------------------------------------------------------------------


@pytest.mark.soak
def test_two_beats_on_rabbitmq_with_slow_confirms_send_nothing_twice(
    rabbitmq_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """120 runs at 150 ms take six leases of 3 s."""
    queue, publish = f"long-ticks-{secrets.token_hex(4)}", Connection.publish

    def slow(connection: Connection, publication: Mapping[str, Any]) -> None:
        time.sleep(0.15)
        publish(connection, publication)

    def beat() -> Scheduler:
        app = Celery("proj", broker=rabbitmq_url, set_as_current=False)
        app.conf.update(
            catchup_redis_url=redis_url,
            catchup_lease_ttl="3s",
            task_default_queue=queue,
            beat_schedule={"etl": {"task": "proj.etl", "schedule": crontab()}},
            catchup_entries={"etl": {"window": "1d", "overlap_policy": "allow"}},
        )
        return Scheduler(app)

    first = beat()
    first.tick()
    first.close()
    keys, now = Keys("proj"), int(time.time() * 1000)
    with Redis.from_url(redis_url) as client:
        missed = now - 120 * 60_000
        client.hset(keys.scheduler, "watermark", missed)
        client.hset(keys.first_seen, "etl", missed)
        client.hset(keys.decided, "etl", missed)
        monkeypatch.setattr(Connection, "publish", slow)
        stopped = threading.Event()

        def loop() -> None:
            one = beat()
            while not stopped.is_set():
                stopped.wait(min(one.tick(), 0.5))
            one.close()

        threads = [threading.Thread(target=loop) for _ in range(2)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and (client.zcard(keys.outbox) or client.hlen(keys.ledger) < 120):
            time.sleep(0.5)
        stopped.set()
        for thread in threads:
            thread.join()
    sent: Counter[str] = Counter()
    with kombu.Connection(rabbitmq_url) as connection:
        channel = connection.default_channel
        while (message := channel.basic_get(queue, no_ack=True)) is not None:
            sent[message.headers["catchup_run_id"]] += 1
        channel.queue_delete(queue)

    assert len(sent) >= 120
    assert set(sent.values()) == {1}
