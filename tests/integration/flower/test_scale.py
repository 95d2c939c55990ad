"""The cost of pages and API calls does not depend on the size of the ledger."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from celery.schedules import crontab

from celery_catchup.flower import fleet
from celery_catchup.operations.fleet import Fleet
from celery_catchup.store.listing import RunFilter
from celery_catchup.store.states import COLUMNS
from celery_catchup.testing import FakeClock
from tests.integration.flowers import Site, flower
from tests.integration.ledgers import HOUR, fill
from tests.integration.operating import ALL, HOURLY, Project
from tests.results import Recorder

ENTRIES, RUNS_EACH = 2000, 50
MINUTE, MINUTES_OF_A_DAY, MINUTES_OF_A_WEEK = 60_000, 24 * 60, 7 * 24 * 60
MINUTELY = {"task": "proj.etl", "schedule": crontab()}
LIMIT = 0.5  # seconds of server time for any page or call
NOW = datetime(2026, 2, 7, 12, 2, tzinfo=UTC)

LANES = "&".join(f"entry=entry-{number}" for number in range(50))
CALLS = (
    "/status",
    "/overview",
    "/schedules",
    "/schedules?search=entry-1&cursor=5",
    "/schedules/entry-7",
    "/runs",
    "/runs?triggerType=catchup",
    "/runs?state=failed",
    "/runs?state=dead",
    "/runs?state=waiting",
    "/runs?entry=entry-7&state=succeeded",
    "/skipped",
    "/preview?entry=entry-7",
    "/timeline?entry=entry-7&since=168h",
    f"/timeline?{LANES}",
    "/outages",
    "/watermarks?entry=entry-7",
    "/dead-letters",
    "/dead-letters?entry=entry-7",
    "/backfills",
)
PAGES = (
    "/catchup",
    "/catchup/entry?entry=entry-7",
    "/catchup/runs",
    "/catchup/dead",
    "/catchup/backfills",
)

DENSE = ("/catchup", "/catchup/entry?entry=entry-7", f"/api/catchup/v1/timeline?{LANES}")
"""Requests that draw every slot of a day or a week."""


@contextmanager
def filled(
    url: str, clock: FakeClock, *, entries: int, runs_each: int, every: int = HOUR
) -> Iterator[tuple[Project, Site, int]]:
    """A Flower over a ledger of that size."""
    clock.set(NOW.isoformat())
    names = [f"entry-{number}" for number in range(entries)]
    project = Project(url, clock, dict.fromkeys(names, HOURLY if every == HOUR else MINUTELY), {"*": ALL})
    with project.operator() as operator:
        operator.store.client.flushall()
        made = fill(operator, runs_each=runs_each, every=every)
    # Asking the workers goes through the same server, at times of its own.
    with pytest.MonkeyPatch.context() as patch, flower(project.app) as site:
        patch.setattr(fleet, "ask_fleet", lambda operator: Fleet(asked=True))
        yield project, site, made


def received(project: Project, site: Site, path: str) -> int:
    """Return how many bytes the store sends for a request."""
    site.ask(path)
    with project.operator() as operator:
        client = operator.store.client
        before = client.info("stats")["total_net_output_bytes"]
        assert site.ask(path).status == 200
        return int(client.info("stats")["total_net_output_bytes"] - before)


def commands(project: Project, site: Site, path: str) -> int:
    """Return how many commands a request sends to the store: the least of three requests, because Flower
    itself talks to the same server every few seconds."""
    site.ask(path)
    with project.operator() as operator:
        client, counts = operator.store.client, []
        for _ in range(3):
            before = client.info("stats")["total_commands_processed"]
            assert site.ask(path).status == 200
            counts.append(int(client.info("stats")["total_commands_processed"] - before))
    return min(counts)


def test_no_page_and_no_call_asks_the_store_more_often_when_the_ledger_is_larger(
    redis_url: str, desk_clock: FakeClock
) -> None:
    paths = [*PAGES, *(f"/api/catchup/v1{path}" for path in CALLS)]
    with filled(redis_url, desk_clock, entries=60, runs_each=2) as (project, site, _):
        small = {path: commands(project, site, path) for path in paths}
    with filled(redis_url, desk_clock, entries=60, runs_each=20) as (project, site, _):
        large = {path: commands(project, site, path) for path in paths}

    # A question for runs that are rare reads the ledger page by page, up to a bound.
    rare = {path for path in paths if "/runs?" in path or "/dead" in path}
    # A thread that connects just then sends a command or two of its own.
    more = {path: large[path] - small[path] for path in paths if path not in rare}
    assert {path: count for path, count in more.items() if count > 2} == {}
    # Each run of the page, of which there are fifty at most, is looked up among the overdue slots.
    assert {path: large[path] - small[path] for path in rare if large[path] - small[path] >= 60} == {}


def test_nothing_scans_the_keys_of_the_server_nor_the_ledger(redis_url: str, desk_clock: FakeClock) -> None:
    with (
        filled(redis_url, desk_clock, entries=60, runs_each=2) as (project, site, _),
        project.operator() as operator,
    ):
        client, keys = operator.store.client, operator.store.keys
        client.config_resetstat()
        client.config_set("slowlog-log-slower-than", 0)
        client.config_set("slowlog-max-len", 100_000)
        client.slowlog_reset()
        for path in [*PAGES, *(f"/api/catchup/v1{path}" for path in CALLS)]:
            assert site.ask(path).status == 200
        used = set(client.info("commandstats"))
        seen: Any = client.slowlog_get(100_000)

    assert not used & {f"cmdstat_{name}" for name in ("keys", "scan", "zscan", "sscan")}
    # What is known of the entries is read in parts; each of these hashes has one field for an entry.
    scanned = {one["command"].split(b" ")[1].decode() for one in seen if one["command"].startswith(b"HSCAN")}
    assert scanned <= {getattr(keys, column) for column in COLUMNS}


def test_of_dense_entries_the_store_sends_no_records_and_is_not_asked_for_each_run(
    redis_url: str, desk_clock: FakeClock
) -> None:
    with filled(redis_url, desk_clock, entries=50, runs_each=200, every=MINUTE) as (project, site, made):
        lanes = [path for path in DENSE if "entry?" not in path]
        asked = max(commands(project, site, path) for path in lanes)
        sent = max(received(project, site, path) for path in lanes)
        with project.operator() as operator:
            record = operator.listing.runs(RunFilter(limit=1)).records[0]

    assert asked < made / 10
    assert sent < made * len(json.dumps(record)) / 5


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_each_page_and_call_takes_less_than_half_a_second_with_a_hundred_thousand_runs(
    redis_url: str, desk_clock: FakeClock, record_result: Recorder
) -> None:
    took: dict[str, float] = {}
    with filled(redis_url, desk_clock, entries=ENTRIES, runs_each=RUNS_EACH) as (_, site, made):
        site.get("/status")  # the configuration is read once
        for path in [*PAGES, *(f"/api/catchup/v1{path}" for path in CALLS)]:
            took[path] = min(_seconds(site, path) for _ in range(3))

    slowest = max(took, key=lambda path: took[path])
    record_result(
        "slowest page or call", entries=ENTRIES, runs=made, path=slowest[:60], ms=round(took[slowest] * 1000)
    )
    assert {path: seconds for path, seconds in took.items() if seconds >= LIMIT} == {}


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("entries", "runs_each"), [(50, MINUTES_OF_A_DAY), (8, MINUTES_OF_A_WEEK)], ids=["a day", "a week"]
)
def test_each_drawing_takes_less_than_half_a_second_with_tens_of_thousands_of_minutely_runs(
    redis_url: str, desk_clock: FakeClock, record_result: Recorder, entries: int, runs_each: int
) -> None:
    with filled(redis_url, desk_clock, entries=entries, runs_each=runs_each, every=MINUTE) as (_, site, made):
        site.get("/status")
        paths = [path for path in DENSE if entries > 8 or path.startswith("/catchup")]
        took = {path: min(_seconds(site, path) for _ in range(3)) for path in paths}

    slowest = max(took, key=lambda path: took[path])
    name = f"slowest drawing, {entries} minutely entries"
    record_result(name, runs=made, path=slowest[:40], ms=round(took[slowest] * 1000))
    assert {path: seconds for path, seconds in took.items() if seconds >= LIMIT} == {}


def _seconds(site: Site, path: str) -> float:
    begun = time.perf_counter()
    assert site.ask(path).status == 200
    return time.perf_counter() - begun
