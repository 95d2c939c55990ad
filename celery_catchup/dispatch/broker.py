"""The connection to the broker: it never hangs, and never sends a message twice by itself."""

from __future__ import annotations

import contextlib
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import kombu
from redis.backoff import NoBackoff
from redis.retry import Retry

from celery_catchup.dispatch.amqp_confirms import ConfirmingChannel, can_pipeline, stop_confirming
from celery_catchup.dispatch.capture import counting, is_redis, make_recordable, size_of, unacknowledged
from celery_catchup.dispatch.dispatch_error import DispatchError, publish_error, unreachable, unroutable
from celery_catchup.dispatch.kombu_entities import restored
from celery_catchup.dispatch.prepared_message import PreparedMessage, where

_kombu: Any = kombu  # its classes carry no types

TIMEOUT = 3.0
"""Seconds for a connect, a write, a reply or a confirmation: a third of the leader's lease, so that the
leader keeps it when the broker hangs. A user's own time-outs stay."""

_NOT_FOUND = 404
_COPIED = ("content_type", "content_encoding", "headers", "exchange", "routing_key", "priority")

_REDIS: dict[str, Any] = {"socket_timeout": TIMEOUT, "socket_connect_timeout": TIMEOUT}
_AMQP: dict[str, Any] = {"read_timeout": TIMEOUT, "write_timeout": TIMEOUT}


class Broker:
    """One connection to where the app publishes; made when it is needed, dropped when it fails."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._connection: Any = None
        self._confirming: ConfirmingChannel | None = None
        self._event_producer: Any = None
        self._declared: set[str] = set()

    @property
    def connection(self) -> Any:
        """The connection, which may not be connected yet; sends nothing."""
        if self._connection is None:
            self._connection = _configured(self._app.connection_for_write())
        return self._connection

    @property
    def driver(self) -> str:
        """The protocol of the broker: ``redis``, ``amqp``, …"""
        return str(self.connection.get_transport_cls().driver_type)

    @property
    def speaks_redis(self) -> bool:
        """Whether the broker is a Redis server."""
        return is_redis(self.connection)

    def connected(self) -> Any:
        """Connect and return the connection; raises `DispatchError` when that fails or takes too long."""
        connection = self.connection
        # Each of a list of URLs is tried once. Sentinels are such a list, but one attempt asks all of them.
        tries = 1 if _is_sentinel(connection) else max(1, len(connection.alt))
        try:
            connection.ensure_connection(
                max_retries=tries - 1, interval_start=0, interval_step=0, interval_max=0
            )
            _limit_waiting(connection)
            _ = connection.default_channel
        except BaseException as error:
            self.drop()
            if isinstance(error, Exception):
                raise unreachable(error) from error
            raise
        return connection

    def publish(self, publication: Mapping[str, Any]) -> None:
        """Publish what was captured, once, and return when the broker has it.

        After a failure, or an interruption such as gevent's time limit, the connection is not used
        again: a late confirmation would be taken for that of the next message.
        """
        channel = self.connected().default_channel
        try:
            with counting(channel) as seen:
                _publish(channel, publication)
            if seen is not None and not seen.deliveries:
                raise unroutable(where(publication))
        except BaseException as error:
            self.drop()
            if isinstance(error, Exception):
                raise publish_error(error, where=where(publication)) from error
            raise

    def confirming(self) -> ConfirmingChannel | None:
        """Return a channel on which messages can be published before earlier ones are confirmed; None where
        the driver has none. Raises `DispatchError` when there is no connection."""
        connection = self.connected()
        if self._confirming is None and can_pipeline(connection.default_channel):
            try:
                self._confirming = ConfirmingChannel(connection.channel())
            except BaseException as error:
                self.drop()
                if isinstance(error, Exception):
                    raise unreachable(error) from error
                raise
        return self._confirming

    def declare(self, message: PreparedMessage) -> DispatchError | None:
        """Declare the queues and exchanges of a message, once for each connection; return the error when the
        broker refuses them. Raises `DispatchError` when the connection fails."""
        if message.declares in self._declared:
            return None
        connection = self.connected()
        try:
            entities = [restored(description) for description in message.publication["declare"]]
            # On a channel of its own: AMQP closes a channel when it refuses a declaration.
            with connection.channel() as channel:
                for entity in entities:  # not kombu's `maybe_declare`, which knows queues by their names only
                    entity.bind(channel).declare()
        except Exception as error:
            failure = publish_error(error, where=message.where)
            if failure.temporary:
                raise failure from error
            return failure
        # Queues that expire are declared again for each window.
        if all(entity.can_cache_declaration for entity in entities):
            self._declared.add(message.declares)
        return None

    def producer(self) -> Any:
        """Make a producer; raises `DispatchError` when there is no connection."""
        return _kombu.Producer(self.connected().default_channel, auto_declare=False)

    def event_producer(self) -> Any:
        """Return a producer that waits for no confirmation; raises as `producer` does."""
        connection = self.connected()
        if self._event_producer is None:
            channel = connection.channel()
            stop_confirming(channel)
            self._event_producer = _kombu.Producer(channel, auto_declare=False)
        return self._event_producer

    def depth(self, queue: str, routing_key: str, priority: int = 0) -> int | None:
        """Count the messages of a queue, unacknowledged ones too; None when the broker does not say.

        Only Redis shows what is unacknowledged, and what has a priority. Other brokers redeliver a message
        when its worker is gone.
        """
        try:
            connection = self.connected()
            waiting = _waiting(connection, queue, priority if self.speaks_redis else 0)
            if waiting or not self.speaks_redis:
                return waiting
            return unacknowledged(connection.default_channel, routing_key, priority)
        except Exception:  # noqa: BLE001 - each transport has its own; None leads to no conclusion
            self.drop()
            return None

    def drop(self) -> None:
        """Drop the connection without closing it: a dead broker would not answer."""
        connection, self._connection = self._connection, None
        self._confirming, self._event_producer, self._declared = None, None, set()
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.collect(socket_timeout=TIMEOUT)

    def close(self) -> None:
        """Close the connection in good order."""
        connection = self._connection
        if connection is not None and connection.connected:
            with contextlib.suppress(Exception):
                connection.transport.close_connection(connection.connection)
        self.drop()


def _configured(connection: Any) -> Any:
    """Set our time-outs where the user set none, and turn off resending."""
    make_recordable(connection)
    given = {name: value for name, value in connection.transport_options.items() if value is not None}
    if is_redis(connection):
        connection.transport_options = {**_REDIS, **given, "retry_on_timeout": False}
        if _is_sentinel(connection):
            connection.transport_options["sentinel_kwargs"] = _sentinel(given.get("sentinel_kwargs"))
    elif connection.get_transport_cls().driver_type == "amqp":
        connection.transport_options = {**_AMQP, **given, "confirm_publish": True}
    connection.connect_timeout = connection.connect_timeout or TIMEOUT
    return connection


def _limit_waiting(connection: Any) -> None:
    """Set the time-out of an AMQP socket in Python, too.

    py-amqp sets its time-outs in the kernel, and the sockets of gevent and eventlet never block there:
    a broker that hangs while a channel is opened or a queue is declared would block a greenlet forever.
    """
    socket = getattr(getattr(connection.connection, "transport", None), "sock", None)
    if connection.transport.driver_type == "amqp" and socket is not None:
        socket.settimeout(connection.transport_options["read_timeout"])


def _is_sentinel(connection: Any) -> bool:
    return bool(connection.transport_cls == "sentinel")


def _sentinel(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Set time-outs for the Sentinels: redis-py's defaults retry for a minute."""
    return {**_REDIS, "retry": Retry(NoBackoff(), 0), **(given or {})}


