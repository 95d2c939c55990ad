"""What a link of a chain may cost the server: commands are counted, and no seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from celery_catchup.model import RunState, to_instant
from celery_catchup.store.leases import ClaimOutcome, ReportOutcome
from celery_catchup.testing import FakeClock
from tests.integration.beats import Beat

MINUTELY = "* * * * *"

Chain = Callable[[int], Beat]


@pytest.fixture
def chain(redis_url: str) -> Chain:
    def miss(length: int) -> Beat:
        """A beat that comes back after an outage, so many minutes later."""
        clock = FakeClock("2026-02-07T09:00:30Z")
        entries = {"etl": (MINUTELY, {"window": "2d", "overlap_policy": "all"})}
        first = Beat(redis_url, clock, entries)
        first.tick()
        first.engine.resign()
        clock.advance(minutes=length)
        second = Beat(redis_url, clock, entries)
        second.tick()
        second.leases.now_ms = to_instant(clock.now())  # all of it happens in one hour
        return second

    return miss


def execute(beat: Beat, run_id: str) -> None:
    claim = beat.leases.claim(run_id, owner="o", task="proj.etl", worker="w", entry="etl")
    assert claim.answer is ClaimOutcome.GRANTED
    ending = beat.leases.finish(run_id, entry="etl", owner="o", state=RunState.SUCCEEDED)
    assert ending.outcome is ReportOutcome.RECORDED


def cost_of_a_link(beat: Beat) -> dict[str, int]:
    """The commands of the second run, those that scripts call included; the first has loaded the scripts."""
    first, second = [run["id"] for run in beat.ledger.runs_of("etl")][:2]
    execute(beat, first)
    beat.client.config_resetstat()
    execute(beat, second)
    stats: Any = beat.client.info("commandstats")
    counts = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items()}
    counts.pop("config|resetstat", None)
    return counts


def test_a_link_costs_the_same_commands_however_long_the_chain_is(chain: Chain) -> None:
    beat = chain(5)
    short = cost_of_a_link(beat)
    beat.client.flushall()

    assert cost_of_a_link(chain(500)) == short
    assert short["evalsha"] == 2
    assert short["lpush"] == 1


def test_a_link_writes_its_record_twice_and_its_successors_once(chain: Chain) -> None:
    """Of the hour the largest lag is kept, and in a chain that is the first one's; the entry's last success
    is the fourth."""
    assert cost_of_a_link(chain(5))["hset"] == 4
