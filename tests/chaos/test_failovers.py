"""The server is failed over again and again: nothing is lost and nothing comes twice with min-replicas on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.nursery import Nursery
from tests.chaos.failovers import FailoverStorm, a_watched_site
from tests.integration.servers import MASTER
from tests.results import Recorder


def fail_over(folder: Path, nursery: Nursery, record_result: Recorder, *, times: int) -> None:
    with a_watched_site(folder, nursery) as (site, failovers):
        storm = FailoverStorm(site)
        storm.begin(broker_transport_options={"master_name": MASTER, "visibility_timeout": 3})
        for _ in range(times):
            storm.fail_over(failovers)
        verdict = storm.judge()
        record_result(
            "Sentinel fail-overs, old primary woken",
            seed=storm.seed,
            fail_overs=failovers.count,
            roll_backs_noticed=storm.forgotten(),
            messages_sent_again=storm.missed,
            workers_given_up=storm.worker_exits,
            workers_hung=storm.worker_hangs,
            **verdict.figures,
        )

        verdict.check()
        assert all(beat.alive for beat in storm.beats), "a beat never gives up"


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_twenty_fail_overs_lose_nothing(tmp_path: Path, nursery: Nursery, record_result: Recorder) -> None:
    fail_over(tmp_path, nursery, record_result, times=20)
