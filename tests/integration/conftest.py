"""What tests on a real server leave behind is closed here; and the clock of who operates it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import kombu
import pytest

from celery_catchup.operations import Operator, fleet
from celery_catchup.testing import FakeClock
from tests.integration import beats

if TYPE_CHECKING:
    from tests.integration.django_projects import DjangoProject


@pytest.fixture(autouse=True)
def _close_beats() -> Iterator[None]:
    yield
    while beats.OPEN:
        beats.OPEN.pop().close()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests have no workers that could answer."""
    monkeypatch.setattr(fleet, "ANSWER", 0.05)


@pytest.fixture
def desk_clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The operator's clock: it stands at 09:05 until the test moves it."""
    clock = FakeClock("2026-02-07T09:05:00Z")
    monkeypatch.setattr(Operator, "clock", clock)
    return clock


@pytest.fixture
def queue(rabbitmq_url: str) -> Iterator[str]:
    """The name of a queue of this test's own; it is gone afterwards."""
    name = f"catchup-test-{uuid.uuid4().hex[:12]}"
    yield name
    with kombu.Connection(rabbitmq_url) as connection:
        connection.default_channel.queue_delete(name)


@pytest.fixture(scope="session")
def django_project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DjangoProject]:
    """Django, set up once a process, with databases of its own."""
    from tests.integration.django_projects import DjangoProject  # Django takes a while to import

    project = DjangoProject(tmp_path_factory.mktemp("django") / "db.sqlite3")
    yield project
    project.close()
