"""The servers that tests talk to, and what happens when one is not there."""

from __future__ import annotations

import os
from typing import Any, NoReturn

import kombu
import pytest

from celery_catchup.testing.embedded_server import EmbeddedServer

RABBITMQ_URL = "amqp://guest:guest@127.0.0.1:5672//"


def required_services() -> set[str]:
    """The services that CATCHUP_REQUIRE, a comma-separated list, says are there."""
    return {name.strip() for name in os.environ.get("CATCHUP_REQUIRE", "").split(",") if name.strip()}


def missing(service: str, reason: str) -> NoReturn:
    """Skip the test on a machine without the service; fail where the service was promised."""
    if service in required_services():
        pytest.fail(f"{service} is in CATCHUP_REQUIRE, but {reason}", pytrace=False)
    pytest.skip(f"needs {service}: {reason}")


def why_rabbitmq_is_silent(url: str = RABBITMQ_URL) -> str | None:
    """What stands between us and RabbitMQ; None when it answers."""
    transport = kombu.Connection(url, connect_timeout=3).transport
    try:
        transport.close_connection(transport.establish_connection())
    except (OSError, *transport.connection_errors) as error:
        return f"nothing answers at {url} ({error})"
    return None


def private_server(**options: Any) -> EmbeddedServer:
    """A server of our own, not yet started; CATCHUP_TEST_REDIS_SERVER names another binary to use."""
    binary = os.environ.get("CATCHUP_TEST_REDIS_SERVER") or None
    # Without a password: proxies and other clients of the tests know only the port.
    return EmbeddedServer(binary=binary, **{"password": "", **options})
