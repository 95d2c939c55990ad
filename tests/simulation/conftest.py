"""One server for all seeds of a test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.world import Simulator, private_simulator


@pytest.fixture(scope="session")
def simulator() -> Iterator[Simulator]:
    with private_simulator() as one:
        yield one
