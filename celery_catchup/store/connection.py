"""A connection that never hangs, never repeats a command by itself, and explains its errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from redis import ConnectionPool, Redis, Sentinel
from redis.backoff import NoBackoff
from redis.connection import Connection, UnixDomainSocketConnection, parse_url
from redis.credentials import CredentialProvider
from redis.exceptions import ResponseError
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
from celery_catchup.store.command_packing import Packer
from celery_catchup.store.error_advice import STORE_FAILS, explain, is_refusal
from celery_catchup.store.following_client import FollowingRedis

__all__ = ["STORE_FAILS", "TIMEOUT", "connect", "evicted", "explain", "is_refusal", "unverified"]

TIMEOUT = 2.5
"""Seconds for a connect or a reply: a third of the shortest sensible lease, so that a dead
network is noticed while the lease can still be saved."""

_SENTINEL_PORT = 26379

_BOUNDED: dict[str, Any] = {
    "socket_timeout": TIMEOUT,
    "socket_connect_timeout": TIMEOUT,
    # redis-py repeats a timed-out command up to ten times by default, and each may have been executed.
    "retry": Retry(NoBackoff(), 0),
    "protocol": 2,
}
_NAMED: dict[str, Any] = {
    "client_name": "celery-catchup",
    "health_check_interval": 0,
    "command_packer": Packer(),
}
_OVER_TCP: dict[str, Any] = {"socket_keepalive": True}


def connect(
    url: str, *, sentinel_options: Mapping[str, Any] | None = None, patience: float = TIMEOUT
) -> Redis:
    """A client for a ``redis://``, ``rediss://``, ``unix://``, kombu's ``redis+socket://`` or
    ``sentinel://`` URL. Nothing is sent before the first command.

    No connect and no reply takes longer than ``patience`` seconds, nor than `TIMEOUT`.
    Of the URL's options only login, database and TLS are taken: the others are kombu's, or would
    undo what is promised here. A `ValueError` says what is wrong with the URL.
    """
    if url.startswith("sentinel://"):
        return _through_sentinels(url, sentinel_options or {}, patience)
    place = _place(url)
    kind = place.pop("connection_class", Connection)
    more = {} if kind is UnixDomainSocketConnection else _OVER_TCP
    pool = ConnectionPool(connection_class=kind, **place, **_bounded(patience), **_NAMED, **more)
    # The client must know the provider too: it has open connections log in again before a token expires.
    client = FollowingRedis(connection_pool=pool, credential_provider=place.get(CREDENTIAL_PROVIDER))
    client.auto_close_connection_pool = True
    return client


def _bounded(patience: float) -> dict[str, Any]:
    """What keeps a call from hanging, and from being made twice."""
    times = {name: min(value, patience) for name, value in _BOUNDED.items() if name.startswith("socket_")}
    return {**_BOUNDED, **times}


def unverified(client: Redis) -> str | None:
    """What TLS does not verify because the user said so, as a sentence; None when all is well."""
    options = client.connection_pool.connection_kwargs
    if options.get("ssl_cert_reqs") == "none":
        return (
            "ssl_cert_reqs=none: whoever is on the way to the server can read and change everything; "
            "name its authority with ssl_ca_certs instead"
        )
    if options.get("ssl_check_hostname") is False:
        return (
            "ssl_check_hostname=false: any certificate of the authority passes for the server's; leave it out"
        )
    return None


@dataclass(frozen=True, slots=True)
class Eviction:
    """What the server throws away when its memory is full: ``says`` as a sentence; ``deadly`` when that
    is ours, and there is a limit to its memory."""

    says: str
    deadly: bool


def evicted(client: Redis) -> Eviction | None:
    """What may be evicted; None when nothing, or when the user may not know."""
    try:
        memory: Any = client.info("memory")
    except ResponseError:
        return None
    policy = str(memory.get("maxmemory_policy", "noeviction"))
    if policy.startswith("allkeys"):
        return Eviction(
            f"maxmemory-policy is {policy}: with its memory full the server throws away runs and watermarks "
            "without a word, and slots are lost or run twice; set it to noeviction",
            deadly=bool(memory.get("maxmemory")),
        )
    if policy.startswith("volatile"):
        return Eviction(
            f"maxmemory-policy is {policy}: with its memory full the server throws away what has a TTL, "
            "nothing of celery_catchup but perhaps your results and locks; set it to noeviction",
            deadly=False,
        )
    return None


@contextmanager
def _discreet() -> Iterator[None]:
    """A URL that cannot be read is not told in the words of the reader: they may repeat a password
    that stands in the wrong place."""
    try:
        yield
    except ValueError:
        raise ValueError("host, port or database of the Redis URL cannot be right; mend it") from None


def _host(name: str | None) -> str | None:
    """The name, when it could be looked up at all; else every connect would raise a `UnicodeError`."""
    (name or "").encode("idna")
    return name


def _spelt_for_redis_py(url: str) -> str:
    """kombu spells a socket ``redis+socket:///path?virtual_host=1``, redis-py ``unix:///path?db=1``."""
    address, _, query = url.partition("?")
    if address.startswith("redis+socket://"):
        address = f"unix://{address.removeprefix('redis+socket://')}"
    return f"{address}?{urlencode(_options(query))}"


