"""The way to the broker: a connection of our own that never hangs and never sends twice by itself."""

from __future__ import annotations

import contextlib
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import kombu
from redis.backoff import NoBackoff
from redis.retry import Retry

from celery_catchup.dispatch.capture import counting, is_redis, watch
from celery_catchup.dispatch.entities import restored
from celery_catchup.dispatch.failures import publish_error, unreachable, unroutable
from celery_catchup.wording import shown

_kombu: Any = kombu  # its classes carry no types

TIMEOUT = 3.0
"""Seconds for a connect, a write, a reply or a confirmation: a third of the leader's lease, so that
a silent broker costs no leadership. A user's own time-outs are left as they are."""

_REDIS: dict[str, Any] = {"socket_timeout": TIMEOUT, "socket_connect_timeout": TIMEOUT}
_AMQP: dict[str, Any] = {"read_timeout": TIMEOUT, "write_timeout": TIMEOUT}


class Broker:
    """One connection to where the app publishes; made when it is needed, dropped when it failed."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._connection: Any = None

    @property
    def connection(self) -> Any:
        """The connection, perhaps not connected yet; nothing is sent."""
        if self._connection is None:
            self._connection = _configured(self._app.connection_for_write())
        return self._connection

    @property
    def driver(self) -> str:
        """What the broker speaks: ``redis``, ``amqp``, …"""
        return str(self.connection.get_transport_cls().driver_type)

    @property
    def speaks_redis(self) -> bool:
        """Whether the broker is a Redis server."""
        return is_redis(self.connection)

    def connected(self) -> Any:
        """The connection, connected; `DispatchError` when that cannot be had in time."""
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
        again: a late confirmation on it would be taken for that of the next message.
        """
        channel = self.connected().default_channel
        where = _where(publication)
        try:
            with counting(channel) as seen:
                _publish(channel, publication)
            if seen is not None and not seen.deliveries:
                raise unroutable(where)
        except BaseException as error:
            self.drop()
            if isinstance(error, Exception):
                raise publish_error(error, where=where) from error
            raise

    def producer(self) -> Any:
        """A producer of events; `DispatchError` when there is no connection."""
        return _kombu.Producer(self.connected().default_channel, auto_declare=False)

    def drop(self) -> None:
        """Forget the connection, without a farewell that a dead broker would not answer."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.collect(socket_timeout=TIMEOUT)

    def close(self) -> None:
        """End the connection in good order, with one farewell at the most."""
        connection = self._connection
        if connection is not None and connection.connected:
            with contextlib.suppress(Exception):
                connection.transport.close_connection(connection.connection)
        self.drop()


def _configured(connection: Any) -> Any:
    """The app's connection with our time-outs, where the user set none, and without resending."""
    watch(connection)
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
    a broker that falls silent while a channel is opened or a queue is declared would hang a greenlet.
    """
    socket = getattr(getattr(connection.connection, "transport", None), "sock", None)
    if connection.transport.driver_type == "amqp" and socket is not None:
        socket.settimeout(connection.transport_options["read_timeout"])


def _is_sentinel(connection: Any) -> bool:
    return bool(connection.transport_cls == "sentinel")


def _sentinel(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Sentinels themselves are asked with redis-py's defaults, which repeat for a minute."""
    return {**_REDIS, "retry": Retry(NoBackoff(), 0), **(given or {})}


def _publish(channel: Any, publication: Mapping[str, Any]) -> None:
    properties = dict(publication["properties"])
    expiration = properties.pop("expiration", None)
    _kombu.Producer(channel, auto_declare=False).publish(
        b64decode(publication["body"]),
        content_type=publication["content_type"],
        content_encoding=publication["content_encoding"],
        headers=publication["headers"],
        exchange=publication["exchange"],
        routing_key=publication["routing_key"],
        priority=publication["priority"],
        declare=[restored(description) for description in publication["declare"]],
        expiration=None if expiration is None else int(expiration) / 1000,
        mandatory=True,
        retry=False,
        timeout=publication["timeout"] or TIMEOUT,
        confirm_timeout=publication["confirm_timeout"] or TIMEOUT,
        **properties,
    )


def _where(publication: Mapping[str, Any]) -> str:
    exchange, key = publication["exchange"], publication["routing_key"]
    return f"exchange {shown(exchange)}, routing key {shown(key)}" if exchange else f"queue {shown(key)}"
