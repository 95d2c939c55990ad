"""Connect to Redis with a client that never hangs and never repeats a command by itself.

It follows MOVED redirects, and sends a command in one piece. This file holds everything that depends on the
inner workings of redis-py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from redis import ConnectionPool, Redis, Sentinel
from redis.backoff import NoBackoff
from redis.client import Pipeline
from redis.connection import Connection, UnixDomainSocketConnection, parse_url
from redis.credentials import CredentialProvider
from redis.exceptions import (
    ConnectionError,
    DataError,
    MovedError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
)
from redis.retry import Retry

from celery_catchup.config.redis_urls import (
    CREDENTIAL_PROVIDER,
    KOMBUS_DB,
    LOGIN_OPTIONS,
    TLS_OPTIONS,
    cert_reqs,
    check_hostname,
)
from celery_catchup.error_text import shown
from celery_catchup.store.error_advice import STORE_FAILS, explain, is_refusal

__all__ = ["STORE_FAILS", "TIMEOUT", "connect", "evicted", "explain", "is_refusal", "unverified"]

TIMEOUT = 2.5
"""Seconds for a connect or a reply: a third of the shortest sensible lease, so that a dead
network is noticed while the lease can still be saved."""

# Before redis-py 6 only its cluster client had an error class for it.
_MOVED = re.compile(r"\bMOVED \d+ (?P<host>\S*):(?P<port>\d+)")
_SENTINEL_PORT = 26379


class CommandPacker:
    """The ``command_packer`` of a connection: encode a command as one piece.

    redis-py sends a long command in pieces of some kilobytes, each with a system call. A commit of
    500 runs has half a megabyte; in one piece it arrives in less than half the time.
    """

    def pack(self, *args: object) -> list[bytes]:
        """Return the encoded command, as a list of one piece."""
        name, *rest = args
        words = name.encode().split() if isinstance(name, str) else [name]  # CONFIG GET is two words
        return [b"*%d\r\n%b" % (len(words) + len(rest), encoded((*words, *rest)))]


def encoded(words: Iterable[object]) -> bytes:
    """Encode words of a command, without their number, which comes first."""
    parts = []
    for word in words:
        data = word.encode() if isinstance(word, str) else _bytes(word)
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


def _bytes(arg: object) -> bytes:
    if isinstance(arg, bytes | bytearray | memoryview):
        return bytes(arg)
    if isinstance(arg, int | float) and not isinstance(arg, bool):
        return repr(arg).encode()
    raise DataError(f"a command takes text, bytes and numbers, got {type(arg).__name__}")


_NAMED: dict[str, Any] = {
    "client_name": "celery-catchup",
    "health_check_interval": 0,
    "command_packer": CommandPacker(),
}
_OVER_TCP: dict[str, Any] = {"socket_keepalive": True}


def connect(
    url: str, *, sentinel_options: Mapping[str, Any] | None = None, patience: float = TIMEOUT
) -> Redis:
    """Create a client for a ``redis://``, ``rediss://``, ``unix://``, kombu's ``redis+socket://`` or
    ``sentinel://`` URL. It sends nothing before the first command.

    No connect and no reply takes longer than ``patience`` seconds, nor than `TIMEOUT`. Of the URL's
    options only login, database and TLS count: the others are kombu's, or would break this promise.
    A `ValueError` says what is wrong with the URL.
    """
    limits = _limits(min(patience, TIMEOUT))
    if url.startswith("sentinel://"):
        return _through_sentinels(url, sentinel_options or {}, limits)
    place = _place(url)
    kind = place.pop("connection_class", Connection)
    more = {} if kind is UnixDomainSocketConnection else _OVER_TCP
    pool = ConnectionPool(connection_class=kind, **place, **limits, **_NAMED, **more)
    # The client needs the provider, too: it authenticates open connections again before a token expires.
    client = RedirectedRedis(connection_pool=pool, credential_provider=place.get(CREDENTIAL_PROVIDER))
    client.auto_close_connection_pool = True
    return client


def _limits(seconds: float) -> dict[str, Any]:
    """Return the options that keep a call from hanging, and from being repeated."""
    return {
        "socket_timeout": seconds,
        "socket_connect_timeout": seconds,
        # By default redis-py repeats a timed-out command up to ten times; each may have been executed.
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }


def unverified(client: Redis) -> str | None:
    """Return a sentence if the user's options keep TLS from verifying the server, else None."""
    options = client.connection_pool.connection_kwargs
    if options.get("ssl_cert_reqs") == "none":
        return (
            "ssl_cert_reqs=none: anyone on the network path can read and change everything; "
            "name the certificate authority with ssl_ca_certs instead"
        )
    if options.get("ssl_check_hostname") is False:
        return (
            "ssl_check_hostname=false: any certificate of the authority is accepted for the server; "
            "remove the option"
        )
    return None


