"""Runs of the outbox are published in windows: messages are sent before earlier ones are confirmed."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import kombu
import pytest
from celery import Celery
from kombu import Exchange, Queue
from kombu.utils import json as kombu_json

from celery_catchup.dispatch import Dispatcher, DispatchError, amqp_confirms, render
from celery_catchup.dispatch.amqp_confirms import ConfirmingChannel
from celery_catchup.dispatch.broker import Broker
from celery_catchup.dispatch.header_names import SLOTS
from celery_catchup.dispatch.placeholders import value_placeholder
from celery_catchup.dispatch.prepared_message import OutgoingMessage
from celery_catchup.store import OutboxRun
from tests.integration.dispatching import NOW, a_dispatcher, a_run, an_app, an_entry
from tests.services import private_server

COUNT = 40


def template(dispatcher: Dispatcher, app: Celery, **fields: Any) -> dict[str, Any]:
    stored: dict[str, Any] = vars(dispatcher.template(an_entry(app, **fields), policy_entry="hourly"))
    return stored


def runs(template: Mapping[str, Any], count: int = COUNT) -> list[OutboxRun]:
    return [OutboxRun(str(uuid.uuid4()), a_run(), template) for _ in range(count)]


def publish(dispatcher: Dispatcher, *windows: list[OutboxRun]) -> dict[str, str]:
    """What became of each run: the code of its error, or nothing."""
    sent = [one for window in dispatcher.publish(windows, now=NOW) for one in window]
    assert [one.run for one in sent] == [one for window in windows for one in window]
    return {one.run.id: getattr(one.error, "code", "") for one in sent}


def delivered(url: str, queue: str) -> list[str]:
    """The ids of all tasks in a queue."""
    found = []
    with kombu.Connection(url) as connection:
        bound = Queue(queue)(connection.default_channel)
        while (message := bound.get(no_ack=True)) is not None:
            found.append(message.headers["id"])
    return found


@pytest.fixture
def place(rabbitmq_url: str, redis_url: str, queue: str) -> Iterator[tuple[Dispatcher, Celery]]:
    app = an_app(rabbitmq_url, task_default_queue=queue)
    with a_dispatcher(app, redis_url) as dispatcher:
        yield dispatcher, app


Place = tuple[Dispatcher, Celery]
NOWHERE = {"exchange": "catchup-test-nowhere", "exchange_type": "topic", "routing_key": "x", "declare": []}


def unbound(queue: str) -> dict[str, Any]:
    """Options of a message that its exchange takes, and no queue."""
    exchange = Exchange(f"{queue}-exchange", type="topic", durable=False, auto_delete=True)
    bound = Queue(queue, exchange, routing_key="somebody")
    return {
        "exchange": exchange.name,
        "exchange_type": "topic",
        "routing_key": "nobody",
        "declare": [bound],
    }


def test_windows_arrive_in_order_each_message_once(place: Place, rabbitmq_url: str, queue: str) -> None:
    dispatcher, app = place
    windows = [runs(template(dispatcher, app, args=(number,))) for number in range(3)]

    outcomes = publish(dispatcher, *windows)

    assert set(outcomes.values()) == {""}
    assert delivered(rabbitmq_url, queue) == list(outcomes)


def test_a_message_that_no_queue_takes_is_its_own_trouble(
    place: Place, rabbitmq_url: str, queue: str
) -> None:
    dispatcher, app = place
    lost = runs(template(dispatcher, app, options=unbound(queue)), 3)
    others = runs(template(dispatcher, app))
    window = [*others[:5], lost[0], *others[5:10], lost[1], lost[2], *others[10:]]

    outcomes = publish(dispatcher, window)

    assert {run for run, code in outcomes.items() if code == "unroutable"} == {one.id for one in lost}
    assert delivered(rabbitmq_url, queue) == [one.id for one in others]


def test_large_messages_that_come_back_do_not_block_the_connection(place: Place, queue: str) -> None:
    """The broker sends each of them back while more are written: somebody has to read."""
    dispatcher, app = place
    large = template(dispatcher, app, args=("x" * 300_000,), options=unbound(queue))

    outcomes = publish(dispatcher, runs(large, 60))

    assert set(outcomes.values()) == {"unroutable"}


def test_a_full_queue_is_its_own_trouble(rabbitmq_url: str, redis_url: str, queue: str) -> None:
    small = Queue(queue, queue_arguments={"x-max-length": 5, "x-overflow": "reject-publish"})
    with kombu.Connection(rabbitmq_url) as connection:
        other = f"{queue}-other"
        app = an_app(rabbitmq_url, task_queues=[small, Queue(other)], task_default_queue=queue)
        with a_dispatcher(app, redis_url) as dispatcher:
            filled = runs(template(dispatcher, app), 8)
            others = runs(template(dispatcher, app, options={"queue": other}), 8)
            window = [one for pair in zip(filled, others, strict=True) for one in pair]

            outcomes = publish(dispatcher, window)

        refused = {run for run, code in outcomes.items() if code == "queue_full"}
        assert connection.default_channel.queue_delete(other) == 8
    assert refused
    assert refused < {one.id for one in filled}
    assert sorted([*delivered(rabbitmq_url, queue), *refused]) == sorted(one.id for one in filled)


def test_a_channel_that_the_broker_closes_costs_only_the_message_at_fault(
    place: Place, rabbitmq_url: str, queue: str
) -> None:
    dispatcher, app = place
    lost = runs(template(dispatcher, app, options=NOWHERE), 2)
    others = runs(template(dispatcher, app))

    outcomes = publish(dispatcher, [*others[:20], *lost], others[20:])

    assert {run for run, code in outcomes.items() if code} == {one.id for one in lost}
    assert set(delivered(rabbitmq_url, queue)) == {one.id for one in others}


def test_a_queue_that_was_declared_in_another_way_costs_only_its_own_messages(
    rabbitmq_url: str, redis_url: str, queue: str
) -> None:
    other = f"{queue}-other"
    with kombu.Connection(rabbitmq_url) as connection:
        Queue(other, queue_arguments={"x-max-length": 7})(connection.default_channel).declare()
        app = an_app(rabbitmq_url, task_default_queue=queue)
        with a_dispatcher(app, redis_url) as dispatcher:
            refused = runs(template(dispatcher, app, options={"queue": other}), 3)
            others = runs(template(dispatcher, app), 3)

            outcomes = publish(dispatcher, [*refused, *others])

        connection.default_channel.queue_delete(other)
    assert list(outcomes.values()) == ["refused"] * 3 + [""] * 3
    assert delivered(rabbitmq_url, queue) == [one.id for one in others]


@pytest.mark.parametrize("header", [2**70, "x" * 200_000], ids=["no type", "too long for a frame"])
def test_a_header_that_amqp_cannot_carry_is_its_entrys_trouble(
    place: Place, rabbitmq_url: str, queue: str, header: object
) -> None:
    dispatcher, app = place
    (wrong,) = runs(template(dispatcher, app, options={"headers": {"large": header}}), 1)
    others = runs(template(dispatcher, app), 6)

    outcomes = publish(dispatcher, [*others[:3], wrong, *others[3:]])

    assert {run: code for run, code in outcomes.items() if code} == {wrong.id: "invalid"}
    assert set(delivered(rabbitmq_url, queue)) == {one.id for one in others}


def test_a_damaged_template_is_its_entrys_trouble(place: Place, rabbitmq_url: str, queue: str) -> None:
    dispatcher, app = place
    damaged = runs({"message": "[half of it"}, 1)
    others = runs(template(dispatcher, app), 3)

    found = [one for window in dispatcher.publish([[*damaged, *others]], now=NOW) for one in window]

    assert {one.run.id: one.error.code for one in found if isinstance(one.error, DispatchError)} == {
        damaged[0].id: "invalid"
    }
    assert delivered(rabbitmq_url, queue) == [one.id for one in others]


@pytest.mark.parametrize("after", [0, 25, COUNT], ids=["before", "within", "before its confirmations"])
def test_a_connection_that_is_lost_leaves_runs_unconfirmed_and_the_next_try_succeeds(
    place: Place, rabbitmq_url: str, queue: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher, app = place
    stored = template(dispatcher, app)
    first, second, third = runs(stored), runs(stored), runs(stored)
    write = ConfirmingChannel.publish
    count = iter(range(10_000))

    def publish_or_lose(self: ConfirmingChannel, frames: bytes, task_id: str) -> int:
        if next(count) == COUNT + after:  # in the second window
            self.flush()
            self._connection.transport.sock.shutdown(socket.SHUT_RDWR)
        return write(self, frames, task_id)

    monkeypatch.setattr(ConfirmingChannel, "publish", publish_or_lose)

    outcomes = publish(dispatcher, first, second, third)
    unsure = [one for one in [*first, *second, *third] if outcomes[one.id] == "unreachable"]
    again = publish(dispatcher, unsure)

    # Nothing counts as sent that did not arrive; what arrived without a confirmation arrives twice.
    arrived = delivered(rabbitmq_url, queue)
    assert set(arrived) == set(outcomes)
    assert unsure
    assert set(again.values()) == {""}
    assert len(arrived) <= len(outcomes) + len(unsure)


def test_whoever_stops_in_the_middle_leaves_no_late_confirmations(place: Place) -> None:
    dispatcher, app = place
    stored = template(dispatcher, app)
    windows = iter([runs(stored), runs(stored)])
    publishing = dispatcher.publish(windows, now=NOW)
    next(publishing)

    publishing.close()  # type: ignore[attr-defined]

    assert set(publish(dispatcher, runs(stored)).values()) == {""}


# -- what is written ---------------------------------------------------------------------------------


CASES: dict[str, dict[str, Any]] = {
    "plainest": {},
    "arguments": {"args": (1, "ü"), "kwargs": {"a": None}},
    "looks like a placeholder": {"args": ("@catchup:task_id@ %s",), "kwargs": {"x": "\\u0040catchup!entry@"}},
    "headers": {"options": {"headers": {"deep": {"list": [1, None, 2.5, "@catchup:run_id@"]}, "100%": "%d"}}},
    "expires, countdown": {"options": {"expires": 61.001, "countdown": 5, "priority": 3}},
    "span of slots": {"options": {"headers": {SLOTS: value_placeholder("slots")}}},
}


@pytest.mark.parametrize("fields", CASES.values(), ids=CASES)
@pytest.mark.parametrize("shared", [True, False])
def test_a_filled_in_message_is_the_rendered_one(
    redis_url: str, fields: dict[str, Any], shared: bool
) -> None:
    app = an_app("amqp://guest:guest@127.0.0.1:1//")
    with a_dispatcher(app, redis_url) as dispatcher:
        made = dispatcher.template(an_entry(app, name="ü %s", **fields), policy_entry="hourly")
    stored = vars(made) if shared else {**vars(made), "message": made.text, "inputs": {}}
    (one,) = runs(stored, 1)

    message = OutgoingMessage.of(one, NOW)

    loads: Any = kombu_json.loads
    assert message.publication == loads(render(stored, one.id, one.run, NOW))
    assert json.dumps(message.publication["headers"])  # no placeholder object is left


def test_our_frames_are_those_of_the_installed_driver() -> None:
    assert amqp_confirms._encodes_as_driver()


def test_a_driver_that_encodes_differently_confirms_each_message(
    place: Place, rabbitmq_url: str, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher, app = place
    monkeypatch.setattr(amqp_confirms, "_encodes_as_driver", lambda: False)
    window = runs(template(dispatcher, app), 5)

    outcomes = publish(dispatcher, window)

    assert set(outcomes.values()) == {""}
    assert delivered(rabbitmq_url, queue) == [one.id for one in window]


# -- one by one --------------------------------------------------------------------------------------


def a_slow_broker(monkeypatch: pytest.MonkeyPatch, published: list[str]) -> None:
    def publish(_: Broker, publication: Mapping[str, Any]) -> None:
        published.append(publication["headers"]["id"])

    monkeypatch.setattr(Broker, "publish", publish)


def test_a_broker_that_takes_messages_one_by_one_is_left_in_time(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[str] = []
    with private_server() as other:
        app = an_app(other.url())
        with a_dispatcher(app, redis_url) as dispatcher:
            window = runs(template(dispatcher, app), 5)
            a_slow_broker(monkeypatch, published)
            enough: Callable[[], bool] = lambda: len(published) == 2  # noqa: E731

            (sent,) = dispatcher.publish([window], now=NOW, enough=enough)

    assert [one.run.id for one in sent] == published == [one.id for one in window[:2]]
