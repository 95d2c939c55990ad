"""Two beats: one leads, one stands by, and whatever happens to the leader no slot is lost or doubled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import ExitStack
from itertools import pairwise
from urllib.parse import urlsplit

import pytest

from tests.acceptance.processes import Process, until
from tests.acceptance.proxies import Proxy
from tests.acceptance.sites import LEADING, Site, instant, seconds_since
from tests.results import Recorder

LEASE = 3.0
SECOND = 1000
STANDING_BY = 'msg="Standing by"'


@pytest.fixture
def pair(site: Site) -> tuple[Process, Process]:
    """A leader and a standby of an entry that runs every second, and of one without a policy."""
    site.declare(
        {"ticking": {"$every": 1}, "stock": {"$every": 1}},
        catchup_entries={"ticking": {"window": "10m", "overlap_policy": "allow"}},
        catchup_lease_ttl=f"{LEASE:g}s",
        catchup_poll_interval=None,
    )
    first = site.leader()
    second = site.beat()
    second.until_it_says(STANDING_BY)
    site.until_sent(2)
    return first, second


def check_no_slot_lost_or_doubled(site: Site) -> None:
    slots = [instant(slot) for slot in site.slots("ticking")]

    assert [later - slot for slot, later in pairwise(slots)] == [SECOND] * (len(slots) - 1)


def until_two_more_slots(site: Site) -> None:
    sent = len(site.slots("ticking"))
    until(lambda: len(site.slots("ticking")) >= sent + 2, what="two more slots")


def stock_times(site: Site) -> list[int]:
    return [instant(message.slot) for message in site.messages() if message.entry is None]


def test_a_standby_says_once_that_it_stands_by_and_sends_nothing(
    site: Site, pair: tuple[Process, Process]
) -> None:
    first, second = pair
    until_two_more_slots(site)

    assert second.text().count(STANDING_BY) == 1
    assert LEADING not in second.text()
    assert first.text().count(LEADING) == 1
    assert STANDING_BY not in first.text()
    check_no_slot_lost_or_doubled(site)


def test_a_killed_leader_is_replaced_within_one_and_a_half_leases(
    site: Site, pair: tuple[Process, Process]
) -> None:
    first, second = pair

    first.kill()
    killed = time.monotonic()
    second.until_it_says(LEADING)
    takeover = seconds_since(killed)
    until_two_more_slots(site)

    print(f"takeover after a kill: {takeover:.2f} s with a lease of {LEASE:g} s")
    assert takeover <= 1.5 * LEASE
    check_no_slot_lost_or_doubled(site)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_leader_that_is_stopped_hands_over_at_once(
    site: Site, pair: tuple[Process, Process], number: signal.Signals
) -> None:
    first, second = pair

    assert first.stop(number) == 0
    stopped = time.monotonic()
    second.until_it_says(LEADING)
    takeover = seconds_since(stopped)
    until_two_more_slots(site)

    print(f"takeover after {number.name}: {takeover:.2f} s")
    assert takeover < 2.0
    check_no_slot_lost_or_doubled(site)
    assert len(set(stock_times(site))) == len(stock_times(site))


def test_a_leader_frozen_past_its_lease_stands_down_when_it_wakes(
    site: Site, pair: tuple[Process, Process]
) -> None:
    first, second = pair

    first.freeze()
    second.until_it_says(LEADING)
    first.thaw()
    first.until_it_says(STANDING_BY)
    until_two_more_slots(site)

    check_no_slot_lost_or_doubled(site)
    assert len(set(stock_times(site))) == len(stock_times(site))
    assert (first.text().count(LEADING), second.text().count(LEADING)) == (1, 1)


def test_leaders_frozen_in_turns_at_any_moment_double_nothing(
    site: Site, pair: tuple[Process, Process]
) -> None:
    leader, standby = pair
    for _ in range(2):
        leads = standby.text().count(LEADING)
        leader.freeze()
        standby.until_it_says(LEADING, times=leads + 1)
        leader.thaw()
        leader, standby = standby, leader
    until_two_more_slots(site)

    check_no_slot_lost_or_doubled(site)


def test_a_leader_frozen_shorter_than_its_lease_goes_on(site: Site, pair: tuple[Process, Process]) -> None:
    first, second = pair

    first.freeze()
    time.sleep(LEASE / 2)
    first.thaw()
    until_two_more_slots(site)

    assert LEADING not in second.text()
    check_no_slot_lost_or_doubled(site)


def test_a_stopped_standby_leaves_the_leader_alone(site: Site, pair: tuple[Process, Process]) -> None:
    first, second = pair

    assert second.stop() == 0
    until_two_more_slots(site)

    assert first.text().count(LEADING) == 1
    check_no_slot_lost_or_doubled(site)


def test_beats_that_begin_together_have_one_leader(site: Site) -> None:
    site.declare(
        {"ticking": {"$every": 1}},
        catchup_entries={"ticking": {"window": "10m", "overlap_policy": "allow"}},
    )
    beats = [site.beat() for _ in range(3)]
    for beat in beats:
        until(lambda beat=beat: LEADING in beat.text() or STANDING_BY in beat.text(), what="a word")
    until_two_more_slots(site)

    assert sorted(LEADING in beat.text() for beat in beats) == [False, False, True]
    check_no_slot_lost_or_doubled(site)


def test_a_leader_killed_in_its_catch_up_is_continued_by_the_standby(site: Site) -> None:
    policy = {"minutely": {"window": "1d", "overlap_policy": "allow"}}
    site.declare(
        {"minutely": "* * * * *"},
        catchup_entries=policy,
        catchup_batch_size=5,
        catchup_lease_ttl="3s",
        catchup_rate_limit="20ms",
    )
    site.set_clock("00:00:30")
    before = site.leader()
    site.until_a_tick_later()
    before.stop()
    site.set_clock("01:40:30")
    first = site.leader()
    second = site.beat()
    site.until_sent(20)

    first.kill()
    site.until_sent(100)
    site.until_a_tick_later()

    slots = [instant(slot) for slot in site.slots("minutely")]
    assert len(slots) == 100
    assert [later - slot for slot, later in pairwise(slots)] == [60 * SECOND] * 99
    assert len(second.said("Catch-up started")) == 1


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_forty_leaders_killed_frozen_and_stopped_at_random_lose_nothing_and_double_nothing(
    site: Site, pair: tuple[Process, Process], record_result: Recorder
) -> None:
    seed = int(os.environ.get("CATCHUP_TEST_SEED") or time.time_ns() % 10**6)
    chance, times = random.Random(seed), defaultdict[str, list[float]](list)
    leader, standby = pair
    for _ in range(40):
        time.sleep(chance.uniform(0, 1.5))
        harm = chance.choice(["kill", "freeze", "stop"])
        leads, stood_by = standby.text().count(LEADING), leader.text().count(STANDING_BY)
        getattr(leader, harm)()
        harmed = time.monotonic()
        standby.until_it_says(LEADING, times=leads + 1)
        times[harm].append(seconds_since(harmed))
        if harm == "freeze":
            leader.thaw()
        else:
            leader, stood_by = site.beat(), 0
        leader.until_it_says(STANDING_BY, times=stood_by + 1)
        leader, standby = standby, leader
    until_two_more_slots(site)

    for harm, seconds in sorted(times.items()):
        longest = round(max(seconds), 2)
        record_result(f"take-over: {harm}", seed=seed, times=len(seconds), longest_s=longest, lease_s=LEASE)
    check_no_slot_lost_or_doubled(site)
    assert max(times["kill"] + times["freeze"]) <= 1.5 * LEASE
    assert max(times["stop"]) < 2.0


BUSY = "while True: sum(range(10_000))"


@pytest.mark.parametrize(
    "seconds",
    [8, pytest.param(600, marks=[pytest.mark.soak, pytest.mark.timeout(900)])],
)
def test_a_healthy_leader_keeps_the_lead_on_a_saturated_machine_with_a_slow_network(
    site: Site, seconds: int
) -> None:
    """Every processor has two programs that never rest, and a round trip to Redis takes 100 ms; the lease
    has its default length."""
    url = urlsplit(site.url)
    with Proxy(url.hostname or "", url.port or 0) as proxy, ExitStack() as stack:
        site.declare(
            {"ticking": {"$every": 1}},
            catchup_entries={"ticking": {"window": "10m", "overlap_policy": "allow"}},
            catchup_lease_ttl=None,
            catchup_poll_interval=None,
            catchup_redis_url=url._replace(netloc=f"127.0.0.1:{proxy.port}").geturl(),
        )
        first = site.leader()
        second = site.beat()
        second.until_it_says(STANDING_BY)
        proxy.slow(0.05, 0.05)
        for _ in range(2 * (os.cpu_count() or 1)):
            busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", BUSY]))
            stack.callback(busy.kill)
        time.sleep(seconds)

        assert second.text().count(LEADING) == 0
        assert first.text().count(LEADING) == 1
        assert STANDING_BY not in first.text()
    check_no_slot_lost_or_doubled(site)
