"""What Prometheus is told: of the store by anybody, of a beat by itself."""

from __future__ import annotations

import logging
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from celery_catchup import metrics
from celery_catchup.config.settings import Settings
from celery_catchup.events import EntryFailed, Ticked, TickFailed, notify_subscribers
from celery_catchup.metrics import catalogue, samples, store_collector
from celery_catchup.metrics.beat_metrics import BeatMetrics
from celery_catchup.metrics.store_collector import StoreCollector
from celery_catchup.model import RunState, SkipReason
from celery_catchup.testing import FakeClock
from tests.integration.flowers import flower
from tests.integration.operating import Project


class Scrape:
    """One answer to Prometheus, read as Prometheus reads it."""

    def __init__(self, text: str) -> None:
        self.text = text
        # A time of creation is what the client library adds to each counter of its own.
        families = text_string_to_metric_families(text)
        self.families = [family for family in families if not family.name.endswith("_created")]

    def __getitem__(self, name: str) -> Any:
        """The number of a metric without labels of its own, else the numbers by label."""
        found = {
            next((value for label, value in sample.labels.items() if label != "namespace"), ""): sample.value
            for family in self.families
            for sample in family.samples
            if sample.name == f"celery_catchup_{name}"
        }
        return found[""] if set(found) == {""} else found

    @property
    def labels(self) -> set[str]:
        return {name for family in self.families for sample in family.samples for name in sample.labels}


def scrape(registry: CollectorRegistry) -> Scrape:
    return Scrape(generate_latest(registry).decode())


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    """Beat was down from 09:05 to 12:02; of three missed slots one is executed."""
    project = Project(redis_url, desk_clock)
    project.tick()
    desk_clock.set("2026-02-07T12:02:00Z")
    project.tick()
    project.execute("hourly-etl")
    return project


@pytest.fixture
def registry(project: Project, desk_clock: FakeClock) -> Iterator[CollectorRegistry]:
    registry = CollectorRegistry()
    collector = StoreCollector(project.app, clock=desk_clock)
    registry.register(collector)
    yield registry
    collector.close()


def test_metrics_of_the_store_count_an_outage(
    project: Project, registry: CollectorRegistry, desk_clock: FakeClock
) -> None:
    desk_clock.advance(seconds=5)

    found = scrape(registry)

    assert found["store_up"] == 1
    assert found["slots_dispatched_total"] == {"scheduler": 0, "catchup": 3, "backfill": 0, "manual": 0}
    assert found["slots_missed_total"] == 3
    assert found["runs_ended_total"] == {"succeeded": 1, "revoked": 0, "dead": 0, "unreported": 0}
    assert found["slots_skipped_total"] == dict.fromkeys(map(str, SkipReason), 0)
    assert found["chain_length"] == {"hourly-etl": 1}
    assert found["leases"] == 1
    assert found["dead_letters"] == found["retries_waiting"] == found["outbox_length"] == 0
    assert found["leader_terms_total"] == 2  # one before the outage, one after
    assert found["last_tick_age_seconds"] == 5
    assert found["watermark_age_seconds"] == 5


def test_lag_is_a_histogram_from_slot_to_first_start(project: Project, registry: CollectorRegistry) -> None:
    found = scrape(registry)

    (family,) = [one for one in found.families if one.name == "celery_catchup_start_lag_seconds"]
    counted = {(s.name.rpartition("_")[2], s.labels.get("le")): s.value for s in family.samples}
    late = 2 * 3600 + 2 * 60  # the slot of 10:00 at 12:02
    below = [bound for bound in catalogue.LAG_BOUNDS if bound < late]
    assert all(counted["bucket", str(float(bound))] == 0 for bound in below)
    assert counted["bucket", "14400.0"] == counted["bucket", "+Inf"] == counted["count", None] == 1
    assert counted["sum", None] == late


def test_the_scripts_know_the_same_buckets() -> None:
    library = (files("celery_catchup.store") / "lua" / "library.lua").read_text()

    (bounds,) = re.findall(r"ipairs\(\{ ([\d, ]+) \}\)", library)
    assert tuple(map(int, bounds.split(", "))) == catalogue.LAG_BOUNDS


