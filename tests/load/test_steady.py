"""A hundred slots a second: they are sent in time, and beat does not grow."""

from __future__ import annotations

import json
import time
from datetime import datetime
from statistics import quantiles
from typing import Any

import pytest

from tests.acceptance.sites import Site
from tests.load.memory import growth, resident
from tests.results import Recorder

A_SECOND = 1.0
FLAT = 10.0  # MiB; caches of a Python process move by a few


def due_every_second(site: Site, record_result: Recorder, *, entries: int, seconds: float) -> None:
    """Take every message from the queue as it comes, and see how old its slot is."""
    site.declare(
        {f"entry{number}": {"$every": 1} for number in range(entries)},
        catchup_entries={"*": {"window": "1h", "overlap_policy": "allow"}},
        catchup_lease_ttl="10s",
    )
    beat = site.leader()
    lags, sizes, begun = [], [resident(beat.pid)], time.monotonic()
    while time.monotonic() < begun + seconds:
        taken: Any = site.redis.brpop(["celery"], timeout=5)
        assert taken is not None, "nothing was sent for five seconds"
        slot = json.loads(taken[1])["headers"]["scheduled_time"]
        lags.append(time.time() - datetime.fromisoformat(slot).timestamp())
        if len(lags) % (5 * entries) == 0:
            sizes.append(resident(beat.pid))
    percentiles = quantiles(lags, n=100)
    record_result(
        f"{entries} due every second",
        minutes=round(seconds / 60, 1),
        dispatched=len(lags),
        lag_p50_ms=round(percentiles[49] * 1000),
        lag_p99_ms=round(percentiles[98] * 1000),
        lag_max_ms=round(max(lags) * 1000),
        beat_mib=round(max(sizes)),
        growth_mib=round(growth(sizes), 1),
    )

    assert len(lags) >= entries * (seconds - 2)
    assert percentiles[98] <= A_SECOND
    assert growth(sizes) <= FLAT


def test_ten_slots_a_second_are_sent_in_time(site: Site, record_result: Recorder) -> None:
    due_every_second(site, record_result, entries=10, seconds=5)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_hundred_slots_a_second_for_ten_minutes_are_sent_in_time(
    site: Site, record_result: Recorder
) -> None:
    due_every_second(site, record_result, entries=100, seconds=600)
