"""What tests on a real server leave behind is closed here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration import beats


@pytest.fixture(autouse=True)
def _close_beats() -> Iterator[None]:
    yield
    while beats.OPEN:
        beats.OPEN.pop().close()