def test_failures_dead_letters_and_skips_are_counted_by_kind(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, policies={"hourly-etl": {"window": "90m"}})
    project.tick()
    desk_clock.set("2026-02-07T13:02:00Z")
    project.tick()
    project.execute("hourly-etl", state=RunState.FAILED)
    registry = CollectorRegistry()
    with closing(StoreCollector(project.app, clock=desk_clock)) as collector:
        registry.register(collector)
        found = scrape(registry)

    assert found["attempts_failed_total"] == found["dead_letters"] == 1
    assert found["runs_ended_total"]["dead"] == 1
    assert found["slots_skipped_total"]["expired"] >= 1


def test_a_paused_entry_and_a_missing_leader_are_exported(
    project: Project, registry: CollectorRegistry, desk_clock: FakeClock
) -> None:
    project.json("pause", "hourly-etl")
    project.tick()
    led = scrape(registry)["leader"]

    desk_clock.advance(minutes=5)

    assert (led, scrape(registry)["leader"]) == (0, 0)  # each tick of the project resigns
    assert scrape(registry)["entries_paused"] == 1


def test_every_metric_of_the_catalogue_is_served_and_no_other(
    project: Project, registry: CollectorRegistry
) -> None:
    served = {family.name for family in scrape(registry).families}

    assert served == {one.family for one in catalogue.METRICS.values() if not one.in_beat}


def test_labels_are_few_and_never_a_run_or_a_time(project: Project, registry: CollectorRegistry) -> None:
    found = scrape(registry)

    assert found.labels == {"namespace", "trigger", "reason", "state", "entry", "le"}
    assert "2026-" not in found.text
    with project.operator() as operator:
        assert not any(run in found.text for run in operator.ledger.active("hourly-etl"))


def test_the_number_of_entries_with_a_series_is_limited(
    project: Project, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "MOST_ENTRIES", 1)

    assert scrape(registry)["chain_length"] == {"hourly-etl": 1}


def test_the_number_of_commands_does_not_grow_with_the_ledger(
    project: Project, registry: CollectorRegistry
) -> None:
    scrape(registry)
    with project.operator() as operator:

        def commands() -> dict[str, int]:
            stats: Any = operator.store.client.info("commandstats")
            return {name: stat["calls"] for name, stat in stats.items()}

        before = commands()
        scrape(registry)
        used = {name: calls - before.get(name, 0) for name, calls in commands().items()}

    assert used["cmdstat_hgetall"] == 6  # leader, scheduler, hours, first_seen, deadlines, left_off
    assert not {"cmdstat_scan", "cmdstat_hscan", "cmdstat_keys", "cmdstat_zrange"} & {
        name for name, calls in used.items() if calls
    }


def test_a_scrape_needs_no_rights_beyond_an_operators(project: Project, registry: CollectorRegistry) -> None:
    text = (Path(__file__).parents[3] / "SECURITY.md").read_text()
    (rights,) = re.findall(r"^ACL SETUSER operator .*$", text, re.MULTILINE)
    allowed = {right.partition("|")[0] for right in re.findall(r" \+([a-z|]+)", rights)}
    with project.operator() as operator:
        operator.store.client.config_resetstat()
        scrape(registry)
        stats: Any = operator.store.client.info("commandstats")

    used = {name.removeprefix("cmdstat_").partition("|")[0] for name in stats}
    assert {"hgetall", "zcard"} <= used
    assert used - {"config"} <= allowed


def test_a_store_that_does_not_answer_is_a_number_and_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Celery("nobody", broker="redis://:s3cret@127.0.0.1:1/0", set_as_current=False)
    registry = CollectorRegistry()
    with closing(StoreCollector(app)) as collector, caplog.at_level(logging.INFO):
        registry.register(collector)
        texts = [scrape(registry) for _ in range(2)]

    assert [text["store_up"] for text in texts] == [0, 0]
    assert len([message for message in caplog.messages if "Metrics cannot be read" in message]) == 1
    assert "s3cret" not in caplog.text + texts[0].text


