"""The verbs of the workers on a real server: giving a run back, and the roll."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from celery_catchup.model import RunState
from celery_catchup.store import Leases, Store, connect
from celery_catchup.store.leases import ClaimOutcome, ReportOutcome
from celery_catchup.store.workers import FORGET_MS, Workers
from tests.integration.workers import NAMESPACE, PROJECT, Site

NOW = 1_770_465_720_000


@pytest.fixture
def site(redis_url: str, tmp_path: Path) -> Iterator[Site]:
    site = Site(redis_url, tmp_path)
    yield site
    site.close()


@pytest.fixture
def leases(site: Site) -> Leases:
    return Leases(Store(connect(site.url), NAMESPACE), ttl_ms=60_000, now_ms=NOW)


@pytest.fixture
def workers(site: Site) -> Workers:
    return Workers(Store(connect(site.url), NAMESPACE), now_ms=NOW)


def claim(leases: Leases, run_id: str, owner: str) -> ClaimOutcome:
    return leases.claim(run_id, owner=owner, task=f"{PROJECT}.work", worker="w").answer


@pytest.mark.parametrize("trouble", ["none", "connection lost", "script forgotten"])
def test_a_success_that_is_sent_ahead_is_recorded_once(site: Site, leases: Leases, trouble: str) -> None:
    run_id = site.record()
    claim(leases, run_id, "first")
    if trouble == "script forgotten":
        site.store.script_flush()

    answer = leases.send_finish(run_id, entry="hourly-etl", owner="first", state=RunState.SUCCEEDED)
    if trouble == "connection lost":
        site.store.client_kill_filter(_type="normal", skipme=True)
    outcome = answer().outcome

    # Without its answer the report is repeated, and the store has it already.
    assert outcome in (ReportOutcome.RECORDED, ReportOutcome.ENDED)
    assert site.run(run_id)["state"] == "succeeded"
    assert claim(leases, run_id, "second") is ClaimOutcome.ENDED


def test_a_run_that_is_given_back_can_be_claimed_at_once(
    site: Site, leases: Leases, workers: Workers
) -> None:
    run_id = site.record()
    assert claim(leases, run_id, "first") is ClaimOutcome.GRANTED
    assert claim(leases, run_id, "second") is ClaimOutcome.HELD

    assert workers.retry(run_id, owner="first", delay_ms=5_000, error="again") is ReportOutcome.RECORDED

    run = site.run(run_id)
    assert (run["state"], run["attempt"], run["error"], run.get("owner")) == ("queued", 2, "again", None)
    assert site.lease(run_id) == NOW + 5_000 + 300_000  # five minutes, as for any message
    assert site.store.zscore(site.keys.active("hourly-etl"), run_id) is not None
    assert claim(leases, run_id, "second") is ClaimOutcome.GRANTED
    assert site.run(run_id)["attempt"] == 2


def test_only_the_owner_can_give_a_run_back(site: Site, leases: Leases, workers: Workers) -> None:
    run_id = site.record()
    claim(leases, run_id, "first")
    before = site.run(run_id)

    assert workers.retry(run_id, owner="second", delay_ms=0) is ReportOutcome.SUPERSEDED
    assert workers.retry("no such run", owner="first", delay_ms=0) is ReportOutcome.UNKNOWN
    assert workers.retry(site.record(state="succeeded"), owner="first", delay_ms=0) is ReportOutcome.ENDED
    assert site.run(run_id) == before


def test_giving_back_twice_counts_once(site: Site, leases: Leases, workers: Workers) -> None:
    run_id = site.record()
    claim(leases, run_id, "first")

    assert workers.retry(run_id, owner="first", delay_ms=0) is ReportOutcome.RECORDED
    assert workers.retry(run_id, owner="first", delay_ms=0) is ReportOutcome.SUPERSEDED

    assert site.run(run_id)["attempt"] == 2


def test_silent_workers_are_forgotten_after_a_day(workers: Workers) -> None:
    workers.record_alive("old@host")
    workers.now_ms += 1000
    workers.record_alive("new@host")
    assert workers.seen_since(NOW) == ["old@host", "new@host"]
    assert workers.seen_since(NOW + 1) == ["new@host"]

    workers.now_ms = NOW + FORGET_MS + 500
    workers.record_alive("third@host")

    assert workers.seen_since(0) == ["new@host", "third@host"]
    workers.leave("new@host")
    assert workers.seen_since(0) == ["third@host"]
