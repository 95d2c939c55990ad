"""What tests on a real server leave behind is closed here; and the clock of who operates it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from celery_catchup.operations import Desk
from celery_catchup.testing import FakeClock
from tests.integration import beats


@pytest.fixture(autouse=True)
def _close_beats() -> Iterator[None]:
    yield
    while beats.OPEN:
        beats.OPEN.pop().close()


@pytest.fixture
def desk_clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The operator's clock: it stands at 09:05 until the test moves it."""
    clock = FakeClock("2026-02-07T09:05:00Z")
    monkeypatch.setattr(Desk, "clock", clock)
    return clock
