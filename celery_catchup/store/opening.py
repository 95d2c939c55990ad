"""Where things are put together: an app's settings become an open store."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from redis import Redis
from redis.exceptions import ResponseError

from celery_catchup.config.drift import is_current
from celery_catchup.config.mistakes import config_error
from celery_catchup.config.redis_urls import CREDENTIAL_PROVIDER, SCHEMES
from celery_catchup.config.settings import PREFIX, Settings
from celery_catchup.error_text import masked, nearest, shown
from celery_catchup.errors import Mistake
from celery_catchup.store.connection import connect
from celery_catchup.store.keys import Keys
from celery_catchup.store.store import Store

NAMELESS = "celery"
"""The namespace of an app that was made without a name."""

_OURS = PREFIX.strip("_")
_NO_WORD = re.compile(r"[\W_]")
_KNOWN = {name.replace("_", ""): PREFIX + name for name in Settings.model_fields}
"""Each setting without underscores -> as it is written."""
_SURE = 0.8
"""How much of a name must be right for it to be one of ours: other programs have settings, too."""

_CERT_REQS = {ssl.CERT_NONE: "none", ssl.CERT_OPTIONAL: "optional", ssl.CERT_REQUIRED: "required"}


def key_prefix(app: Any) -> str:
    """What the app puts before the names of its queues on a Redis server that it shares with others."""
    return str((app.conf.get("broker_transport_options") or {}).get("global_keyprefix") or "")


def open_store(app: Any, settings: Settings | None = None) -> Store:
    """The store of an app. Nothing is sent before the first command.

    Raises `ConfigurationError` when no setting tells where it is, or one tells it wrong.
    """
    settings = read_settings(app) if settings is None else settings
    options = app.conf.get("broker_transport_options") or {}
    url = store_url(app, settings)
    try:
        # The rule: what a call may take fits into the time between two renewals, a third of the lease.
        patience = settings.lease_ttl.total_seconds() / 3
        client = connect(url, sentinel_options=options, patience=patience)
    except ValueError as error:
        where = "broker_url" if settings.redis_url is None else f"{PREFIX}redis_url"
        raise config_error(where, str(error)) from None
    namespace = namespace_of(app, settings)
    former = settings.namespace or app.main or NAMELESS
    return Store(client, namespace, database_of(client), None if former == namespace else former)


def read_settings(app: Any, *, only: Iterable[str] = ()) -> Settings:
    """The app's ``catchup_*`` settings; those named in ``only``, when given, the others at their defaults."""
    raw = raw_settings(app)
    wanted = {PREFIX + name for name in only} or set(raw)
    return Settings.read({name: value for name, value in raw.items() if name in wanted})


def raw_settings(app: Any) -> dict[str, object]:
    """What the user wrote under ``catchup_*``, whatever namespace the app reads its settings under."""
    keys = list(map(str, app.conf))
    prefix: str = app.conf.prefix or ""  # known once the settings are loaded, as they are by now
    found: dict[str, object] = {}
    for key in keys:
        if _is_read(key, prefix):
            found.setdefault(key.removeprefix(prefix).lower(), app.conf[key])
    return found


def misplaced_settings(app: Any) -> Iterator[Mistake]:
    """Settings of ours that Celery does not read, because they are outside its namespace or misspelt."""
    keys = list(map(str, app.conf))
    prefix: str = app.conf.prefix or ""  # known once the settings are loaded, as they are by now
    for key in keys:
        bare = _NO_WORD.sub("", key.lower()).removeprefix("celery")
        # Letters may have changed places; anything else is somebody else's setting.
        if sorted(bare[: len(_OURS)]) != sorted(_OURS) or _is_read(key, prefix):
            continue
        meant = nearest(bare[len(_OURS) :], _KNOWN, similar=_SURE)
        if meant is not None:
            right = f"{prefix}{_KNOWN[meant].upper()}" if prefix else _KNOWN[meant]
            where = f"outside the app's namespace, {prefix.strip('_')}" if prefix else "without a namespace"
            other = not prefix and key.startswith("CELERY_")
            way = ", or give config_from_object namespace='CELERY'" if other else ""
            yield Mistake(key, f"is not read {where}; write {right}{way}")


def _is_read(key: str, prefix: str) -> bool:
    theirs = prefix and key.isupper() and not key.startswith(prefix)
    return not theirs and key.removeprefix(prefix).lower().startswith(PREFIX)


