"""Runs in a state that very many are in: no page reads them all, and none is lost between pages."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from celery_catchup.model import RunState
from celery_catchup.store import listing
from celery_catchup.testing import FakeClock
from tests.integration.operating import Project


def unfinished(project: Project) -> list[str]:
    """The ids of all runs that wait or are queued, two on a page."""
    wanted = listing.RunFilter(states=frozenset({RunState.WAITING, RunState.QUEUED}), limit=2)
    found: list[str] = []
    with project.operator() as operator:
        while (page := operator.listing.runs(wanted, lanes=["hourly-etl"])).following:
            found += [one["id"] for one in page.records]
            wanted = replace(wanted, after=page.following)
    return found + [one["id"] for one in page.records]


def test_more_runs_than_are_sorted_at_once_are_told_in_the_same_order(
    redis_url: str, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(redis_url, desk_clock)
    project.tick()
    desk_clock.set("2026-02-07T13:02:00Z")
    project.tick()
    sorted_at_once = unfinished(project)

    monkeypatch.setattr(listing, "FEW", 1)

    assert len(sorted_at_once) > 2
    assert unfinished(project) == sorted_at_once


@pytest.mark.parametrize("field", ["state", "trigger"])
def test_a_record_with_a_list_for_a_word_is_one_row_that_says_so(
    redis_url: str, desk_clock: FakeClock, field: str
) -> None:
    project = Project(redis_url, desk_clock)
    project.tick()
    desk_clock.set("2026-02-07T13:02:00Z")
    project.tick()
    with project.operator() as operator:
        client, ledger = operator.store.client, operator.store.keys.ledger
        run_id, text = next(iter(client.hgetall(ledger).items()))
        client.hset(ledger, run_id, json.dumps({**json.loads(text), field: []}))
        found = operator.listing.runs(listing.RunFilter())

        unreadable = [record["id"] for record in found.records if record.get("unreadable")]
        assert unreadable == [run_id.decode()]
        assert len(found.records) == client.hlen(ledger)
