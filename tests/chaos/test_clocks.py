"""Clocks of beats and of the server jump: nothing is sent twice, and a dead leader is still replaced."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import redis

from tests.acceptance.nursery import Nursery
from tests.acceptance.processes import until
from tests.acceptance.sites import LEADING, Site, instant, seconds_since
from tests.chaos.clocks import FakedTime
from tests.integration.servers import binary_of, free_port
from tests.results import Recorder

LEASE = 3.0
HOUR = 3600.0
SECOND = 1000


@pytest.fixture
def faked(tmp_path: Path) -> FakedTime:
    return FakedTime(tmp_path / "time")


@pytest.fixture
def shifting_site(tmp_path: Path, faked: FakedTime, nursery: Nursery) -> Iterator[Site]:
    """A place whose server believes a clock that jumps."""
    port = free_port()
    words = ("--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path))
    server = subprocess.Popen(
        [binary_of("valkey"), *words], env={**os.environ, **faked.for_a_server}, stdout=subprocess.DEVNULL
    )
    place = Site(tmp_path, f"redis://127.0.0.1:{port}/0", nursery)
    try:
        until(lambda: _answers(place), what="a server")
        yield place
    finally:
        place.close()
        server.kill()
        server.wait()


def _answers(site: Site) -> bool:
    try:
        return bool(site.redis.ping())
    except redis.ConnectionError:
        return False


def declare(site: Site) -> None:
    site.declare(
        {"ticking": {"$every": 1}},
        catchup_entries={"ticking": {"window": "10m", "overlap_policy": "allow"}},
        catchup_lease_ttl=f"{LEASE:g}s",
    )


def until_two_more(site: Site) -> None:
    sent = len(site.slots("ticking"))
    until(lambda: len(site.slots("ticking")) >= sent + 2, what="two more slots")


def gaps(site: Site) -> list[int]:
    slots = [instant(slot) for slot in site.slots("ticking")]
    return [later - slot for slot, later in pairwise(slots)]


@pytest.mark.figures
def test_jumps_of_the_servers_clock_neither_steal_the_lead_nor_lock_anybody_out(
    shifting_site: Site, faked: FakedTime, record_result: Recorder
) -> None:
    site = shifting_site
    declare(site)
    leader, standby = site.leader(), site.beat()
    standby.until_it_says("Standing by")
    jumps = (HOUR, -HOUR, 0.0)
    for jump in jumps:
        faked.jump(jump)
        until(lambda jump=jump: abs(site.redis.time()[0] - time.time() - jump) < 5, what="the jump")
        until_two_more(site)
    faked.jump(-HOUR)
    leader.kill()
    killed = time.monotonic()
    standby.until_it_says(LEADING)
    takeover = seconds_since(killed)
    until_two_more(site)
    sent = gaps(site)
    record_result(
        "the server's clock jumps by an hour",
        jumps=len(jumps) + 1,
        takeover_s=round(takeover, 2),
        slots=len(sent) + 1,
        lost_or_twice=sum(gap != SECOND for gap in sent),
    )

    assert takeover <= 2 * LEASE
    assert set(sent) == {SECOND}


@pytest.mark.soak
def test_small_steps_of_a_beats_clock_lose_nothing_and_repeat_nothing(
    site: Site, faked: FakedTime, record_result: Recorder
) -> None:
    declare(site)
    site.leader(**faked.for_a_beat)
    steps = (0.4, -0.4, 2.5, 0.0, -2.5, 0.0)
    for step in steps:
        until_two_more(site)
        faked.jump(step)
    until_two_more(site)
    sent = gaps(site)
    record_result(
        "a beat's clock is stepped by some seconds",
        steps=len(steps),
        slots=len(sent) + 1,
        lost_or_twice=sum(gap != SECOND for gap in sent),
    )

    assert set(sent) == {SECOND}


@pytest.mark.figures
def test_a_beat_whose_clock_jumps_by_an_hour_repeats_nothing(
    site: Site, faked: FakedTime, record_result: Recorder
) -> None:
    declare(site)
    beat = site.leader(**faked.for_a_beat)
    until_two_more(site)
    faked.jump(HOUR)
    beat.until_it_says("Catch-up completed")
    until_two_more(site)
    faked.jump(0)
    site.until_a_tick_later()
    before = len(site.slots("ticking"))
    site.until_a_tick_later()
    slots = [instant(slot) for slot in site.slots("ticking")]
    early = sum(slot > (time.time() + HOUR) * SECOND for slot in slots)
    record_result(
        "a beat's clock jumps by an hour and back",
        slots=len(slots),
        early=early,
        twice=len(slots) - len(set(slots)),
    )

    assert early == 0
    assert len(slots) == before, "what the jump has decided is not decided again"
    assert slots == sorted(set(slots))
    assert beat.alive
