"""How many messages a queue holds: asked of real brokers before anything counts as lost."""

from __future__ import annotations

from typing import Any

import kombu
import pytest

from tests.integration.dispatching import a_dispatcher, an_app, an_entry


@pytest.fixture(params=["redis", "prefixed redis", "rabbitmq"])
def app(request: pytest.FixtureRequest, redis_url: str, queue: str) -> Any:
    url = request.getfixturevalue("rabbitmq_url") if request.param == "rabbitmq" else redis_url
    options = (
        {"broker_transport_options": {"global_keyprefix": "prod:"}} if "prefixed" in request.param else {}
    )
    return an_app(url, task_default_queue=queue, **options)


def test_the_depth_of_a_queue_counts_what_waits_there(app: Any, redis_url: str, queue: str) -> None:
    with a_dispatcher(app, redis_url) as dispatcher:
        template = dispatcher.template(an_entry(app), policy_entry="hourly")
        place = template.queue_name, template.routing_key
        depths = [dispatcher.depth(*place)]
        for _ in range(2):
            app.send_task("proj.etl", queue=queue)
            depths.append(dispatcher.depth(*place))

    assert place == (queue, queue)
    assert depths == [0, 1, 2]


def test_a_message_that_a_worker_of_a_redis_broker_has_received_counts(redis_url: str, queue: str) -> None:
    app = an_app(redis_url, task_default_queue=queue)
    app.send_task("proj.etl")
    with a_dispatcher(app, redis_url) as dispatcher, app.connection_for_read() as worker:
        consumer = kombu.Consumer(worker, queues=[app.amqp.queues[queue]], callbacks=[lambda *_: None])
        with consumer:
            worker.drain_events(timeout=5)

            held = dispatcher.depth(queue, queue), dispatcher.depth(queue, "another")
            worker.default_channel.qos.ack(next(iter(worker.default_channel.qos._delivered)))

            assert held == (1, 0)
            assert dispatcher.depth(queue, queue) == 0


@pytest.mark.parametrize("prefix", ["", "prod:"])
def test_messages_with_a_priority_are_counted_apart_from_live_ones_on_redis(
    redis_url: str, queue: str, prefix: str
) -> None:
    app = an_app(redis_url, task_default_queue=queue, broker_transport_options={"global_keyprefix": prefix})
    for priority in (0, 9):
        app.send_task("proj.etl", priority=priority)
    with a_dispatcher(app, redis_url) as dispatcher, app.connection_for_read() as worker:
        waiting = [dispatcher.depth(queue, queue, priority) for priority in (0, 9, 6)]
        callbacks = [lambda *_: None]
        with kombu.Consumer(worker, queues=[app.amqp.queues[queue]], callbacks=callbacks):
            worker.drain_events(timeout=5)  # the live one
            after_one = dispatcher.depth(queue, queue, 9)
            worker.drain_events(timeout=5)
            received = [dispatcher.depth(queue, queue, priority) for priority in (0, 9, 6)]

    assert waiting == [2, 1, 0]
    assert after_one == 1
    assert received == [2, 1, 0], "not acknowledged yet"


def test_a_broker_that_does_not_answer_tells_nothing(redis_url: str) -> None:
    app = an_app("amqp://guest:guest@127.0.0.1:1//")
    with a_dispatcher(app, redis_url) as dispatcher:
        assert dispatcher.depth("celery", "celery") is None


def test_a_message_to_an_exchange_without_a_known_queue_has_no_depth(
    redis_url: str, rabbitmq_url: str
) -> None:
    app = an_app(rabbitmq_url)
    options = {"exchange": "amq.topic", "routing_key": "a.b"}
    with a_dispatcher(app, redis_url) as dispatcher:
        template = dispatcher.template(an_entry(app, options=options), policy_entry="hourly")

        assert (template.routing_key, template.queue_name) == ("a.b", "")
        assert dispatcher.depth(template.queue_name, template.routing_key) is None
