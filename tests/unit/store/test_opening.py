"""Where the store of an app is, by its settings."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery

from celery_catchup.config.app_settings import read_settings
from celery_catchup.errors import ConfigurationError
from celery_catchup.store.opening import masked_url, open_store, store_url

apps: list[Celery] = []


@pytest.fixture(autouse=True)
def _close_apps() -> Iterator[None]:
    yield
    while apps:
        apps.pop().close()


def an_app(name: str | None = "proj", **conf: Any) -> Celery:
    app = Celery(name, set_as_current=False)
    app.conf.update(conf)
    apps.append(app)
    return app


@pytest.mark.parametrize(
    ("conf", "url"),
    [
        ({"broker_url": "redis://localhost:6380/3"}, "redis://localhost:6380/3"),
        ({"broker_url": "redis://"}, "redis://"),
        ({"broker_url": ["redis://a/1", "redis://b/1"]}, "redis://a/1"),
        ({"broker_url": "redis://a/1;redis://b/1"}, "redis://a/1"),
        ({"broker_url": "redis://a/1", "broker_write_url": "redis://w/2"}, "redis://w/2"),
        (
            {"broker_url": "redis://u:p%40ss@a/1?visibility_timeout=5"},
            "redis://u:p%40ss@a/1",
        ),
        ({"broker_url": "redis://a?virtual_host=4"}, "redis://a?virtual_host=4"),
        (
            {"broker_url": "redis+socket:///run/x.sock?virtual_host=1"},
            "redis+socket:///run/x.sock?virtual_host=1",
        ),
        ({"broker_url": "sentinel://a:1/2;sentinel://b:1"}, "sentinel://a:1/2;sentinel://b:1"),
        (
            {"broker_url": "rediss://a/1?ssl_cert_reqs=CERT_REQUIRED"},
            "rediss://a/1?ssl_cert_reqs=CERT_REQUIRED",
        ),
        ({"broker_url": "rediss://a?ssl_cert_reqs=none"}, "rediss://a?ssl_cert_reqs=none"),
        (
            {"broker_url": "redis://a/1?credential_provider=p.C&x=1"},
            "redis://a/1?credential_provider=p.C",
        ),
        (
            {"broker_url": "redis://a", "broker_use_ssl": {"ssl_cert_reqs": ssl.CERT_OPTIONAL}},
            "rediss://a?ssl_cert_reqs=CERT_OPTIONAL",
        ),
        (
            {"broker_url": "rediss://a", "broker_use_ssl": {"ssl_ca_certs": "/etc/ca.pem", "keyfile": "no"}},
            "rediss://a?ssl_ca_certs=%2Fetc%2Fca.pem",
        ),
        ({"broker_url": "amqp://a", "catchup_redis_url": "unix:///run/y?db=2"}, "unix:///run/y?db=2"),
    ],
)
def test_the_store_is_where_the_settings_say_or_the_broker_is(conf: dict[str, Any], url: str) -> None:
    app = an_app(**conf)

    assert store_url(app, read_settings(app)) == url


@pytest.mark.parametrize("broker", ["amqp://guest:secret@a//", "memory://", "sqs://", ""])
def test_without_redis_the_setting_is_missing(broker: str) -> None:
    with pytest.raises(ConfigurationError, match="catchup_redis_url: missing") as caught:
        open_store(an_app(broker_url=broker))

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "db"),
    [
        ("redis://localhost", 0),
        ("redis://localhost/", 0),
        ("redis://localhost/3", 3),
        ("redis://localhost?virtual_host=5", 5),
        ("unix:///run/x?db=2", 2),
        ("redis+socket:///run/x?virtual_host=4", 4),
        ("sentinel://localhost:26379/6", 6),
        ("rediss://localhost/7?ssl_cert_reqs=required", 7),
    ],
)
def test_the_database_is_told_by_the_url(url: str, db: int) -> None:
    app = an_app(broker_url=url, broker_transport_options={"master_name": "main"})

    store = open_store(app)

    assert store.db == db
    store.close()


def test_the_namespace_is_the_setting_or_the_apps_name() -> None:
    redis = {"broker_url": "redis://"}

    assert open_store(an_app(**redis)).keys.prefix == "{catchup:proj}"
    assert open_store(an_app(**redis, catchup_namespace="mine")).keys.prefix == "{catchup:mine}"
    assert open_store(an_app(None, **redis)).keys.prefix == "{catchup:celery}"


def test_no_password_is_shown() -> None:
    app = an_app(broker_url="redis://user:canary@host/1")

    assert masked_url(app) == "redis://***@host/1"
    assert "canary" not in repr(open_store(app))