def _options(query: str) -> dict[str, str]:
    """The options that are taken, as redis-py names them."""
    given = dict(parse_qsl(query))
    if KOMBUS_DB in given:
        given.setdefault("db", given[KOMBUS_DB].strip("/"))
    return {name: value for name, value in given.items() if name in (*LOGIN_OPTIONS, *TLS_OPTIONS)}


def _place(url: str) -> dict[str, Any]:
    """What redis-py needs to know of a place."""
    with _discreet():
        place: dict[str, Any] = parse_url(_spelt_for_redis_py(url))  # type: ignore[no-untyped-call]
        _host(place.get("host"))
    place = _with_provider(place)
    tls = {name: place.pop(name) for name in TLS_OPTIONS if name in place}
    return {**place, **_tls(tls)} if url.startswith("rediss://") else place


def _with_provider(place: dict[str, Any]) -> dict[str, Any]:
    """Make the credential provider that the URL names; as in kombu, it replaces user and password."""
    path = place.get(CREDENTIAL_PROVIDER)
    if path is None:
        return place
    module, _, name = path.replace(":", ".").rpartition(".")
    try:
        provider = getattr(import_module(module), name)()
    except Exception as error:
        raise ValueError(
            f"{CREDENTIAL_PROVIDER} in the URL: {shown(path)} cannot be loaded ({type(error).__name__}); "
            "write the path of a class without required arguments, such as package.module.Class"
        ) from error
    if not isinstance(provider, CredentialProvider):
        raise ValueError(
            f"{CREDENTIAL_PROVIDER} in the URL: expected a subclass of redis.CredentialProvider, "
            f"got {shown(path)}"
        )
    others = {key: value for key, value in place.items() if key not in ("username", "password")}
    return {**others, CREDENTIAL_PROVIDER: provider}


def _tls(given: Mapping[str, Any]) -> dict[str, Any]:
    """Certificates are verified, and that they are for the host, unless the user says otherwise."""
    required = cert_reqs(str(given.get("ssl_cert_reqs", "required")))
    named = check_hostname(str(given.get("ssl_check_hostname", True)))
    return {**given, "ssl_cert_reqs": required, "ssl_check_hostname": named and required != "none"}


# -- Sentinel ----------------------------------------------------------------------------------


def _through_sentinels(url: str, options: Mapping[str, Any], patience: float) -> Redis:
    """kombu's ``sentinel://host:port/db;sentinel://host:port``, with ``master_name`` among the
    broker's transport options. A login is the server's; that of the Sentinels is in
    ``sentinel_kwargs``, there too."""
    name = options.get("master_name")
    if not name:
        raise ValueError(
            "a sentinel:// URL needs the name of the primary; set master_name in broker_transport_options"
        )
    with _discreet():
        nodes = [urlsplit(part if "://" in part else f"sentinel://{part}") for part in url.split(";")]
        addresses = [(_host(node.hostname), node.port or _SENTINEL_PORT) for node in nodes]
        place = _behind(nodes)
    place = _with_provider(place)
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        addresses,
        sentinel_kwargs={**(options.get("sentinel_kwargs") or {}), **_one_of(len(nodes))},
        **place,
        **_bounded(patience),
        **_NAMED,
        **_OVER_TCP,
    )
    client: Redis = sentinel.master_for(name, redis_class=FollowingRedis)  # type: ignore[no-untyped-call]
    return client


def _one_of(count: int) -> dict[str, Any]:
    """How a Sentinel is asked: they are asked one after the other, so they share the time."""
    share = max(TIMEOUT / count, 0.5)
    return {**_BOUNDED, **_OVER_TCP, "socket_timeout": share, "socket_connect_timeout": share}


def _behind(nodes: Sequence[SplitResult]) -> dict[str, Any]:
    """Login, database and TLS of the server that the Sentinels watch; it matters not which of
    their URLs tells it."""
    place: dict[str, Any] = {}
    for node in reversed(nodes):
        place |= _options(node.query)
        if node.path.strip("/"):
            place["db"] = node.path.strip("/")
        if node.password:
            place |= {"username": unquote(node.username or "") or None, "password": unquote(node.password)}
    tls = {name: place.pop(name) for name in TLS_OPTIONS if name in place}
    return {**place, "db": int(place.get("db", 0)), **({"ssl": True, **_tls(tls)} if tls else {})}
