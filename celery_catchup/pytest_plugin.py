"""Provide fixtures for your own tests: ``pytest_plugins = ["celery_catchup.pytest_plugin"]``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from celery_catchup.testing.embedded_server import EmbeddedServer
from celery_catchup.testing.manual_beat import ManualBeat


@pytest.fixture(scope="session")
def catchup_server() -> Iterator[EmbeddedServer]:
    """Start a private Redis-compatible server for the whole session."""
    with EmbeddedServer() as server:
        yield server


@pytest.fixture
def catchup_beat(catchup_server: EmbeddedServer) -> Iterator[Callable[..., ManualBeat]]:
    """Build a beat for an app that ticks by hand: ``catchup_beat(app, at="2026-02-07T09:05:00Z")``."""
    made: list[ManualBeat] = []

    def make(app: Any, *, at: datetime | str) -> ManualBeat:
        made.append(ManualBeat(app, catchup_server.url(), at=at))
        return made[-1]

    yield make
    for beat in made:
        beat.close()
