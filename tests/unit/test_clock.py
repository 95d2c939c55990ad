"""The system's clock is aware, in UTC, and has a hand that never turns back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from celery_catchup.clock import Clock, SystemClock


def test_the_system_clock_gives_aware_utc() -> None:
    clock: Clock = SystemClock()

    now = clock.now()

    assert now.tzinfo is UTC
    assert abs(now - datetime.now(UTC)) < timedelta(minutes=1)


def test_the_monotonic_hand_never_turns_back() -> None:
    clock = SystemClock()

    readings = [clock.monotonic() for _ in range(100)]

    assert readings == sorted(readings)
