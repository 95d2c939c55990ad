"""What is on a broker, read as a worker would and without the package: the oracle of these tests."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import kombu
import redis
from amqp.exceptions import NotFound


@dataclass(frozen=True)
class Message:
    """One message: its headers, and what the task is called with."""

    headers: dict[str, Any]
    properties: dict[str, Any]
    args: list[Any]
    kwargs: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.headers["id"])

    @property
    def entry(self) -> str | None:
        return self.headers.get("catchup_entry")

    @property
    def slot(self) -> str:
        return str(self.headers["scheduled_time"])

    @property
    def run_id(self) -> str | None:
        return self.headers.get("catchup_run_id")

    @property
    def told(self) -> tuple[str, bool, str]:
        """What every message of beat tells its task."""
        return self.slot, self.headers["is_catchup"], self.headers["trigger_type"]


def on_redis(client: redis.Redis, queue: str = "celery") -> list[Message]:
    """The messages of a queue, oldest first; they stay there."""
    found: Any = client.lrange(queue, 0, -1)
    return [_from_redis(json.loads(text)) for text in reversed(found)]


def _from_redis(raw: dict[str, Any]) -> Message:
    args, kwargs, _ = json.loads(b64decode(raw["body"]))
    return Message(raw["headers"], raw["properties"], args, kwargs)


class RabbitQueue:
    """A queue on RabbitMQ; what it holds is looked at, not taken away."""

    def __init__(self, url: str, name: str) -> None:
        self.url, self.name = url, name

    @contextmanager
    def _queue(self) -> Iterator[Any]:
        with kombu.Connection(self.url) as connection:
            yield kombu.Queue(self.name, exchange=kombu.Exchange(self.name), routing_key=self.name)(
                connection.default_channel
            )

    def __len__(self) -> int:
        with self._queue() as queue:
            try:
                return int(queue.channel.queue_declare(queue=self.name, passive=True).message_count)
            except NotFound:
                return 0

    def messages(self) -> list[Message]:
        """All of them, oldest first. Nothing is acknowledged, so the broker keeps them."""
        found = []
        with self._queue() as queue:
            while (message := queue.get(no_ack=False)) is not None:
                args, kwargs, _ = message.decode()
                found.append(Message(message.headers, message.properties, args, kwargs))
        return found

    def purge(self) -> None:
        with self._queue() as queue:
            queue.declare()
            queue.purge()

    def delete(self) -> None:
        with self._queue() as queue:
            queue.delete()
            kombu.Exchange(self.name)(queue.channel).delete()
