"""The clock: the only place that reads the wall clock.

Everything else is handed the time, so that a test can hand it another one.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What time it is, and how much of it has passed."""

    def now(self) -> datetime:
        """The present moment, aware and in UTC; slots are compared with it."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment, never running backwards; for deadlines only."""


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """The present moment by the system's wall clock."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that no change of the system's date can disturb."""
        return time.monotonic()
