"""With task_send_sent_event each message is announced once, when it went out, as Celery announces it."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

import kombu
import pytest
from celery import Celery
from celery.beat import ScheduleEntry
from celery.schedules import crontab
from kombu import Exchange, Queue
from redis.exceptions import ConnectionError as RedisConnectionError

from celery_catchup.beat.scheduler import Scheduler
from celery_catchup.clock import SystemClock
from celery_catchup.dispatch import SentEvents
from celery_catchup.model import RunState
from celery_catchup.store import Leases, Ledger
from celery_catchup.store.opening import open_store
from celery_catchup.testing import FakeClock
from celery_catchup.worker_plugin.publish_released import ReleasedPublisher
from tests.integration.dispatching import stock_send
from tests.services import private_server

# Of the sender and of the moment, not of the message.
OF_THE_SENDER = {"hostname", "pid", "clock", "utcoffset", "timestamp", "local_received", "type"}


class Heard:
    """The task-sent events of an app since this began, or since they were last asked for."""

    def __init__(self, connection: Any, app: Celery) -> None:
        self._connection = connection
        self._events: list[dict[str, Any]] = []
        receiver = app.events.Receiver(connection, handlers={"task-sent": self._events.append})
        self._consumer = kombu.Consumer(
            connection.default_channel,
            [receiver.queue],
            callbacks=[receiver._receive],
            no_ack=True,
            accept=["json"],
        )
        self._consumer.consume()
        self()

    def __call__(self, count: int = 0) -> list[dict[str, Any]]:
        """Wait for so many, and a moment longer for those that should not be there."""
        deadline = time.monotonic() + 10
        while len(self._events) < count and time.monotonic() < deadline:
            with suppress(socket.timeout):
                self._connection.drain_events(timeout=0.2)
        with suppress(socket.timeout):
            while True:
                self._connection.drain_events(timeout=0.2)
        events, self._events[:] = list(self._events), []
        return events


@contextmanager
def hearing(app: Celery) -> Iterator[Heard]:
    with app.connection_for_read() as connection:
        yield Heard(connection, app)


class Beat:
    """A real scheduler under a clock of the test's own."""

    def __init__(self, app: Celery) -> None:
        self.clock = FakeClock("2026-02-07T09:05:00Z")
        self._kind = type("Shifted", (Scheduler,), {"clock": self.clock})
        self.scheduler = self._kind(app)
        self.settle()

    def go(self, **duration: float) -> None:
        self.clock.advance(**duration)
        self.settle()

    def settle(self) -> None:
        while self.scheduler.tick() <= 0:
            pass


@pytest.fixture
def start() -> Iterator[Callable[[Celery], Beat]]:
    beats: list[Beat] = []

    def started(app: Celery) -> Beat:
        beats.append(Beat(app))
        return beats[-1]

    yield started
    for beat in beats:
        beat.scheduler.close()


@pytest.fixture(params=["atomic", "outbox on Redis", "outbox on RabbitMQ"])
def place(request: pytest.FixtureRequest, redis_url: str) -> Iterator[dict[str, Any]]:
    """Settings of an app whose messages are pushed by scripts, or published from the outbox."""
    match request.param:
        case "atomic":
            yield {"broker_url": redis_url}
        case "outbox on Redis":
            with private_server() as other:
                yield {"broker_url": other.url(), "catchup_redis_url": redis_url}
        case _:
            url = request.getfixturevalue("rabbitmq_url")
            queue = f"catchup-test-{uuid.uuid4().hex[:12]}"
            names = {"task_default_queue": queue, "event_exchange": f"{queue}-events"}
            yield {"broker_url": url, "catchup_redis_url": redis_url, **names}
            with kombu.Connection(url) as connection:
                connection.default_channel.queue_delete(queue)
                connection.default_channel.exchange_delete(f"{queue}-events")


def an_app(place: dict[str, Any], schedule: dict[str, Any], entries: Any = None, **settings: Any) -> Celery:
    app = Celery("sent", set_as_current=False)
    app.conf.update(
        {
            "beat_schedule": {name: {"task": "proj.etl", **fields} for name, fields in schedule.items()},
            "catchup_entries": entries or {},
            "task_send_sent_event": True,
            "result_expires": None,
            **place,
            **settings,
        }
    )
    return app


