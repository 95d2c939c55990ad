"""Beats and workers are killed and frozen, the server too: nothing is lost, doubled or out of order."""

from __future__ import annotations

import time
from typing import Any

import pytest

from celery_catchup.testing.embedded_server import EmbeddedServer
from tests.acceptance.messages import RabbitQueue
from tests.acceptance.sites import Site
from tests.chaos.storms import LEASE, Storm
from tests.results import Recorder


def check(storm: Storm, record_result: Recorder, name: str, **figures: Any) -> None:
    verdict = storm.judge()
    record_result(name, **storm.figures, **figures, **verdict.figures)
    verdict.check()
    assert max(storm.takeovers) <= 1.5 * LEASE


def storm_on_redis(
    site: Site, server: EmbeddedServer, record_result: Recorder, *, parts: int, kills: int, freezes: int
) -> None:
    """Between two parts the server is killed too; it kept what it had acknowledged."""
    storm = Storm(site)
    storm.begin()
    for part in range(1, parts + 1):
        storm.rage(kills=kills * part // parts, freezes=freezes * part // parts)
        server.kill()
        time.sleep(storm.chance.uniform(0, 1.5))
        server.start()
        storm.leader()
    check(storm, record_result, "beats, workers and server killed: Redis", server_kills=parts)


def storm_on_rabbitmq(site: Site, queue: RabbitQueue, record_result: Recorder, **size: int) -> None:
    site.broker = queue.url
    storm = Storm(site)
    storm.begin(catchup_redis_url=site.url, task_default_queue=queue.name, broker_transport_options={})
    storm.rage(**size)
    check(storm, record_result, "beats and workers killed: RabbitMQ")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_short_storm_loses_nothing_and_completes_nothing_twice(
    lasting_site: Site, lasting_server: EmbeddedServer, record_result: Recorder
) -> None:
    storm_on_redis(lasting_site, lasting_server, record_result, parts=1, kills=5, freezes=3)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_long_storm_on_redis_loses_nothing_and_completes_nothing_twice(
    lasting_site: Site, lasting_server: EmbeddedServer, record_result: Recorder
) -> None:
    storm_on_redis(lasting_site, lasting_server, record_result, parts=8, kills=180, freezes=40)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_long_storm_on_rabbitmq_loses_nothing_and_completes_nothing_twice(
    site: Site, rabbit_queue: RabbitQueue, record_result: Recorder
) -> None:
    storm_on_rabbitmq(site, rabbit_queue, record_result, kills=160, freezes=40)
