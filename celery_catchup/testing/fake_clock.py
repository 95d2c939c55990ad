"""Provide a clock for tests that moves only when the test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class FakeClock:
    """A `Clock` under the test's control; the monotonic side moves with the wall clock, unless
    the wall clock is set."""

    def __init__(self, now: datetime | str = "2026-02-07T12:00:00Z") -> None:
        self._now = datetime.fromisoformat(now) if isinstance(now, str) else now
        self._passed = 1000.0

    def now(self) -> datetime:
        """Return the moment that the test has set."""
        return self._now.astimezone(UTC)

    def monotonic(self) -> float:
        """Return seconds that grow with `advance`."""
        return self._passed

    def advance(self, **duration: float) -> None:
        """Let time pass: ``advance(hours=3)``."""
        passed = timedelta(**duration)
        self._now += passed
        self._passed += passed.total_seconds()

    def set(self, now: datetime | str) -> None:
        """Change the wall clock as an administrator would; no time passes."""
        self._now = datetime.fromisoformat(now) if isinstance(now, str) else now
