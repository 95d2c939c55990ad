"""Catches a message on its way to the broker. The only file that leans on private kombu names.

- ``Producer._publish``: takes what is to be sent, serialised and compressed;
- ``registry._encoders``: the functions behind the names of serializers;
- ``Channel._put``, ``Channel._put_fanout`` of the Redis transport: take a message to its queue,
  through the client that ``Channel.conn_or_acquire`` gives them;
- ``Channel._size`` of transports that are not AMQP: how many messages a queue holds.

What kombu's own ``_put`` does to that client is what is recorded: one ``LPUSH``, or else the
message cannot be pushed by a script. `can_capture` tries it, so that a kombu which has changed
is noticed at start.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NoReturn, TypeVar

from kombu import compression
from kombu.messaging import Producer
from kombu.serialization import registry
from kombu.transport.redis import Transport as RedisTransport
from kombu.utils import json as kombu_json

from celery_catchup.dispatch.kombu_entities import described

# kombu's functions carry no types
_dumps: Any = kombu_json.dumps
_encoder_of: Any = compression.get_encoder
_PROBE = "celery-catchup.probe"
# Modules of the functions that kombu registers by itself.
_SERIALIZERS = ("kombu.utils.json", "kombu.serialization", "yaml")
_COMPRESSORS = ("zlib", "bz2", "lzma", "brotli", "kombu.compression")

Result = TypeVar("Result")


@dataclass
class Capture:
    """What one ``apply_async`` sends. ``held``: it is kept back; else it goes on its way."""

    held: bool
    publications: list[str] = field(default_factory=list)
    """As JSON: everything a plain Producer needs to publish it later."""
    pushes: list[tuple[str, str]] = field(default_factory=list)
    """Redis only: the key of the queue and the very text kombu would have pushed to it."""
    deliveries: int = 0
    """Redis only: how many queues took it; none means unroutable."""
    unusual: bool = False
    """Redis only: kombu does more than one LPUSH (fanout, a queue that expires, another transport)."""

    @property
    def one_push(self) -> bool:
        """Whether an LPUSH from a script would be the same as what kombu does."""
        return self.one_push_each and len(self.pushes) == 1

    @property
    def one_push_each(self) -> bool:
        """Whether that holds for each of several messages to one queue."""
        each = len(self.pushes) == self.deliveries == len(self.publications)
        return each and len({queue for queue, _ in self.pushes}) == 1 and not self.unusual


def watch(connection: Any) -> None:
    """Let what goes to a Redis broker over this connection, and no other, be watched."""
    stock = connection.get_transport_cls
    # An override on the instance: a connection that fails over to its next URL asks again.
    connection.get_transport_cls = lambda: _watched(stock())


def size_of(channel: Any, queue: str) -> int | None:
    """How many messages a queue of a transport that is not AMQP holds; None for AMQP.

    A passive declaration says the same, but for kombu's Redis transport with a key prefix, which looks
    for the queue under the wrong key.
    """
    size = getattr(channel, "_size", None)
    return None if size is None else int(size(queue))


def is_redis(connection: Any) -> bool:
    """Whether the broker speaks Redis; nothing is sent."""
    return issubclass(connection.get_transport_cls(), RedisTransport)


def capture(connection: Any, send: Callable[[Any], Result], *, down_to_redis: bool) -> tuple[Capture, Result]:
    """Run ``send`` with a Producer that sends nothing; what it would have sent, and its result.

    ``down_to_redis`` needs a connected Redis broker: declarations are made, and the pushes are
    recorded. Without it nothing is asked of the broker at all.
    """
    seen = Capture(held=True)
    if not down_to_redis:
        return seen, send(_RecordingProducer(connection, seen, goes_on=False))
    # The channel itself, not the connection: after a reconnect it would be another one, not watched.
    channel = connection.default_channel
    with _watching(channel, seen):
        return seen, send(_RecordingProducer(channel, seen, goes_on=True))


@contextmanager
def counting(channel: Any) -> Iterator[Capture | None]:
    """Count the queues that take what is published meanwhile; None where that is not known."""
    if not isinstance(channel, _WatchedChannel):
        yield None
        return
    seen = Capture(held=False)
    with _watching(channel, seen):
        yield seen


def can_capture(connection: Any) -> bool:
    """Whether a message can be captured as kombu would push it; tried with one that goes nowhere."""
    channel = connection.default_channel
    if not isinstance(channel, _WatchedChannel):
        return False

    def send(producer: Any) -> None:
        producer.publish({"probe": 1}, routing_key=_PROBE, headers={"id": _PROBE}, correlation_id=_PROBE)

    try:
        seen, _ = capture(connection, send, down_to_redis=True)
        (key, text), publication = seen.pushes[0], json.loads(seen.publications[0])
        message = json.loads(text)
    except (AttributeError, IndexError, LookupError, TypeError, ValueError):
        return False
    properties = message.get("properties", {})
    return (
        seen.one_push
        and key == f"{_prefix(channel)}{_PROBE}"
        and isinstance(message.get("body"), str)
        and message.get("headers") == publication["headers"] == {"id": _PROBE}
        and properties.get("correlation_id") == _PROBE
        and isinstance(properties.get("delivery_tag"), str)
    )


def is_deterministic(serializer: str, compressor: str | None) -> bool:
    """Tell whether both are kombu's own, and so make the same of the same arguments; one of the user's may
    put a time stamp or a nonce into each message."""
    encoders = getattr(registry, "_encoders", {})
    if serializer not in encoders or encoders[serializer].encoder.__module__ not in _SERIALIZERS:
        return False
    try:
        return not compressor or _encoder_of(compressor)[0].__module__ in _COMPRESSORS
    except KeyError:
        return False


class _RecordingProducer(Producer):
    """Notes what is published; it goes on to the channel only when that is watched."""

    def __init__(self, way: Any, seen: Capture, *, goes_on: bool) -> None:
        super().__init__(way, auto_declare=False)  # type: ignore[no-untyped-call]
        self._seen, self._goes_on = seen, goes_on

    def _publish(
        self,
        body: Any,
        priority: int | None,
        content_type: str,
        content_encoding: str,
        headers: Mapping[str, Any],
        properties: Mapping[str, Any],
        routing_key: str,
        mandatory: bool,  # noqa: FBT001 - kombu's order
        immediate: bool,  # noqa: FBT001
        exchange: str,
        declare: Sequence[Any],
        timeout: float | None = None,
        confirm_timeout: float | None = None,
        *more: Any,
        **options: Any,
    ) -> Any:
        reply_to = properties.get("reply_to")
        publication = {
            "body": base64_body(body, content_encoding),
            "content_type": content_type,
            "content_encoding": content_encoding,
            "priority": priority,
            "headers": headers,
            "properties": {**properties, "reply_to": getattr(reply_to, "name", reply_to)},
            "exchange": exchange,
            "routing_key": routing_key,
            "declare": [described(entity) for entity in declare or ()],
            "timeout": timeout,
            "confirm_timeout": confirm_timeout,
        }
        # As text at once: the way to the channel changes headers and properties.
        self._seen.publications.append(_dumps(publication))
        if not self._goes_on:
            return None
        return super()._publish(  # type: ignore[no-untyped-call]
            body, priority, content_type, content_encoding, headers, properties, routing_key,
            mandatory, immediate, exchange, declare, timeout, confirm_timeout, *more, **options,
        )  # fmt: skip


class _UnusualError(Exception):
    """kombu wanted more of its client than one LPUSH."""


class _Hand:
    """Stands in for the Redis client while kombu hands over one message."""

    def __init__(self, prefix: str, pushes: list[tuple[str, str]]) -> None:
        self._prefix, self._pushes = prefix, pushes

    def lpush(self, key: str, message: str) -> None:
        """The one command that a script can do as well."""
        self._pushes.append((f"{self._prefix}{key}", message))

    def __getattr__(self, name: str) -> NoReturn:
        raise _UnusualError(name)


class _WatchedChannel:
    """In front of a Redis channel class: notes or holds what goes to queues, when it is asked to."""

    watcher: Capture | None = None
    _hand: _Hand | None = None

    def _put(self, queue: str, message: Any, **options: Any) -> Any:
        seen, stock = self.watcher, super()._put  # type: ignore[misc]
        if seen is None:
            return stock(queue, message, **options)
        seen.deliveries += 1
        if not seen.held:
            return stock(queue, message, **options)
        self._hand = _Hand(_prefix(self), seen.pushes)
        try:
            return stock(queue, message, **options)
        except _UnusualError:
            seen.unusual = True
        finally:
            self._hand = None

    def _put_fanout(self, exchange: str, message: Any, routing_key: str, **options: Any) -> Any:
        if self.watcher is not None:
            self.watcher.deliveries += 1
            self.watcher.unusual = True
            if self.watcher.held:
                return None
        return super()._put_fanout(exchange, message, routing_key, **options)  # type: ignore[misc]

    @contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        """kombu's client; a stand-in while a message is handed over."""
        if self._hand is not None:
            yield self._hand
        else:
            with super().conn_or_acquire(client) as real:  # type: ignore[misc]
                yield real


@cache
def _watched(transport: type[Any]) -> type[Any]:
    if not issubclass(transport, RedisTransport):
        return transport
    channel = type("WatchedChannel", (_WatchedChannel, transport.Channel), {"__module__": __name__})
    return type("WatchedTransport", (transport,), {"Channel": channel, "__module__": __name__})


@contextmanager
def _watching(channel: Any, seen: Capture) -> Iterator[None]:
    channel.watcher = seen
    try:
        yield
    finally:
        channel.watcher = None


def _prefix(channel: Any) -> str:
    return str(channel.global_keyprefix)


def base64_body(body: Any, encoding: str | None) -> str:
    """Encode a serialised body as JSON can hold it."""
    if isinstance(body, str):
        body = body.encode("utf-8" if encoding in (None, "", "binary") else encoding)
    return b64encode(body).decode("ascii")
