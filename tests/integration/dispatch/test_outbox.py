"""What goes to another broker is published from the outbox, confirmed, or raises in time."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import kombu
import pytest
import redis
from celery import Celery
from kombu import Exchange, Queue

from celery_catchup.dispatch import Dispatcher, DispatchError, Mode, render
from celery_catchup.dispatch.broker import TIMEOUT, Broker
from celery_catchup.store import Template
from tests.integration.dispatching import (
    NOW,
    RUN_ID,
    SLOT,
    a_dispatcher,
    a_run,
    an_app,
    an_entry,
    comparable_headers,
    publish_run,
    queues,
    stock_send,
    without,
)
from tests.services import private_server


def received(url: str, queue: str) -> list[Any]:
    """Everything in a queue of RabbitMQ."""
    messages = []
    with kombu.Connection(url) as connection:
        bound = Queue(queue)(connection.default_channel)
        while (message := bound.get(no_ack=True)) is not None:
            messages.append(message)
    return messages


def publish(dispatcher: Dispatcher, app: Celery, run: dict[str, Any] | None = None, **fields: Any) -> None:
    template = dispatcher.template(an_entry(app, **fields), policy_entry="hourly")
    publish_run(dispatcher, stored_form(template), run)


def stored_form(template: Template) -> dict[str, Any]:
    """The template as a publisher reads it from the store."""
    read = {name: json.loads(part.encoded) for name, part in template.parts.items()}
    own = read[template.id]
    return {**read[own["base"]], "inputs": own["inputs"]} if "base" in own else own


# -- RabbitMQ ------------------------------------------------------------------------------------


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plainest": ({}, {"args": (1, "ü")}),
    "compressed": ({"task_compression": "gzip"}, {"args": ("x" * 500,)}),
    "pickle": ({}, {"options": {"serializer": "pickle"}}),
    "yaml": ({}, {"options": {"serializer": "yaml"}}),
    "priority, delivery mode, expires": (
        {},
        {"options": {"priority": 3, "delivery_mode": 1, "expires": 61.001}},
    ),
    "headers": ({}, {"options": {"headers": {"tenant": "acme", "deep": {"list": [1, None, 2.5]}}}}),
    "a task that beat does not know": ({}, {"task": "elsewhere.task"}),
}


@pytest.mark.parametrize(("settings", "fields"), CASES.values(), ids=CASES)
def test_what_is_published_is_what_a_stock_send_publishes(
    rabbitmq_url: str, redis_url: str, queue: str, settings: dict[str, Any], fields: dict[str, Any]
) -> None:
    app = an_app(rabbitmq_url, task_default_queue=queue, **settings)
    entry = an_entry(app, **fields)
    with a_dispatcher(app, redis_url) as dispatcher:
        template = dispatcher.template(entry, policy_entry="hourly")
        publish_run(dispatcher, vars(template))
    stock_id = stock_send(app, entry)

    ours, theirs = received(rabbitmq_url, queue)

    assert ours.headers["is_catchup"] is True
    assert ours.headers["id"] == ours.headers["root_id"] == RUN_ID == ours.properties["correlation_id"]
    assert theirs.headers["id"] == stock_id
    assert (ours.body, ours.content_type, ours.content_encoding) == (
        theirs.body,
        theirs.content_type,
        theirs.content_encoding,
    )
    assert comparable_headers(ours.headers) == comparable_headers(theirs.headers)
    assert without(ours.properties, "application_headers", "correlation_id", "reply_to") == without(
        theirs.properties, "application_headers", "correlation_id", "reply_to"
    )


def test_a_plain_entry_is_published_with_protocol_1_too(
    rabbitmq_url: str, redis_url: str, queue: str
) -> None:
    app = an_app(rabbitmq_url, task_default_queue=queue, task_protocol=1)
    with a_dispatcher(app, redis_url) as dispatcher:
        assert dispatcher.unmanaged_messages(an_entry(app, args=(1,)), slot=SLOT, now=NOW) == ("", 0, [])
    stock_id = stock_send(app, an_entry(app, args=(1,)))

    ours, theirs = (message.decode() for message in received(rabbitmq_url, queue))

    assert without(ours, "id") == without(theirs, "id")
    assert theirs["id"] == stock_id != ours["id"]


def test_making_a_message_for_rabbitmq_needs_no_rabbitmq(redis_url: str) -> None:
    app = an_app("amqp://guest:guest@127.0.0.1:1//")
    with a_dispatcher(app, redis_url) as dispatcher:
        template = dispatcher.template(an_entry(app), policy_entry="hourly")

        assert (dispatcher.mode, template.queue) == (Mode.OUTBOX, None)
        assert dispatcher.reason == "the broker speaks amqp, not Redis; runs are published from the outbox"


def test_queues_and_bindings_are_declared_before_publishing(
    rabbitmq_url: str, redis_url: str, queue: str
) -> None:
    exchange = Exchange(f"{queue}-exchange", type="topic", durable=False, auto_delete=True)
    bound = Queue(
        queue,
        bindings=[kombu.binding(exchange, routing_key="a.#"), kombu.binding(exchange, routing_key="b.#")],
        queue_arguments={"x-max-priority": 5},
    )
    app = an_app(rabbitmq_url, task_queues=[bound], task_default_queue=queue)
    options = {"exchange": exchange.name, "exchange_type": "topic", "routing_key": "b.x", "declare": [bound]}
    with a_dispatcher(app, redis_url) as dispatcher:
        publish(dispatcher, app, options=options)

    assert len(received(rabbitmq_url, queue)) == 1


def test_a_message_that_no_queue_takes_raises(rabbitmq_url: str, redis_url: str, queue: str) -> None:
    exchange = Exchange(f"{queue}-exchange", type="topic", durable=False, auto_delete=True)
    bound = Queue(queue, exchange, routing_key="somebody")
    app = an_app(rabbitmq_url, task_queues=[bound], task_default_queue=queue)
    options = {
        "exchange": exchange.name,
        "exchange_type": "topic",
        "routing_key": "nobody",
        "declare": [bound],
    }
    with a_dispatcher(app, redis_url) as dispatcher:
        with pytest.raises(DispatchError, match="routing key 'nobody' is unroutable") as caught:
            publish(dispatcher, app, options=options)

        assert (caught.value.code, caught.value.temporary) == ("unroutable", False)
        # The connection that holds a late confirmation is not used again.
        publish(dispatcher, app)
    assert len(received(rabbitmq_url, queue)) == 1


def test_an_exchange_that_does_not_exist_raises(rabbitmq_url: str, redis_url: str) -> None:
    app = an_app(rabbitmq_url)
    options = {
        "exchange": "catchup-test-nowhere",
        "exchange_type": "topic",
        "routing_key": "x",
        "declare": [],
    }
    with a_dispatcher(app, redis_url) as dispatcher, pytest.raises(DispatchError, match="unroutable"):
        publish(dispatcher, app, options=options)


def test_a_full_queue_raises_until_there_is_room(rabbitmq_url: str, redis_url: str, queue: str) -> None:
    small = Queue(queue, queue_arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    app = an_app(rabbitmq_url, task_queues=[small], task_default_queue=queue)
    with a_dispatcher(app, redis_url) as dispatcher:
        publish(dispatcher, app)
        with pytest.raises(DispatchError, match=f"queue '{queue}' is full") as caught:
            publish(dispatcher, app)
        # It is that queue's trouble: others may take their messages.
        assert (caught.value.code, caught.value.temporary) == ("queue_full", False)
        assert len(received(rabbitmq_url, queue)) == 1

        publish(dispatcher, app)
    assert len(received(rabbitmq_url, queue)) == 1


def test_a_queue_that_was_declared_in_another_way_is_refused(
    rabbitmq_url: str, redis_url: str, queue: str
) -> None:
    with kombu.Connection(rabbitmq_url) as connection:
        Queue(queue, queue_arguments={"x-max-length": 7})(connection.default_channel).declare()
    app = an_app(rabbitmq_url, task_default_queue=queue)
    refusal = pytest.raises(DispatchError, match="refuses .*PRECONDITION_FAILED")
    with a_dispatcher(app, redis_url) as dispatcher, refusal as caught:
        publish(dispatcher, app)

    assert caught.value.code == "refused"


def test_a_plain_entry_is_published_at_once(rabbitmq_url: str, redis_url: str, queue: str) -> None:
    app = an_app(rabbitmq_url, task_default_queue=queue)
    with a_dispatcher(app, redis_url) as dispatcher:
        assert dispatcher.unmanaged_messages(an_entry(app), slot=SLOT, now=NOW) == ("", 0, [])

    (message,) = received(rabbitmq_url, queue)
    assert message.headers["scheduled_time"] == "2026-02-07T10:00:00Z"
    assert message.headers["is_catchup"] is False


def test_a_lost_connection_costs_one_failure(rabbitmq_url: str, redis_url: str, queue: str) -> None:
    app = an_app(rabbitmq_url, task_default_queue=queue)
    with a_dispatcher(app, redis_url) as dispatcher:
        publish(dispatcher, app)
        dispatcher._broker.connection.connection.transport.sock.shutdown(socket.SHUT_RDWR)

        with pytest.raises(DispatchError, match="broker unreachable"):
            publish(dispatcher, app)
        publish(dispatcher, app)

    assert len(received(rabbitmq_url, queue)) == 2


# -- another Redis -------------------------------------------------------------------------------


def test_a_broker_on_another_server_gets_the_outbox(redis_url: str) -> None:
    with private_server() as other:
        app = an_app(other.url())
        with a_dispatcher(app, redis_url) as dispatcher:
            assert dispatcher.mode is Mode.OUTBOX
            assert "broker and state are on different Redis servers" in dispatcher.reason
            publish(dispatcher, app, options={"priority": 3})

        assert queues(redis_url) == {}
        ((key, (text,)),) = queues(other.url()).items()
    assert key == "celery\x06\x163"
    assert json.loads(text)["headers"]["id"] == RUN_ID


def test_a_message_that_no_queue_of_redis_takes_raises_too(redis_url: str) -> None:
    with private_server() as other:
        app = an_app(other.url())
        options = {"exchange": "imports", "exchange_type": "topic", "routing_key": "nobody"}
        lost = pytest.raises(DispatchError, match="exchange 'imports', routing key 'nobody' is unroutable")
        with a_dispatcher(app, redis_url) as dispatcher, lost:
            publish(dispatcher, app, options=options)


def test_a_redis_that_is_out_of_memory_is_full(redis_url: str) -> None:
    with private_server() as other, redis.Redis.from_url(other.url()) as admin:
        app = an_app(other.url())
        with a_dispatcher(app, redis_url) as dispatcher:
            publish(dispatcher, app)
            admin.config_set("maxmemory", 1)
            with pytest.raises(DispatchError) as caught:
                publish(dispatcher, app)
            admin.config_set("maxmemory", 0)
            publish(dispatcher, app)

    assert (caught.value.code, caught.value.temporary) == ("full", True)


def test_a_kombu_that_has_changed_gets_the_outbox(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def put_elsewhere(self: Any, queue: str, message: Any, **_: Any) -> None:
        with self.conn_or_acquire() as client:
            client.xadd(queue, {"message": json.dumps(message)})

    monkeypatch.setattr("kombu.transport.redis.Channel._put", put_elsewhere)
    app = an_app(redis_url)
    with a_dispatcher(app, redis_url) as dispatcher:
        assert dispatcher.mode is Mode.OUTBOX
        assert "pushes messages in a way that is not known here" in dispatcher.reason
        publish(dispatcher, app)

    with redis.Redis.from_url(redis_url) as client:
        assert client.xlen("celery") == 1


def test_a_broker_that_comes_later_is_found_later(redis_url: str) -> None:
    with private_server() as other:
        app = an_app(other.url())
        other.stop()
        with redis.Redis.from_url(redis_url) as state:
            dispatcher = Dispatcher(app, state=state, state_db=0)
            with pytest.raises(DispatchError, match="broker unreachable"):
                dispatcher.template(an_entry(app), policy_entry="hourly")

            other.start()
            dispatcher.template(an_entry(app), policy_entry="hourly")

            assert dispatcher.mode is Mode.OUTBOX
            dispatcher.close()


def test_another_transport_altogether_works_too(redis_url: str) -> None:
    app = an_app("memory://")
    with a_dispatcher(app, redis_url) as dispatcher:
        assert (dispatcher.mode, "not Redis" in dispatcher.reason) == (Mode.OUTBOX, True)
        publish(dispatcher, app)

    with app.connection_for_read() as connection:
        message = Queue("celery")(connection.default_channel).get(no_ack=True)
    assert message is not None
    assert message.headers["catchup_run_id"] == RUN_ID


# -- brokers that do not answer ------------------------------------------------------------------


@contextmanager
def a_silent_port() -> Iterator[int]:
    """Accepts connections and never says a word."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        yield silent.getsockname()[1]


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_a_silent_broker_is_given_up_in_time(redis_url: str, scheme: str) -> None:
    with a_silent_port() as port, redis.Redis.from_url(redis_url) as state:
        app = an_app(f"{scheme}://127.0.0.1:{port}/0", broker_connection_timeout=1)
        dispatcher = Dispatcher(app, state=state, state_db=0)
        begun = time.monotonic()
        with pytest.raises(DispatchError, match="broker unreachable") as caught:
            dispatcher.unmanaged_messages(an_entry(app), slot=SLOT, now=NOW)
        taken = time.monotonic() - begun
        dispatcher.close()

    assert caught.value.code == "unreachable"
    assert taken < TIMEOUT + 1


