"""Workers that are stopped or slow, while a catch-up waits for them: a delay is not a loss."""

from __future__ import annotations

import signal
import time

import pytest

from tests.acceptance.messages import RabbitQueue
from tests.acceptance.sites import Site
from tests.chaos.fleets import SlowFleet
from tests.results import Recorder

SLOTS = 200


def stop_the_fleet(fleet: SlowFleet, *, shifted: bool) -> None:
    """All workers stop in order in the midst of a catch-up, and come back much later."""
    workers = [fleet.worker() for _ in range(2)]
    fleet.until_ended(fleet.slots // 4)
    for worker in workers:
        worker.send(signal.SIGTERM)
    for worker in workers:
        worker.wait()
    before, sent = fleet.states(), fleet.site.redis.llen("celery")
    assert (before["queued"], before["running"]) == (1, 0)
    assert before["waiting"] > fleet.slots // 4
    if shifted:
        for minutes in (5, 10, 20, 40, 80):
            fleet.let_pass(minutes=minutes + 0.1)
            assert fleet.states() == before
    else:
        time.sleep(15 * 60)
    assert fleet.states() == before
    assert fleet.site.redis.llen("celery") == sent
    for _ in range(2):
        fleet.worker()
    fleet.until_ended(fleet.slots, within=180)
    fleet.until_recorded()
    fleet.check()


def outlast_the_backlog(fleet: SlowFleet, *, minutes_each: float) -> None:
    """One worker, one task at a time; each stands for one that takes so many minutes."""
    fleet.worker("-c", "1")
    for number in range(1, fleet.slots + 1):
        fleet.until_ended(number)
        fleet.let_pass(minutes=minutes_each)
        assert set(fleet.states()) <= {"queued", "running", "succeeded", "waiting"}
    fleet.until_recorded()
    fleet.check()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_fleet_that_is_stopped_for_hours_goes_on_where_it_was(site: Site) -> None:
    fleet = SlowFleet(site, slots=SLOTS, seconds=0.02, policy="all")
    fleet.begin()
    stop_the_fleet(fleet, shifted=True)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_backlog_of_two_hours_is_executed_once_and_in_order(site: Site) -> None:
    fleet = SlowFleet(site, slots=120, seconds=0.01, policy="allow")
    fleet.begin()
    outlast_the_backlog(fleet, minutes_each=1)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_fleet_that_is_stopped_for_a_quarter_of_an_hour_goes_on_where_it_was(
    site: Site, record_result: Recorder
) -> None:
    fleet = SlowFleet(site, slots=SLOTS, seconds=0.2, policy="all")
    fleet.begin()
    stop_the_fleet(fleet, shifted=False)
    record_result("workers stopped for 15 minutes in a catch-up", slots=SLOTS, executed=fleet.ended(), dead=0)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_backlog_of_sixteen_hours_on_rabbitmq_is_executed_once_and_in_order(
    site: Site, rabbit_queue: RabbitQueue, record_result: Recorder
) -> None:
    site.broker = rabbit_queue.url
    fleet = SlowFleet(site, slots=480, seconds=0.05, policy="allow")
    fleet.begin(catchup_redis_url=site.url, task_default_queue=rabbit_queue.name)
    outlast_the_backlog(fleet, minutes_each=2)
    record_result("a backlog of 16 hours, shifted", slots=fleet.slots, executed=fleet.ended(), dead=0)