HOURLY = crontab(minute=0)
AT_ONCE = {"window": "6h", "overlap_policy": "allow"}
CHAIN = {"window": "6h", "overlap_policy": "all"}

ENTRIES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "arguments": {"args": (1, "ü"), "kwargs": {"a": {"b": [1, None]}}},
    "a priority": {"options": {"priority": 6}},
    "countdown and expires": {"options": {"countdown": 12.5, "expires": 90}},
    "root and parent": {"options": {"root_id": "r", "parent_id": "p"}},
    "shown arguments": {"options": {"argsrepr": "(secret)", "kwargsrepr": "{}"}, "args": (1,)},
}


def test_events_are_those_of_celerys_own_beat(place: dict[str, Any], start: Callable[[Celery], Beat]) -> None:
    tasks = {name: {"task": name, "schedule": HOURLY, **fields} for name, fields in ENTRIES.items()}
    plain = {f"plain {name}": {**fields, "schedule": 3600.0} for name, fields in tasks.items()}
    app = an_app(place, tasks | plain, dict.fromkeys(tasks, AT_ONCE))
    with hearing(app) as heard:
        for fields in tasks.values():
            stock_send(app, ScheduleEntry(name="e", app=app, **fields))
        stock = {event["name"]: event for event in heard(len(tasks))}
        beat = start(app)
        for name in plain:  # their schedules look at the real clock
            beat.scheduler._unmanaged.entries[name].last_run_at -= timedelta(hours=2)
        beat.go(minutes=55)

        ours = heard(2 * len(tasks))

    assert sorted(event["name"] for event in ours) == sorted([*ENTRIES, *ENTRIES])
    for event in ours:
        assert comparable(event) == comparable(stock[event["name"]])
        if event["eta"]:
            between = datetime.fromisoformat(event["expires"]) - datetime.fromisoformat(event["eta"])
            assert between == timedelta(seconds=90 - 12.5)


def comparable(event: dict[str, Any]) -> dict[str, Any]:
    """An event without what two messages cannot have in common."""
    moments = {name: event[name] is not None for name in ("eta", "expires")}
    root = "its own" if event["root_id"] == event["uuid"] else event["root_id"]
    left_out = {"uuid", *OF_THE_SENDER}
    return (
        {name: value for name, value in event.items() if name not in left_out} | moments | {"root_id": root}
    )


def test_a_queue_bound_to_an_exchange_is_named_as_celery_names_it(
    redis_url: str, start: Callable[[Celery], Beat]
) -> None:
    queue = Queue("reports", Exchange("documents", type="topic"), routing_key="documents.#")
    entry = {"schedule": HOURLY, "options": {"queue": "reports", "priority": 3}}
    app = an_app(
        {"broker_url": redis_url},
        {"e": entry},
        {"e": AT_ONCE},
        task_queues=[Queue("celery"), queue],
        broker_transport_options={"global_keyprefix": "prod:"},
    )
    with hearing(app) as heard:
        stock_send(app, ScheduleEntry(name="e", task="proj.etl", app=app, **entry))
        start(app).go(minutes=55)

        stock, ours = heard(2)

    assert comparable(ours) == comparable(stock)
    assert ours["queue"] == "reports"


def test_a_run_that_waits_its_turn_is_announced_by_the_worker_that_releases_it(
    place: dict[str, Any], start: Callable[[Celery], Beat]
) -> None:
    app = an_app(place, {"e": {"schedule": HOURLY}}, {"e": CHAIN})
    store = open_store(app)
    with hearing(app) as heard:
        beat = start(app)
        beat.go(minutes=55)
        beat.go(hours=1)
        first, second = Ledger(store).runs_of("e")
        assert [event["uuid"] for event in heard(1)] == [first["id"]]

        leases = Leases(store, ttl_ms=60_000)
        leases.claim(first["id"], owner="w", task="proj.etl", worker="w", entry="e")
        ending = leases.finish(first["id"], entry="e", owner="w", state=RunState.SUCCEEDED)
        outflow = ReleasedPublisher(app, store, SystemClock())
        outflow.publish(ending.released, ending.pushed)
        outflow._dispatcher.close()

        assert [event["uuid"] for event in heard(1)] == [second["id"]]