def _publish(channel: Any, publication: Mapping[str, Any]) -> None:
    properties = dict(publication["properties"])
    expiration = properties.pop("expiration", None)
    _kombu.Producer(channel, auto_declare=False).publish(
        b64decode(publication["body"]),
        **{name: publication[name] for name in _COPIED},
        declare=[restored(description) for description in publication["declare"]],
        expiration=None if expiration is None else int(expiration) / 1000,
        mandatory=True,
        retry=False,
        timeout=publication["timeout"] or TIMEOUT,
        confirm_timeout=publication["confirm_timeout"] or TIMEOUT,
        **properties,
    )


def destination(publication: Mapping[str, Any]) -> tuple[str, str]:
    """Return the routing key of a message, and the name of its queue if it is known."""
    exchange, key = publication["exchange"], str(publication["routing_key"] or "")
    if not exchange:
        return key, key
    # Celery declares the default queue, too, for a message that goes to another exchange.
    queues = [str(one["name"]) for one in publication["declare"] if _is_bound(one, exchange)]
    return key, queues[0] if queues else ""


def _is_bound(entity: Mapping[str, Any], exchange: str) -> bool:
    """Tell whether a declared entity is a queue that takes messages of the exchange."""
    if entity["kind"] != "queue":
        return False
    bindings = [entity, *(entity.get("bindings") or ())]
    return exchange in [(bound.get("exchange") or {}).get("name") for bound in bindings]


def _waiting(connection: Any, queue: str, priority: int) -> int:
    """Count the messages that no worker has received; 0 for a queue that does not exist."""
    size = size_of(connection.default_channel, queue, priority)
    if size is not None:
        return size
    # On a channel of its own: AMQP closes a channel when it refuses a declaration.
    channel = connection.channel()
    try:
        return int(channel.queue_declare(queue, passive=True).message_count)
    except connection.channel_errors as error:
        if getattr(error, "reply_code", None) == _NOT_FOUND:
            return 0
        raise
    finally:
        with contextlib.suppress(Exception):
            channel.close()
