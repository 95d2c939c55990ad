"""Open the store of an app: its settings say where it is."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from redis.exceptions import ResponseError

from celery_catchup.config.app_settings import read_settings
from celery_catchup.config.drift import is_current
from celery_catchup.config.mistakes import config_error
from celery_catchup.config.redis_urls import KOMBUS_DB, LOGIN_OPTIONS, SCHEMES, TLS_OPTIONS
from celery_catchup.config.settings import PREFIX, Settings
from celery_catchup.error_text import masked, shown
from celery_catchup.store.connection import connect
from celery_catchup.store.error_advice import explain
from celery_catchup.store.keys import Keys
from celery_catchup.store.store import Store

_NAMELESS = "celery"
"""The namespace of an app without a name."""
_OPTIONS = (*LOGIN_OPTIONS, KOMBUS_DB, *TLS_OPTIONS)


def open_store(app: Any, settings: Settings | None = None, *, patience: float | None = None) -> Store:
    """Open the store of an app. This sends nothing before the first command; no command takes longer than
    ``patience`` seconds.

    Raises `ConfigurationError` if no setting says where it is, or one is wrong.
    """
    settings = read_settings(app) if settings is None else settings
    url = store_url(app, settings)
    try:
        # Three calls must fit into the time in which a tick gives a sign of life.
        patience = settings.longest_silence / 3 if patience is None else patience
        options = app.conf.get("broker_transport_options") or {}
        client = connect(url, sentinel_options=options, patience=patience)
    except ValueError as error:
        where = "broker_url" if settings.redis_url is None else f"{PREFIX}redis_url"
        raise config_error(where, str(error)) from None
    former = settings.namespace or app.main or _NAMELESS
    namespace = settings.namespace or key_prefix(app) + former
    db = int(client.connection_pool.connection_kwargs.get("db") or 0)
    return Store(client, namespace, db, None if former == namespace else former)


def key_prefix(app: Any) -> str:
    """Return the prefix of the app's queue names on a Redis server that it shares with others."""
    return str((app.conf.get("broker_transport_options") or {}).get("global_keyprefix") or "")


def left_behind(store: Store) -> str | None:
    """Return advice if version 0.1 left state in a namespace that no app uses now, else None."""
    if store.former is None:
        return None
    try:
        began = store.client.hexists(store.keys.meta, "schema")
        schema, declares = store.client.hmget(Keys(store.former).meta, ["schema", "declares"])
    except ResponseError:  # no permission there, or another type: it belongs to another app
        return None
    if began or schema is None or is_current((declares or b"").decode(errors="replace")):
        return None
    return (
        f"version 0.1 left the state of an app in namespace {shown(store.former)}; with its global_keyprefix "
        f"this app's namespace is {shown(store.namespace)} now. Set catchup_namespace to "
        f"{shown(store.former)} to go on with that state (in one deployment only), or to another name to "
        "begin without it"
    )


def store_url(app: Any, settings: Settings) -> str:
    """Return ``catchup_redis_url``, or the broker's URL if that is Redis."""
    url = settings.redis_url or broker_store_url(app)
    if url is not None:
        return url
    scheme = shown(_broker_url(app).partition("://")[0])
    raise config_error(
        f"{PREFIX}redis_url",
        f"missing, and the broker is {scheme}, not Redis; write where state is kept, such as redis://localhost/0",
    )


def broker_store_url(app: Any) -> str | None:
    """Return the broker's URL for `connect`; None if the broker is not Redis."""
    broker = _broker_url(app)
    is_redis = broker.partition("://")[0] in SCHEMES
    return _for_store(broker, app.conf.get("broker_use_ssl")) if is_redis else None


def masked_url(app: Any) -> str:
    """Return the URL of the store for display, without a password."""
    return masked(store_url(app, read_settings(app, only=("redis_url",))))


def why_unusable(app: Any, error: BaseException) -> str:
    """Explain a failure of the app's store to its user."""
    return f"the store at {masked_url(app)} cannot be used: {explain(error)}"


def _broker_url(app: Any) -> str:
    """Return the broker to which messages are sent; of several, the first. Sentinels stay together."""
    urls = app.conf.broker_write_url or ""
    first = urls if isinstance(urls, str) else next(iter(urls), "")
    return first if first.startswith("sentinel://") else first.partition(";")[0]


def _for_store(url: str, use_ssl: object) -> str:
    """Keep the options of a broker's URL that `connect` uses, and add ``broker_use_ssl``."""
    first, semicolon, others = url.partition(";")
    address, _, query = first.partition("?")
    options = {name: value for name, value in parse_qsl(query) if name in _OPTIONS}
    if use_ssl and not address.startswith(("unix://", "redis+socket://")):
        address = re.sub("^redis://", "rediss://", address)
        given = use_ssl if isinstance(use_ssl, Mapping) else {}
        options |= {name: _text(value) for name, value in given.items() if name in TLS_OPTIONS}
    return f"{address}{'?' if options else ''}{urlencode(options)}{semicolon}{others}"


def _text(value: object) -> str:
    return value.name if isinstance(value, ssl.VerifyMode) else str(value)