def test_a_store_that_hangs_does_not_hold_up_a_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_collector, "PATIENCE", 0.1)
    registry = CollectorRegistry()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        app = Celery("hangs", broker=f"redis://127.0.0.1:{silent.getsockname()[1]}/0", set_as_current=False)
        with closing(StoreCollector(app)) as collector:
            registry.register(collector)
            found = [scrape(registry)["store_up"] for _ in range(3)]
            threads = len(collector._threads._threads)

    assert found == [0, 0, 0]
    assert threads == 1


# -- a beat of itself ------------------------------------------------------------------------


def test_a_beat_counts_its_ticks_and_what_went_wrong(redis_url: str, project: Project) -> None:
    beat = BeatMetrics(project.app, clock=project.clock)
    beat.listen()
    for event in (
        Ticked(0.02, leading=True),
        TickFailed("redis", "away", 1.0),
        TickFailed("redis", "away", 2.0),
        EntryFailed("hourly-etl", "no queue", 1.0),
    ):
        notify_subscribers(event)
    found = scrape(beat.registry)
    beat.close()
    notify_subscribers(Ticked(0.02, leading=False))

    assert found["beat_leading"] == 1
    assert found["tick_duration_seconds_count"] == 1
    assert found["tick_errors_total"] == {"redis": 2, "broker": 0, "source": 0, "inner": 0}
    assert found["dispatch_errors_total"] == {"hourly-etl": 1}
    assert {family.name for family in found.families} == {one.family for one in catalogue.METRICS.values()}


def test_a_port_in_use_is_a_warning(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, caplog.at_level(logging.INFO):
        port = taken.getsockname()[1]
        served = metrics.serve_metrics(
            project.app, Settings.read({"catchup_metrics_port": port}), clock=project.clock
        )

    assert served is None
    (line,) = [message for message in caplog.messages if "Metrics" in message]
    assert line.startswith(f'msg="Metrics are not served" address=127.0.0.1 port={port} error=')


def test_without_the_extra_beat_goes_on_and_says_what_to_install(
    project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "celery_catchup.metrics.beat_metrics", None)

    with caplog.at_level(logging.INFO):
        assert (
            metrics.serve_metrics(
                project.app, Settings.read({"catchup_metrics_port": 1}), clock=project.clock
            )
            is None
        )

    assert "pip install prometheus_client" in caplog.text


def test_the_package_imports_prometheus_only_when_it_is_asked_for_metrics() -> None:
    code = "import sys, celery_catchup.beat, celery_catchup.worker; print('prometheus_client' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


def test_a_beat_serves_its_metrics_over_http(project: Project) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    served = metrics.serve_metrics(
        project.app, Settings.read({"catchup_metrics_port": port}), clock=project.clock
    )
    assert served is not None
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            found = Scrape(answer.read().decode())
    finally:
        served.close()

    assert found["store_up"] == 1
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)


# -- in Flower -------------------------------------------------------------------------------


def test_flower_exports_them_with_its_own(project: Project) -> None:
    with flower(project.app) as site:
        found = Scrape(site.ask("/metrics").text)

    assert found["store_up"] == 1
    assert found["slots_dispatched_total"] == {"scheduler": 0, "catchup": 3, "backfill": 0, "manual": 0}
    assert any(family.name.startswith("flower_") for family in found.families)


@pytest.mark.parametrize(
    ("options", "settings", "shown"),
    [
        ({}, {}, False),
        ({}, {"catchup_metrics_public": True}, True),
        ({"basic_auth": []}, {}, True),
        (
            {
                "basic_auth": [],
                "auth": "ada@example.com",
                "auth_provider": "flower.views.auth.GoogleAuth2LoginHandler",
            },
            {},
            False,
        ),
    ],
    ids=["a login is needed", "the setting opens them", "no authentication", "OAuth"],
)
def test_without_a_login_flower_shows_them_only_where_it_has_none(
    project: Project, options: dict[str, Any], settings: dict[str, Any], shown: bool
) -> None:
    project.app.conf.update(settings)
    with flower(project.app, **options) as site:
        answer = site.ask("/metrics", headers={})

    assert answer.status == 200
    assert "flower_" in answer.text
    assert ("celery_catchup_" in answer.text) is shown
