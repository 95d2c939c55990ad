"""The clock: the only place that reads the wall clock.

All other code receives the time or a clock, so that tests can replace it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall-clock and monotonic time."""

    def now(self) -> datetime:
        """Return the current time, aware and in UTC; slots are compared with it."""

    def monotonic(self) -> float:
        """Return seconds that never run backwards; for deadlines only."""


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """Return the time of the system's wall clock."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that a change of the system's date does not affect."""
        return time.monotonic()

    def every(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        """Call an action at intervals in a thread; return a function that ends it. Failures are left to the
        next call."""
        ended = threading.Event()

        def repeat() -> None:
            while not ended.wait(seconds):
                with contextlib.suppress(Exception):
                    action()

        threading.Thread(target=repeat, name="celery-catchup-lease", daemon=True).start()
        return ended.set
