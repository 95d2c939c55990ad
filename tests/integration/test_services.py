"""The services that the other tests build on do what their fixtures say."""

from __future__ import annotations

import kombu
import redis

from celery_catchup.testing.embedded_server import EmbeddedServer


def test_rabbitmq_returns_what_it_was_given(rabbitmq_url: str) -> None:
    with kombu.Connection(rabbitmq_url) as connection:
        queue = connection.SimpleQueue("catchup-test-services", queue_opts={"auto_delete": True})
        queue.put({"slot": "10:00"})

        message = queue.get(timeout=5)
        message.ack()
        queue.close()

    assert message.payload == {"slot": "10:00"}


def test_each_test_gets_an_empty_database(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
        client.set("left", "behind")


def test_each_test_gets_an_empty_database_again(redis_url: str) -> None:
    test_each_test_gets_an_empty_database(redis_url)


def test_a_server_that_a_test_kills(valkey: EmbeddedServer, redis_url: str) -> None:
    valkey.kill()

    assert not valkey.running


def test_is_back_for_the_next_test(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.ping()