@dataclass(frozen=True, slots=True)
class Eviction:
    """The keys that the server evicts when its memory is full: ``says`` is a sentence about them; ``deadly``
    means that they are ours and the memory is limited."""

    says: str
    deadly: bool


def evicted(client: Redis) -> Eviction | None:
    """Return what the server may evict; None for nothing, or if the user has no right to ask."""
    try:
        memory: Any = client.info("memory")
    except ResponseError:
        return None
    policy = str(memory.get("maxmemory_policy", "noeviction"))
    if policy.startswith("allkeys"):
        return Eviction(
            f"maxmemory-policy is {policy}: with its memory full the server silently evicts runs and "
            "watermarks, and slots are lost or run twice; set it to noeviction",
            deadly=bool(memory.get("maxmemory")),
        )
    if policy.startswith("volatile"):
        return Eviction(
            f"maxmemory-policy is {policy}: with its memory full the server evicts keys with a TTL, "
            "none of celery_catchup but perhaps your results and locks; set it to noeviction",
            deadly=False,
        )
    return None


@contextmanager
def _without_details() -> Iterator[None]:
    """Replace the parser's message for an invalid URL: it may repeat a misplaced password."""
    try:
        yield
    except ValueError:
        raise ValueError("host, port or database of the Redis URL are invalid; correct them") from None


def _host(name: str | None) -> str | None:
    """Return a name that can be looked up; for another, every connect would raise a `UnicodeError`."""
    (name or "").encode("idna")
    return name


def _options(query: str) -> dict[str, str]:
    """Return the options that count, as redis-py names them."""
    given = dict(parse_qsl(query))
    if KOMBUS_DB in given:
        given.setdefault("db", given[KOMBUS_DB].strip("/"))
    return {name: value for name, value in given.items() if name in (*LOGIN_OPTIONS, *TLS_OPTIONS)}


def _place(url: str) -> dict[str, Any]:
    """Read a URL of one server into the options of redis-py's connection."""
    address, _, query = url.partition("?")
    if address.startswith("redis+socket://"):  # kombu's name of unix://
        address = f"unix://{address.removeprefix('redis+socket://')}"
    with _without_details():
        place: dict[str, Any] = parse_url(f"{address}?{urlencode(_options(query))}")  # type: ignore[no-untyped-call]
        _host(place.get("host"))
    place = _with_provider(place)
    tls = {name: place.pop(name) for name in TLS_OPTIONS if name in place}
    return {**place, **_tls(tls)} if url.startswith("rediss://") else place


def _with_provider(place: dict[str, Any]) -> dict[str, Any]:
    """Create the credential provider that the URL names; as in kombu, it replaces user and password."""
    path = place.get(CREDENTIAL_PROVIDER)
    if path is None:
        return place
    module, _, name = path.replace(":", ".").rpartition(".")
    try:
        provider = getattr(import_module(module), name)()
    except Exception as error:
        raise ValueError(
            f"{CREDENTIAL_PROVIDER} in the URL: {shown(path)} cannot be loaded ({type(error).__name__}); "
            "name a class without required arguments, such as package.module.Class"
        ) from error
    if not isinstance(provider, CredentialProvider):
        raise ValueError(
            f"{CREDENTIAL_PROVIDER} in the URL: expected a subclass of redis.CredentialProvider, "
            f"got {shown(path)}"
        )
    others = {key: value for key, value in place.items() if key not in ("username", "password")}
    return {**others, CREDENTIAL_PROVIDER: provider}


def _tls(given: Mapping[str, Any]) -> dict[str, Any]:
    """Verify certificates and host names, unless the user's options say no."""
    required = cert_reqs(str(given.get("ssl_cert_reqs", "required")))
    named = check_hostname(str(given.get("ssl_check_hostname", True)))
    return {**given, "ssl_cert_reqs": required, "ssl_check_hostname": named and required != "none"}


# -- Sentinel ----------------------------------------------------------------------------------


def _through_sentinels(url: str, options: Mapping[str, Any], limits: Mapping[str, Any]) -> Redis:
    """Create a client for kombu's ``sentinel://host:port/db;sentinel://host:port``.

    ``master_name`` is among the broker's transport options. Logins in the URL are the server's;
    ``sentinel_kwargs`` of the transport options has those of the Sentinels.
    """
    name = options.get("master_name")
    if not name:
        raise ValueError(
            "a sentinel:// URL needs the name of the primary; set master_name in broker_transport_options"
        )
    with _without_details():
        nodes = [urlsplit(part if "://" in part else f"sentinel://{part}") for part in url.split(";")]
        addresses = [(_host(node.hostname), node.port or _SENTINEL_PORT) for node in nodes]
        place = _server_of(nodes)
    place = _with_provider(place)
    # The client asks the Sentinels one after the other, so they share the time.
    share = _limits(max(TIMEOUT / len(nodes), 0.5))
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        addresses,
        sentinel_kwargs={**(options.get("sentinel_kwargs") or {}), **share, **_OVER_TCP},
        **place,
        **limits,
        **_NAMED,
        **_OVER_TCP,
    )
    client: Redis = sentinel.master_for(name, redis_class=RedirectedRedis)  # type: ignore[no-untyped-call]
    return client


