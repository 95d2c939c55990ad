"""The way to the server fails in every manner: nobody hangs, nothing is lost, nothing is done twice."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from celery_catchup.testing.embedded_server import EmbeddedServer
from tests.acceptance.nursery import Nursery
from tests.acceptance.processes import until
from tests.acceptance.sites import Site, seconds_since
from tests.chaos import oracle
from tests.chaos.networks import Network, a_namespace, a_proxied_way
from tests.chaos.storms import Storm
from tests.results import Recorder

LASTS = 4.0  # seconds; longer than the leases
RECOVERY = 20.0  # seconds; time-outs and back-off of beats and workers, on a busy machine


def weather(
    name: str, network: Network, folder: Path, nursery: Nursery, record_result: Recorder, *, rounds: int
) -> None:
    """Break the network in every way, again and again; each time everything goes on afterwards."""
    site = Site(folder, network.url, nursery)
    try:
        storm, recoveries = Storm(site), []
        storm.begin()
        for fault in network.faults * rounds:
            begun = time.monotonic()
            network.break_it(fault)
            time.sleep(LASTS)
            network.mend()
            mended, done = time.monotonic(), len(storm.done())
            until(lambda done=done: len(storm.done()) > done, what=f"runs after {fault}", within=RECOVERY)
            recoveries.append(seconds_since(mended))
            # What was to be reported meanwhile may have been lost with its lease.
            sessions = {one.session for one in storm.done()}
            storm.harms += [oracle.Harm(one, begun, until=time.monotonic()) for one in sessions]
        verdict = storm.judge()
        record_result(
            name,
            seed=storm.seed,
            faults=len(recoveries),
            kinds=len(network.faults),
            longest_recovery_s=round(max(recoveries), 1),
            messages_sent_again=storm.missed,
            **verdict.figures,
        )

        verdict.check()
        assert all(process.alive for process in (*storm.beats, *storm.workers))
    finally:
        network.mend()
        site.close()


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_packets_that_the_kernel_drops_cost_time_only(
    tmp_path: Path, nursery: Nursery, record_result: Recorder
) -> None:
    with a_namespace(tmp_path) as network:
        weather("network: packets dropped", network, tmp_path, nursery, record_result, rounds=2)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_slow_and_a_cut_way_cost_time_only(
    tmp_path: Path, lasting_server: EmbeddedServer, nursery: Nursery, record_result: Recorder
) -> None:
    with a_proxied_way(lasting_server) as network:
        weather("network: proxy", network, tmp_path, nursery, record_result, rounds=2)
