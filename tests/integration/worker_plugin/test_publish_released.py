"""What a worker's report releases is published at once, or left in the outbox for the leader."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import kombu
import pytest

from celery_catchup.clock import SystemClock
from celery_catchup.store import Ledger, OutboxRun, Store, Template
from celery_catchup.store.opening import open_store
from celery_catchup.worker_plugin.publish_released import ReleasedPublisher
from tests.integration.dispatching import SLOT, a_dispatcher, an_app, an_entry


@pytest.fixture
def queue(rabbitmq_url: str) -> Iterator[str]:
    name = f"catchup-test-{uuid.uuid4().hex[:12]}"
    yield name
    with kombu.Connection(rabbitmq_url) as connection:
        connection.default_channel.queue_delete(name)


def released(store: Store, template: Template, *, count: int) -> list[OutboxRun]:
    """Runs that a worker has just released into the outbox."""
    ids = [str(uuid.uuid4()) for _ in range(count)]
    record = (
        f'{{"entry": "hourly", "slot": {SLOT}, "trigger": "catchup", "attempt": 1, "sends": 1, '
        f'"state": "queued", "template": "{template.id}"}}'
    )
    for name, part in template.parts.items():
        store.client.hset(store.keys.templates, name, part.encoded)
    for run_id in ids:
        store.client.hset(store.keys.ledger, run_id, record)
        store.client.zadd(store.keys.outbox, {run_id: SLOT})
    return Ledger(store).outgoing(ids)[0]


def test_threads_that_release_runs_at_once_publish_them_one_by_one(
    rabbitmq_url: str, redis_url: str, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = an_app(rabbitmq_url, task_default_queue=queue, catchup_redis_url=redis_url)
    store = open_store(app)
    with a_dispatcher(app, redis_url) as dispatcher:
        template = dispatcher.template(an_entry(app), policy_entry="hourly")
    runs = released(store, template, count=200)
    outflow = ReleasedPublisher(app, store, SystemClock())

    with ThreadPoolExecutor(10) as threads:
        list(threads.map(lambda run: outflow.publish([run]), runs))
    outflow._dispatcher.close()

    with kombu.Connection(rabbitmq_url) as connection:
        assert connection.default_channel.queue_delete(queue) == 200
    assert store.client.zcard(store.keys.outbox) == 0
    assert caplog.text == ""


def test_a_broker_that_is_away_leaves_runs_in_the_outbox_and_holds_up_no_task(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = an_app("amqp://guest:guest@127.0.0.1:1//", catchup_redis_url=redis_url)
    store = open_store(app)
    with a_dispatcher(app, redis_url) as dispatcher:
        template = dispatcher.template(an_entry(app), policy_entry="hourly")
    runs = released(store, template, count=500)
    outflow = ReleasedPublisher(app, store, SystemClock())

    begun = time.monotonic()
    outflow.publish(runs)

    assert time.monotonic() - begun < 3
    assert store.client.zcard(store.keys.outbox) == 500
    assert caplog.text.count("Released runs are left in the outbox") == 1


def test_a_thread_does_not_wait_for_ever_for_its_turn(redis_url: str) -> None:
    app = an_app("amqp://guest:guest@127.0.0.1:1//", catchup_redis_url=redis_url)
    store = open_store(app)
    with a_dispatcher(app, redis_url) as dispatcher:
        template = dispatcher.template(an_entry(app), policy_entry="hourly")
    runs = released(store, template, count=1)
    outflow = ReleasedPublisher(app, store, SystemClock())

    begun = time.monotonic()
    with outflow._lock:  # as a thread does whose broker is slow
        outflow.publish(runs)

    assert time.monotonic() - begun < 2 + 1, "the leader publishes it after two seconds"
    assert store.client.zcard(store.keys.outbox) == 1