def _server_of(nodes: Sequence[SplitResult]) -> dict[str, Any]:
    """Return login, database and TLS of the server; the URL of any Sentinel may have them."""
    place: dict[str, Any] = {}
    for node in reversed(nodes):
        place |= _options(node.query)
        if node.path.strip("/"):
            place["db"] = node.path.strip("/")
        if node.password:
            place |= {"username": unquote(node.username or "") or None, "password": unquote(node.password)}
    tls = {name: place.pop(name) for name in TLS_OPTIONS if name in place}
    return {**place, "db": int(place.get("db", 0)), **({"ssl": True, **_tls(tls)} if tls else {})}


# -- the client --------------------------------------------------------------------------------


class RedirectedRedis(Redis):
    """A client that follows its keys to the node of a Redis Cluster that owns them, and leaves a replica.

    A plain client is enough for a cluster: all keys of a namespace share a hash tag, so one node owns
    them all, and any other node answers with a redirect. A redirected command was not executed, so
    sending it again does not repeat it.
    """

    _home: tuple[str, int] | None = None

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Execute a command at the node that owns the keys."""
        return self.follow(partial(super().execute_command, *args, **options))

    def send(self, *command: Any) -> SentCommand:
        """Send a command, and return before it is answered."""
        return SentCommand(self, command)

    def pipeline(self, transaction: Any = True, shard_hint: Any = None) -> Pipeline:  # noqa: FBT002
        """Return a pipeline that goes to the node that owns the keys."""
        pipe = _RedirectedPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        pipe.owner = self
        return pipe

    def follow(self, call: Callable[[], Any]) -> Any:
        """Make a call; on a redirect, reconnect and make it again."""
        try:
            return call()
        except ReadOnlyError:
            # After a fail-over the host name resolves to the new primary, for new connections.
            self.connection_pool.disconnect(inuse_connections=False)
            raise
        except ResponseError as error:
            moved = _MOVED.search(str(error))
            if isinstance(error, MovedError):
                self._go(error.host, error.port)
            elif moved is not None:
                self._go(moved["host"], int(moved["port"]))
            else:
                raise
            return call()
        except (ConnectionError, TimeoutError):
            if self._home is not None:
                # The node may be gone for good; the first node knows the new owner of the keys.
                self._go(*self._home)
            raise

    def _go(self, host: str, port: int) -> None:
        pool = self.connection_pool
        place = pool.connection_kwargs
        self._home = self._home or (place.get("host", "localhost"), place.get("port", 6379))
        # A node that does not know its own name sends an empty one: the host stays the same.
        place.update(host=host or self._home[0], port=port)
        pool.disconnect(inuse_connections=False)
        pool.reset()


def connection_of(pool: Any) -> Any:
    """Take a connection from a pool, until it is released."""
    try:
        return pool.get_connection()
    except TypeError:  # before redis-py 5.3
        return pool.get_connection("EVALSHA")


class SentCommand:
    """A command that was sent and whose answer was not read; it keeps its connection until then.

    The server works meanwhile. A lost answer leaves the outcome unknown, as for any other command.
    """

    def __init__(self, client: RedirectedRedis, command: Sequence[Any]) -> None:
        self._client, self._command, self._pool = client, command, client.connection_pool
        self._connection = client.follow(self._send)
        self._lost: Exception | None = None

    def _send(self) -> Any:
        connection = connection_of(self._pool)
        try:
            connection.send_command(*self._command)
        except BaseException:
            connection.disconnect()
            self._pool.release(connection)
            raise
        return connection

    def is_answered(self) -> bool:
        """Tell whether `answer` will not wait: the answer is there, or the connection is lost."""
        try:
            return self._lost is not None or bool(self._connection.can_read(timeout=0))
        except (RedisError, OSError) as error:
            self._lost = error
            return True

    def answer(self) -> Any:
        """Wait for the answer, once; after a redirect, the command is executed again."""
        again = partial(Redis.execute_command, self._client, *self._command)
        calls = iter((self._read, again))
        return self._client.follow(lambda: next(calls)())

    def _read(self) -> Any:
        try:
            if self._lost is not None:
                raise self._lost
            return self._connection.read_response()
        except ResponseError:
            raise
        except BaseException:
            self._connection.disconnect()
            raise
        finally:
            self._pool.release(self._connection)

    def drop(self) -> None:
        """Close the connection; the answer is not read."""
        self._connection.disconnect()
        self._pool.release(self._connection)


class _RedirectedPipeline(Pipeline):
    owner: RedirectedRedis

    def execute(self, *args: Any, **options: Any) -> Any:
        commands = list(self.command_stack)

        def send() -> Any:
            self.command_stack = list(commands)
            return super(_RedirectedPipeline, self).execute(*args, **options)

        return self.owner.follow(send)
