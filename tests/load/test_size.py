"""Many entries, a long gap: what they cost in time and memory."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from celery_catchup.store.store import read_span
from tests.acceptance.processes import Process, until
from tests.acceptance.sites import Site, seconds_since
from tests.load.memory import resident
from tests.results import Recorder

FIVE_YEARS = timedelta(days=1826)
MINUTELY = "* * * * *"
KEPT = {"catchup_ledger_ttl": "2000d"}


# -- entries -----------------------------------------------------------------------------------


def all_due_at_once(site: Site, record_result: Recorder, *, entries: int) -> None:
    """Start, stand idle for a moment, and send all of them in one second."""
    site.declare(
        {f"entry{number}": MINUTELY for number in range(entries)},
        catchup_entries={"*": {"window": "1h", "overlap_policy": "allow"}},
    )
    site.set_clock("00:00:15")
    beat = site.beat()
    beat.until_it_says('msg="Leading"', within=60)
    started = seconds_since(beat.begun)
    site.until_a_tick_later()
    begun, renewals = time.monotonic(), _renewals(site)
    until(lambda: _renewals(site) >= renewals + 5, what="five idle ticks")
    idle = seconds_since(begun) / 5
    until(lambda: site.redis.llen("celery"), what="the first message", within=60)
    begun = time.monotonic()
    until(lambda: site.redis.llen("celery") >= 0.99 * entries, what="nearly all", within=120, step=0.01)
    p99 = seconds_since(begun)
    until(lambda: site.redis.llen("celery") >= entries, what="all messages", within=120, step=0.01)
    record_result(
        f"{entries:,} entries",
        start_s=round(started, 2),
        idle_tick_every_s=round(idle, 2),
        p99_lag_s=round(p99, 2),
        all_sent_in_s=round(seconds_since(begun), 2),
        beat_mib=round(resident(beat.pid, "VmHWM")),
    )

    assert site.redis.llen("celery") == entries
    assert idle < 1.0
    assert started < 5
    assert p99 < 5


def _renewals(site: Site) -> int:
    found: Any = site.redis.hget(site.keys.leader, "beat")
    return int(found or 0)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_ten_thousand_entries_due_in_one_second(site: Site, record_result: Recorder) -> None:
    all_due_at_once(site, record_result, entries=10_000)


# -- a gap -------------------------------------------------------------------------------------


def after_five_years(site: Site) -> tuple[Process, float]:
    """A beat that comes back after five years, and what it needs for itself, in MiB."""
    site.offset = -FIVE_YEARS
    before = site.leader()
    site.until_a_tick_later()
    own = resident(before.pid, "VmHWM")
    assert before.stop() == 0
    site.offset = timedelta()
    return site.leader(), own


@pytest.mark.figures
def test_five_years_of_minutes_are_decided_without_listing_them(site: Site, record_result: Recorder) -> None:
    policies = {
        "latest": {"window": "1900d", "select": "latest"},
        "capped": {"window": "1900d", "max_runs": 10, "overlap_policy": "allow"},
        "recent": {"window": "10m", "overlap_policy": "allow"},
    }
    site.declare(dict.fromkeys(policies, MINUTELY), catchup_entries=policies, **KEPT)
    beat, own = after_five_years(site)
    begun = time.monotonic()
    beat.until_it_says("Catch-up completed", within=60)
    took, more = seconds_since(begun), resident(beat.pid, "VmHWM") - own

    decided = {name: len(site.ledger(name)) + _skipped(site, name) for name in ("latest", "capped")}
    record_result(
        "a gap of five years, minutely",
        slots=min(decided.values()),
        seconds=round(took, 2),
        more_mib=round(more, 1),
    )
    assert min(decided.values()) >= FIVE_YEARS // timedelta(minutes=1)
    assert len(site.ledger("capped")) >= 10
    assert took < 10
    assert more < 50


def _skipped(site: Site, entry: str) -> int:
    spans: Any = site.redis.zrange(site.keys.skips(entry), 0, -1)
    return sum(read_span(span)["count"] for span in spans)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_gap_of_five_years_drains_in_batches(site: Site, record_result: Recorder) -> None:
    """Every one of them is to run: some hundred thousand are waited for."""
    wanted = 200_000
    everything = {"every": {"window": "1900d", "overlap_policy": "allow"}}
    site.declare({"every": MINUTELY}, catchup_entries=everything, **KEPT)
    beat, own = after_five_years(site)
    until(lambda: site.redis.llen("celery") >= wanted / 10, what="the first tenth", within=120)
    first, begun = site.redis.llen("celery"), time.monotonic()
    early = resident(beat.pid)
    until(lambda: site.redis.llen("celery") >= wanted, what=f"{wanted:,} messages", within=600, step=0.05)
    rate = (site.redis.llen("celery") - first) / seconds_since(begun)
    late = resident(beat.pid)
    record_result(
        "a gap of five years, every slot",
        dispatched=wanted,
        a_second=round(rate),
        more_mib=round(resident(beat.pid, "VmHWM") - own, 1),
        growth_mib=round(late - early, 1),
    )

    assert late - early < 10
    assert beat.text().count('msg="Leading"') == 1, "its lease was renewed all the while"
    assert rate > 500