def test_later_attempts_and_delayed_runs_are_announced_too(
    place: dict[str, Any], start: Callable[[Celery], Beat]
) -> None:
    policies = {"late": {**AT_ONCE, "jitter": "10m"}, "again": {**CHAIN, "max_attempts": 2}}
    app = an_app(place, {name: {"schedule": HOURLY} for name in policies}, policies)
    store = open_store(app)
    with hearing(app) as heard:
        beat = start(app)
        beat.go(minutes=55)
        (again,) = heard(1)
        leases = Leases(store, ttl_ms=60_000)
        leases.claim(again["uuid"], owner="w", task="proj.etl", worker="w", entry="again")
        leases.finish(again["uuid"], entry="again", owner="w", state=RunState.FAILED)
        beat.go(minutes=10)
        beat.go(seconds=1)  # the outbox of a tick that found runs to be due is published by the next one

        events = heard(2)

    (late,) = Ledger(store).runs_of("late")
    assert {event["uuid"] for event in events} == {late["id"], f"{again['uuid']}-2"}


def test_what_did_not_go_out_is_not_announced(
    redis_url: str, start: Callable[[Celery], Beat], monkeypatch: pytest.MonkeyPatch
) -> None:
    with private_server() as other:
        place = {"broker_url": other.url(), "catchup_redis_url": redis_url}
        app = an_app(place, {"e": {"schedule": HOURLY}}, {"e": AT_ONCE})
        with hearing(app) as heard:
            beat = start(app)
            with monkeypatch.context() as patched:
                patched.setattr("celery_catchup.dispatch.broker._publish", _refuse)
                beat.clock.advance(minutes=55)
                beat.scheduler.tick()
                assert heard() == []

            beat.go(minutes=1)
            assert len(heard(1)) == 1


def _refuse(*_: object) -> None:
    raise OSError("away")


def test_an_event_that_fails_is_logged_and_fails_no_dispatch(
    place: dict[str, Any],
    start: Callable[[Celery], Beat],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("celery.events.dispatcher.EventDispatcher.publish", _refuse)
    tasks = {name: {"schedule": HOURLY} for name in ("first", "second")}
    app = an_app(place, {**tasks, "plain": {"schedule": 3600.0}}, dict.fromkeys(tasks, AT_ONCE))
    beat = start(app)
    beat.scheduler._unmanaged.entries["plain"].last_run_at -= timedelta(hours=2)

    beat.go(minutes=55)

    with app.connection_for_read() as connection:
        queue = app.amqp.queues[app.conf.task_default_queue](connection.default_channel)
        assert sum(queue.get(no_ack=True) is not None for _ in range(4)) == 3
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert line == 'msg="Sent events cannot be sent" error=away'


def test_a_store_that_fails_after_a_commit_fails_no_dispatch(
    redis_url: str, start: Callable[[Celery], Beat], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = an_app({"broker_url": redis_url}, {"e": {"schedule": HOURLY}}, {"e": AT_ONCE})
    beat = start(app)

    def away(*_: object) -> None:
        raise RedisConnectionError("away")

    monkeypatch.setattr(Ledger, "run", away)
    beat.go(minutes=55)

    assert open_store(app).client.llen("celery") == 1


def test_without_the_setting_nothing_is_asked_or_sent(
    place: dict[str, Any], start: Callable[[Celery], Beat], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SentEvents, "_send", _refuse)
    monkeypatch.setattr(Ledger, "admit", _refuse)
    app = an_app(place, {"e": {"schedule": HOURLY}}, {"e": AT_ONCE}, task_send_sent_event=False)
    beat = start(app)

    with hearing(app) as heard:
        beat.go(minutes=55)

        assert heard() == []
    assert type(beat.scheduler._work.engine.services.ledger) is Ledger
