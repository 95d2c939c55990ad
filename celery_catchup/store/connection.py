"""A connection that never hangs, never repeats a command by itself, and explains its errors."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from redis import Redis, Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from celery_catchup.errors import StoreError

TIMEOUT = 2.5
"""Seconds for a connect or a reply: a third of the shortest sensible lease, so that a dead
network is noticed while the lease can still be saved."""

_OPTIONS: dict[str, Any] = {
    "socket_timeout": TIMEOUT,
    "socket_connect_timeout": TIMEOUT,
    "socket_keepalive": True,
    # redis-py repeats a timed-out command up to ten times by default, and each may have been executed.
    "retry": Retry(NoBackoff(), 0),
    "retry_on_timeout": False,
    "health_check_interval": 0,
    "protocol": 2,
    "client_name": "celery-catchup",
}


def connect(url: str, *, sentinel_options: dict[str, Any] | None = None) -> Redis:
    """A client for ``redis://``, ``rediss://``, ``unix://``, kombu's ``redis+socket://`` or
    ``sentinel://`` URL. Nothing is sent before the first command."""
    scheme = url.partition("://")[0]
    if scheme == "sentinel":
        return _sentinel(url, sentinel_options or {})
    if scheme == "redis+socket":
        url = _unix(url)
    return Redis.from_url(url, **_OPTIONS)


def _unix(url: str) -> str:
    """kombu spells a socket ``redis+socket:///path?virtual_host=1``, redis-py ``unix:///path?db=1``."""
    parts = urlsplit(url)
    db = parse_qs(parts.query).get("virtual_host", ["0"])[0].strip("/")
    login = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    return f"unix://{login}{parts.path}?db={db}"


def _sentinel(url: str, options: dict[str, Any]) -> Redis:
    """kombu's ``sentinel://host:port/db;sentinel://host:port`` with ``master_name`` among the
    broker transport options."""
    nodes = [urlsplit(part if "://" in part else f"sentinel://{part}") for part in url.split(";")]
    first = nodes[0]
    master = options.get("master_name")
    if not master:
        raise StoreError("a sentinel:// URL needs master_name; set it in broker_transport_options")
    credentials = {
        "username": unquote(first.username) if first.username else None,
        "password": unquote(first.password) if first.password else None,
        "db": int(first.path.strip("/") or 0),
    }
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        [(node.hostname, node.port or 26379) for node in nodes],
        sentinel_kwargs={**options.get("sentinel_kwargs", {}), "socket_timeout": TIMEOUT},
        **_OPTIONS,
        **credentials,
    )
    client: Redis = sentinel.master_for(master)  # type: ignore[no-untyped-call]
    return client


_ADVICE = (
    ("NOAUTH", "the server wants a password; put it into catchup_redis_url"),
    ("WRONGPASS", "the server refuses user name or password; mend catchup_redis_url"),
    ("NOPERM", "the user may not do this; see the ACL line in the documentation"),
    ("READONLY", "the server is a replica; the primary is looked up again"),
    ("LOADING", "the server is still loading its data; waiting"),
    ("OOM", "the server is out of memory; raise maxmemory or free some"),
    ("BUSY", "the server is busy with somebody's script; waiting"),
    ("MISCONF", "the server cannot write to its disk; free some space"),
    ("NOREPLICAS", "the server has too few replicas to accept writes; waiting"),
    ("MASTERDOWN", "the replica has lost its primary; waiting"),
    ("MOVED", "the server is a Redis Cluster; kombu has no cluster transport, use it for the state only"),
    ("max number of clients", "the server accepts no more clients; waiting"),
)


def explain(error: BaseException) -> str:
    """What happened and what to do, in a line, without a password."""
    text = str(error) or type(error).__name__
    for mark, advice in _ADVICE:
        if mark in text:
            return f"{text.splitlines()[0][:200]}; {advice}"
    return text.splitlines()[0][:200] if isinstance(error, RedisError | OSError) else repr(error)[:200]
