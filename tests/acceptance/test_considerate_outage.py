"""An outage of three hours under lanes, spans, holds, exclusions and a limit, with real processes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests import services
from tests.acceptance.nursery import Nursery
from tests.acceptance.sites import Site, at

TEN, ELEVEN, NOON = (at(f"{hour:02}:00:00") for hour in (10, 11, 12))
HOURLY = "0 * * * *"
AT_ONCE = {"window": "6h", "overlap_policy": "allow"}


def outage(site: Site, entries: dict[str, dict[str, object]], **settings: object) -> None:
    """A beat is away from 09:05 to 12:02, and the next one has caught up."""
    site.declare(dict.fromkeys(entries, HOURLY), catchup_entries=entries, **settings)
    site.set_clock("09:04:50")
    before = site.leader()
    site.until_a_tick_later()
    before.stop()
    site.set_clock("12:02:00")
    site.leader()
    site.until_a_tick_later()
    site.until_a_tick_later()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Iterator[Site]:
    entries = {
        "aside": AT_ONCE | {"catch_up": {"queue": "late"}},
        "whole": {"window": "6h", "select": "span"},
        "asked": AT_ONCE | {"hold_above": 2},
        "closed": AT_ONCE | {"exclude": f"{TEN[:10]}T10:30..{TEN[:10]}T11:30"},
    }
    with services.private_server() as server:
        found = Site(tmp_path_factory.mktemp("considerate"), server.url(), nursery)
        try:
            outage(found, entries)
            yield found
        finally:
            found.close()


def test_catch_up_runs_go_to_their_own_queue(site: Site) -> None:
    assert site.slots("aside") == []
    assert [one.slot for one in site.messages("aside", queue="late")] == [TEN, ELEVEN, NOON]


def test_one_run_stands_for_the_gap(site: Site) -> None:
    (message,) = site.messages("whole")

    assert (message.slot, message.headers["catchup_slots"]) == (NOON, 3)
    assert message.headers["data_interval_start"] == at("09:00:00")


def test_an_excluded_slot_does_not_run(site: Site) -> None:
    assert site.slots("closed") == [TEN, NOON]


def test_a_held_catch_up_is_sent_when_a_person_approves_it(site: Site) -> None:
    assert site.slots("asked") == []

    approve = site.start_celery("catchup", "approve", "asked")
    approve.wait()
    site.until_a_tick_later()
    site.until_a_tick_later()

    assert site.slots("asked") == [TEN, ELEVEN, NOON]


@pytest.mark.parametrize("entries", [2, pytest.param(8, marks=pytest.mark.soak)])
def test_workers_never_execute_more_catch_up_runs_at_once_than_allowed(
    tmp_path_factory: pytest.TempPathFactory, nursery: Nursery, entries: int
) -> None:
    policies = {f"e{number}": AT_ONCE for number in range(entries)}
    with services.private_server() as server:
        site = Site(tmp_path_factory.mktemp("limited"), server.url(), nursery)
        try:
            outage(site, policies, catchup_max_active=1, imports=["celery_catchup.worker"])
            queued = len(site.messages())
            site.worker()
            site.until_noted(2 * 3 * entries)
            notes = [json.loads(line) for line in site.diary.read_text().splitlines()]
        finally:
            site.close()

    assert queued == 1
    assert len({task for _, _, task, *_ in notes}) == 3 * entries
    executed = 0
    for what, *_ in sorted(notes, key=lambda note: note[4]):
        executed += 1 if what == "begin" else -1
        assert executed <= 1