def test_time_outs_of_the_users_own_are_kept(redis_url: str) -> None:
    mine = {"socket_timeout": 0.3, "socket_connect_timeout": 0.2, "retry_on_timeout": True}
    app = an_app(redis_url, broker_transport_options=mine)

    options = Broker(app).connection.transport_options

    assert (options["socket_timeout"], options["socket_connect_timeout"]) == (0.3, 0.2)
    assert options["retry_on_timeout"] is False
    assert app.conf.broker_transport_options == mine


def test_amqp_is_confirmed_and_bounded_whatever_the_user_says() -> None:
    app = an_app("amqp://", broker_transport_options={"confirm_publish": False, "read_timeout": 9})

    options = Broker(app).connection.transport_options

    assert options == {"confirm_publish": True, "read_timeout": 9, "write_timeout": TIMEOUT}


def test_a_password_is_not_in_an_error(redis_url: str) -> None:
    app = an_app("redis://:hush@127.0.0.1:1/0")
    with redis.Redis.from_url(redis_url) as state:
        dispatcher = Dispatcher(app, state=state, state_db=0)
        with pytest.raises(DispatchError) as caught:
            dispatcher.probe()

    assert "hush" not in str(caught.value)


def test_a_stored_template_is_all_that_publishing_needs(
    redis_url: str, rabbitmq_url: str, queue: str
) -> None:
    made = an_app(rabbitmq_url, task_default_queue=queue)
    with a_dispatcher(made, redis_url) as dispatcher:
        stored = stored_form(dispatcher.template(an_entry(made), policy_entry="hourly"))
    assert json.loads(render(stored, RUN_ID, a_run(), NOW))["headers"]["catchup_run_id"] == RUN_ID

    with a_dispatcher(an_app(rabbitmq_url), redis_url) as another:
        publish_run(another, stored)

    assert len(received(rabbitmq_url, queue)) == 1