def namespace_of(app: Any, settings: Settings) -> str:
    """What keeps this app's keys apart from those of others on the server: its name, behind the prefix
    that the names of its queues have."""
    return settings.namespace or key_prefix(app) + (app.main or NAMELESS)


def left_behind(store: Store) -> str | None:
    """What to do when version 0.1 left state in a namespace that nobody uses now; None when it did not."""
    if store.former is None:
        return None
    try:
        began = store.client.hexists(store.keys.meta, "schema")
        theirs: Any = store.client.hmget(Keys(store.former).meta, ["schema", "declares"])
    except ResponseError:  # no rights there, so it is another app's; or another app's data
        return None
    schema, declares = theirs
    if began or schema is None or is_current((declares or b"").decode(errors="replace")):
        return None
    return (
        f"version 0.1 left the state of an app in namespace {shown(store.former)}; with its global_keyprefix "
        f"this app's namespace is {shown(store.namespace)} now. Set catchup_namespace to "
        f"{shown(store.former)} to go on with that state (in one deployment only), or to another name to "
        "begin without it"
    )


def store_url(app: Any, settings: Settings) -> str:
    """``catchup_redis_url``, or the broker when that is Redis."""
    if settings.redis_url is not None:
        return settings.redis_url
    broker = broker_store_url(app)
    if broker is not None:
        return broker
    scheme = shown(_broker_url(app).partition("://")[0])
    raise config_error(
        f"{PREFIX}redis_url",
        f"missing, and the broker is {scheme}, not Redis; write where state is kept, such as redis://localhost/0",
    )


def broker_store_url(app: Any) -> str | None:
    """The broker as redis-py takes its address; None when it is not Redis."""
    broker = _broker_url(app)
    speaks_redis = broker.partition("://")[0] in SCHEMES
    return _for_redis_py(broker, app.conf.get("broker_use_ssl")) if speaks_redis else None


def masked_url(app: Any) -> str:
    """Where the store is, without a password; for people."""
    return masked(store_url(app, read_settings(app, only=("redis_url",))))


def database_of(client: Redis) -> int:
    """The number of the database that a client speaks to."""
    return int(client.connection_pool.connection_kwargs.get("db") or 0)


def _broker_url(app: Any) -> str:
    """The broker to which messages are sent; of several, the first. Sentinels stay together."""
    urls = app.conf.broker_write_url or ""
    first = urls if isinstance(urls, str) else next(iter(urls), "")
    return first if first.startswith("sentinel://") else first.partition(";")[0]


def _for_redis_py(url: str, use_ssl: object) -> str:
    """kombu's spelling of a URL as redis-py reads it.

    Of the options only those of TLS, the database and the credential provider matter here; redis-py
    would choke on the rest.
    """
    scheme, host, path, query, _ = urlsplit(url)
    if scheme == "sentinel" and isinstance(use_ssl, Mapping):
        return _sentinels_with(url, {name: _option(value) for name, value in use_ssl.items()})
    if scheme not in ("redis", "rediss"):
        return url
    given = dict(parse_qsl(query)) | (dict(use_ssl) if isinstance(use_ssl, Mapping) else {})
    secure = scheme == "rediss" or bool(use_ssl)
    options = {name: _option(value) for name, value in given.items() if name.startswith("ssl_") and secure}
    options |= {"db": given["virtual_host"].strip("/")} if "virtual_host" in given else {}
    options |= {name: given[name] for name in (CREDENTIAL_PROVIDER,) if name in given}
    return urlunsplit(("rediss" if secure else scheme, host or "localhost", path, urlencode(options), ""))


def _sentinels_with(url: str, options: Mapping[str, str]) -> str:
    """A URL of Sentinels that also says how TLS to their server goes."""
    first, semicolon, others = url.partition(";")
    return f"{first}{'&' if '?' in first else '?'}{urlencode(options)}{semicolon}{others}"


def _option(value: object) -> str:
    """``ssl.CERT_NONE`` and kombu's ``"CERT_NONE"`` are redis-py's ``"none"``."""
    if isinstance(value, ssl.VerifyMode):
        return _CERT_REQS[value]
    return str(value).lower().removeprefix("cert_") if str(value).startswith("CERT_") else str(value)
