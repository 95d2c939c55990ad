"""Capture a message on its way to the broker. The only file that uses private names of kombu:

- ``Producer._publish``: publishes what is serialised and compressed;
- ``registry._encoders``: the functions of serializers, by name;
- ``Channel._put``, ``Channel._put_fanout`` of the Redis transport: push a message to its queue,
  with the client that ``Channel.conn_or_acquire`` gives them;
- ``Channel._size`` of transports that are not AMQP: how many messages a queue holds;
- ``Channel.unacked_key``, ``Channel.global_keyprefix`` of the Redis transport: keys of the broker.

What kombu's own ``_put`` does with that client is recorded: one ``LPUSH``, or the message cannot be pushed
by a script. `can_capture` tries it at start; with a kombu that has changed, runs are published from the
outbox.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
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
_MOST_UNACKNOWLEDGED = 1000
"""Unacknowledged messages that are searched for those of one queue."""
# Modules of the functions that kombu itself registers.
_SERIALIZERS = ("kombu.utils.json", "kombu.serialization", "yaml")
_COMPRESSORS = ("zlib", "bz2", "lzma", "brotli", "kombu.compression")

# Of ``Producer._publish``, in kombu's order.
_PUBLISH_ARGUMENTS = (
    "body priority content_type content_encoding headers properties routing_key mandatory immediate exchange "
    "declare timeout confirm_timeout"
).split()
_COPIED_ARGUMENTS = (
    "content_type content_encoding priority headers exchange routing_key timeout confirm_timeout"
).split()

Result = TypeVar("Result")


@dataclass
class Capture:
    """Record what one ``apply_async`` sends. ``held``: it does not reach the broker."""

    held: bool
    publications: list[str] = field(default_factory=list)
    """As JSON: everything that a Producer needs to publish it later."""
    pushes: list[tuple[str, str]] = field(default_factory=list)
    """Redis only: the key of the queue and the text that kombu would have pushed to it."""
    deliveries: int = 0
    """Redis only: how many queues took it; none means unroutable."""

    @property
    def one_push_each(self) -> bool:
        """Whether an LPUSH from a script does the same as kombu, for each message, all to one queue."""
        each = len(self.pushes) == self.deliveries == len(self.publications)
        return each and len({queue for queue, _ in self.pushes}) == 1


def make_recordable(connection: Any) -> None:
    """Make it possible to record what goes to a Redis broker over this connection, and no other."""
    stock = connection.get_transport_cls
    # On the instance: a connection that fails over to its next URL calls it again.
    connection.get_transport_cls = lambda: _recording_transport(stock())


def size_of(channel: Any, queue: str, priority: int = 0) -> int | None:
    """Count the messages in a queue of a transport that is not AMQP; None for AMQP. On Redis, messages with a
    priority are in a list of their own: only those are counted.

    A passive declaration returns the same, except on kombu's Redis transport with a key prefix, which uses
    the wrong key.
    """
    size = getattr(channel, "_size", None)
    list_of = getattr(channel, "_q_for_pri", None)
    if priority and list_of is not None:
        with channel.conn_or_acquire() as client:
            return int(client.llen(list_of(queue, priority)))
    return None if size is None else int(size(queue))


def unacknowledged(channel: Any, routing_key: str, priority: int = 0) -> int | None:
    """Count messages with this routing key that workers of a Redis broker have not acknowledged; with a
    priority, only those that were in the same list."""
    with channel.conn_or_acquire() as client:
        count = int(client.hlen(channel.unacked_key))
        if count == 0 or count > _MOST_UNACKNOWLEDGED:
            return None if count else 0
        # kombu puts its prefix before the key of HLEN and not of HVALS.
        held = [json.loads(text) for text in client.hvals(f"{key_prefix(channel)}{channel.unacked_key}")]
    same = [message for message, _, key in held if key == routing_key]
    list_of = getattr(channel, "_q_for_pri", None)
    if priority and list_of is not None:
        given = [message.get("properties", {}).get("priority") or 0 for message in same]
        return len([one for one in given if list_of("", one) == list_of("", priority)])
    return len(same)


def is_redis(connection: Any) -> bool:
    """Tell whether the broker is Redis; sends nothing."""
    return issubclass(connection.get_transport_cls(), RedisTransport)


def capture(connection: Any, send: Callable[[Any], Result], *, down_to_redis: bool) -> tuple[Capture, Result]:
    """Run ``send`` with a Producer that sends nothing; return what it would have sent, and its result.

    ``down_to_redis`` needs a connected Redis broker: queues are declared, and the pushes are recorded.
    Without it the broker is not used.
    """
    seen = Capture(held=True)
    if not down_to_redis:
        return seen, send(_RecordingProducer(connection, seen, goes_on=False))
    # The channel itself, not the connection: a reconnect would open another one, which does not record.
    channel = connection.default_channel
    with _recording_to(channel, seen):
        return seen, send(_RecordingProducer(channel, seen, goes_on=True))


@contextmanager
def counting(channel: Any) -> Iterator[Capture | None]:
    """Count the queues that take what is published meanwhile; None where that is unknown."""
    if not isinstance(channel, _RecordingChannel):
        yield None
        return
    seen = Capture(held=False)
    with _recording_to(channel, seen):
        yield seen


def can_capture(connection: Any) -> bool:
    """Tell whether a message can be captured as kombu would push it; tries one that is not sent."""
    channel = connection.default_channel
    if not isinstance(channel, _RecordingChannel):
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
        seen.one_push_each
        and key == f"{key_prefix(channel)}{_PROBE}"
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
    """Record what is published; pass it on only to a channel that records, too."""

    def __init__(self, way: Any, seen: Capture, *, goes_on: bool) -> None:
        super().__init__(way, auto_declare=False)  # type: ignore[no-untyped-call]
        self._seen, self._goes_on = seen, goes_on

    def _publish(self, *args: Any, **options: Any) -> Any:
        given: dict[str, Any] = {**dict(zip(_PUBLISH_ARGUMENTS, args, strict=False)), **options}
        reply_to = given["properties"].get("reply_to")
        publication = {
            "body": base64_body(given["body"], given["content_encoding"]),
            "properties": {**given["properties"], "reply_to": getattr(reply_to, "name", reply_to)},
            "declare": [described(entity) for entity in given["declare"] or ()],
            **{name: given.get(name) for name in _COPIED_ARGUMENTS},
        }
        # As text at once: the channel changes headers and properties.
        self._seen.publications.append(_dumps(publication))
        return super()._publish(*args, **options) if self._goes_on else None  # type: ignore[no-untyped-call]


class _UnusualError(Exception):
    """kombu does more with its client than one LPUSH."""


class _RecordingClient:
    """Stand in for the Redis client while kombu pushes one message."""

    def __init__(self, prefix: str, pushes: list[tuple[str, str]]) -> None:
        self._prefix, self._pushes = prefix, pushes

    def lpush(self, key: str, message: str) -> None:
        """Record the one command that a script can do as well."""
        self._pushes.append((f"{self._prefix}{key}", message))

    def __getattr__(self, name: str) -> NoReturn:
        raise _UnusualError(name)


class _RecordingChannel:
    """Mix into a Redis channel class: record or hold what goes to queues, while there is a capture."""

    recorder: Capture | None = None
    _recording: _RecordingClient | None = None

    def _put(self, queue: str, message: Any, **options: Any) -> Any:
        seen, stock = self.recorder, super()._put  # type: ignore[misc]
        if seen is None:
            return stock(queue, message, **options)
        seen.deliveries += 1
        if not seen.held:
            return stock(queue, message, **options)
        self._recording = _RecordingClient(key_prefix(self), seen.pushes)
        try:
            return stock(queue, message, **options)
        except _UnusualError:
            seen.pushes.clear()  # fewer pushes than deliveries: no script can do the same
        finally:
            self._recording = None

    def _put_fanout(self, exchange: str, message: Any, routing_key: str, **options: Any) -> Any:
        if self.recorder is not None:
            self.recorder.deliveries += 1
            if self.recorder.held:
                return None
        return super()._put_fanout(exchange, message, routing_key, **options)  # type: ignore[misc]

    @contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        """Return kombu's client; the stand-in while a message is pushed."""
        if self._recording is not None:
            yield self._recording
        else:
            with super().conn_or_acquire(client) as real:  # type: ignore[misc]
                yield real


@cache
def _recording_transport(transport: type[Any]) -> type[Any]:
    if not issubclass(transport, RedisTransport):
        return transport
    channel = type("RecordingChannel", (_RecordingChannel, transport.Channel), {"__module__": __name__})
    return type("RecordingTransport", (transport,), {"Channel": channel, "__module__": __name__})


@contextmanager
def _recording_to(channel: Any, seen: Capture) -> Iterator[None]:
    channel.recorder = seen
    try:
        yield
    finally:
        channel.recorder = None


def key_prefix(channel: Any) -> str:
    """Return the prefix of all keys of a Redis broker."""
    return str(channel.global_keyprefix)


def base64_body(body: Any, encoding: str | None) -> str:
    """Encode a serialised body as JSON can hold it."""
    if isinstance(body, str):
        body = body.encode("utf-8" if encoding in (None, "", "binary") else encoding)
    return b64encode(body).decode("ascii")
