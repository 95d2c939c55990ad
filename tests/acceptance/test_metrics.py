"""A real beat tells its metrics to whoever asks on its port."""

from __future__ import annotations

import socket
import urllib.request
from contextlib import closing

from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.processes import until
from tests.acceptance.sites import Site


def a_free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        return int(free.getsockname()[1])


def scrape(port: int) -> dict[str, float]:
    """Every sample without its labels; of several, the largest."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = max(sample.value, found.get(sample.name, 0))
    return found


def test_an_outage_is_seen_in_the_metrics_of_the_beat_that_caught_up(site: Site) -> None:
    port = a_free_port()
    site.declare(
        {"hourly": "0 * * * *"},
        catchup_entries={"hourly": {"window": "6h", "overlap_policy": "all"}},
        catchup_metrics_port=port,
    )
    site.set_clock("09:05")
    site.leader().stop()
    site.set_clock("12:02")
    beat = site.leader()
    beat.until_it_says('msg="Catch-up completed"')

    until(lambda: scrape(port).get("celery_catchup_beat_leading"), what="the end of a tick")
    found = scrape(port)

    assert found["celery_catchup_leader"] == found["celery_catchup_store_up"] == 1
    assert found["celery_catchup_slots_dispatched_total"] == found["celery_catchup_slots_missed_total"] == 3
    assert found["celery_catchup_chain_length"] == 2
    assert found["celery_catchup_tick_duration_seconds_count"] >= 1
    assert beat.stop() == 0


def test_a_port_in_use_does_not_keep_a_beat_from_starting(site: Site) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        site.declare({"hourly": "0 * * * *"}, catchup_metrics_port=taken.getsockname()[1])
        beat = site.leader()

        assert 'msg="Metrics are not served"' in beat.text()
        assert beat.stop() == 0


def test_a_beat_inside_a_worker_serves_them_too(site: Site) -> None:
    port = a_free_port()
    site.declare({"hourly": "0 * * * *"}, catchup_metrics_port=port)
    worker = site.worker("-B", "--scheduler", "celery_catchup:Scheduler")
    worker.until_it_says('msg="Leading"')

    assert scrape(port)["celery_catchup_store_up"] == 1
