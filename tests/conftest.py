"""Fixtures for every tier: a private Valkey per worker process, and RabbitMQ where there is one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from hypothesis import HealthCheck, settings

from celery_catchup.testing.embedded_server import EmbeddedServer
from tests import services
from tests.results import pytest_runtest_logreport, pytest_terminal_summary, record_result

__all__ = ["pytest_runtest_logreport", "pytest_terminal_summary", "record_result"]

# The same examples on every machine, so that a change is judged by what it changed; `thorough`
# looks for new ones: pytest tests/property --hypothesis-profile=thorough
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile(
    "thorough", max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck)
)
settings.load_profile("steady")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what talks to RabbitMQ, so that ``-m 'not rabbitmq'`` needs no discipline."""
    for item in items:
        if "rabbitmq_url" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.rabbitmq)


@pytest.fixture(scope="session")
def _rabbitmq_silence() -> str | None:
    return services.why_rabbitmq_is_silent()


@pytest.fixture
def rabbitmq_url(_rabbitmq_silence: str | None) -> str:
    """Where RabbitMQ answers. It is shared by all workers: name queues after the test."""
    if _rabbitmq_silence:
        services.missing("rabbitmq", _rabbitmq_silence)
    return services.RABBITMQ_URL


@pytest.fixture(scope="session")
def valkey() -> Iterator[EmbeddedServer]:
    """A server of this worker process alone; nothing of it is left afterwards."""
    with services.private_server() as server:
        yield server


@pytest.fixture
def redis_url(valkey: EmbeddedServer) -> str:
    """An empty database 0 (and 1 to 15) of the private server."""
    valkey.start()  # a test may have killed it
    with redis.Redis.from_url(valkey.url()) as client:
        client.flushall()
    return valkey.url()
