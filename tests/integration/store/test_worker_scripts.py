"""The verbs of the workers on a real server: giving a run back, and the roll."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery.exceptions import SoftTimeLimitExceeded
from redis.connection import Connection
from redis.exceptions import ConnectionError

from celery_catchup.model import RunState
from celery_catchup.store import Leases, Ledger, OutboxRun, Store, connect
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


def test_a_connection_that_was_closed_between_two_claims_is_replaced(site: Site, leases: Leases) -> None:
    first, second = site.record(), site.record()
    claim(leases, first, "first")

    site.store.client_kill_filter(_type="normal", skipme=True)

    assert claim(leases, second, "second") is ClaimOutcome.GRANTED
    assert claim(leases, second, "third") is ClaimOutcome.HELD


def test_an_answer_that_was_not_read_to_its_end_answers_no_other_call(
    site: Site, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = site.record(), site.record()
    claim(leases, first, "first")
    answer = leases.send_finish(first, entry="hourly-etl", owner="first", state=RunState.SUCCEEDED)

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "read_response", _interrupted)
        with pytest.raises(SoftTimeLimitExceeded):
            answer()

    assert claim(leases, second, "second") is ClaimOutcome.GRANTED
    assert claim(leases, first, "second") is ClaimOutcome.ENDED


def _interrupted(*_: object, **__: object) -> None:
    raise SoftTimeLimitExceeded


@pytest.fixture
def lost_answer(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The next answer is lost after the server has executed the command, when `True` is in this list."""
    read, losses = Connection.read_response, list[object]()

    def read_response(connection: Connection, *args: Any, **options: Any) -> Any:
        answer = read(connection, *args, **options)
        if losses:
            losses.clear()
            raise ConnectionError("the answer is lost")
        return answer

    monkeypatch.setattr(Connection, "read_response", read_response)
    return losses


@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.FAILED])
def test_a_report_whose_answer_is_lost_counts_once(
    site: Site, leases: Leases, lost_answer: list[object], state: RunState
) -> None:
    first, second = site.record(), site.record()
    for run_id in (first, second):
        claim(leases, run_id, "w")
    leases.finish(first, entry="hourly-etl", owner="w", state=state)

    lost_answer.append(True)
    outcome = leases.finish(second, entry="hourly-etl", owner="w", state=state).outcome

    assert lost_answer == []
    assert outcome is ReportOutcome.ENDED
    assert site.run(second)["state"] == site.run(first)["state"]
    assert site.run(second).get("failures") == site.run(first).get("failures")


def test_a_confirmation_whose_answer_is_lost_is_recorded_once(site: Site, lost_answer: list[object]) -> None:
    ledger = Ledger(Store(connect(site.url), NAMESPACE))
    first, second, third = site.record(), site.record(), site.record(sends=2)
    site.store.zadd(site.keys.outbox, {first: 1, second: 2, third: 3})
    for _ in range(2):  # the server knows the script, and the connection is open
        ledger.published([OutboxRun(first, {"sends": 1}, {})])

    lost_answer.append(True)
    ledger.published([OutboxRun(run_id, {"sends": 1}, {}) for run_id in (second, third)])

    assert lost_answer == []
    assert site.store.zrange(site.keys.outbox, 0, -1) == [third.encode()]  # it is to be sent again
    assert site.run(second).keys() == site.run(first).keys()
    assert "sent" not in site.run(third)


def test_calls_that_overlap_get_their_own_answers(site: Site, leases: Leases) -> None:
    runs = [site.record() for _ in range(4)]
    for run_id in runs[:2]:
        claim(leases, run_id, "first")

    reports = [
        leases.send_finish(run_id, entry="hourly-etl", owner="first", state=RunState.SUCCEEDED)
        for run_id in runs[:2]
    ]
    claims = [claim(leases, run_id, "second") for run_id in runs]

    assert claims == [ClaimOutcome.ENDED] * 2 + [ClaimOutcome.GRANTED] * 2
    assert [report().outcome for report in reversed(reports)] == [ReportOutcome.RECORDED] * 2


def test_a_forked_child_uses_no_connection_of_its_parent(
    site: Site, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = site.record(), site.record(), site.record()
    claim(leases, first, "parent")
    claim(leases, second, "parent")
    connections = connected(site)

    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        assert claim(leases, third, "child") is ClaimOutcome.GRANTED

    assert len(connected(site) - connections) == 1


def connected(site: Site) -> set[str]:
    return {client["id"] for client in site.store.client_list() if client["name"] == "celery-catchup"}


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
