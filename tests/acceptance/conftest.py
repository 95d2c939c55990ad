"""Fixtures of the process-level tests: places for beats, on servers of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from celery_catchup.testing.embedded_server import EmbeddedServer
from tests import services
from tests.acceptance.messages import RabbitQueue
from tests.acceptance.nursery import Nursery
from tests.acceptance.processes import ROOT
from tests.acceptance.sites import Site


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Where Celery programs start fast."""
    place = Nursery(ROOT)
    yield place
    place.close()


@pytest.fixture
def site(tmp_path: Path, redis_url: str, nursery: Nursery) -> Iterator[Site]:
    """A place whose state and broker are on the private server; nothing runs afterwards."""
    place = Site(tmp_path, redis_url, nursery)
    yield place
    place.close()


@pytest.fixture
def lasting_server() -> Iterator[EmbeddedServer]:
    """A server of this test alone that keeps its data when it is stopped or killed."""
    with services.private_server(appendonly=True) as server:
        yield server


@pytest.fixture
def lasting_site(tmp_path: Path, lasting_server: EmbeddedServer, nursery: Nursery) -> Iterator[Site]:
    """A place on a server that may be stopped and started again."""
    place = Site(tmp_path, lasting_server.url(), nursery)
    yield place
    place.close()


@pytest.fixture
def rabbit_queue(rabbitmq_url: str, request: pytest.FixtureRequest) -> Iterator[RabbitQueue]:
    """A queue of this test alone."""
    queue = RabbitQueue(rabbitmq_url, f"catchup-{request.node.name}"[:200])
    queue.delete()
    yield queue
    queue.delete()
