"""Entries share a plan exactly when everything is equal that a plan depends on."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from celery_catchup.config.policy import Policy
from celery_catchup.engine import catchup
from celery_catchup.engine.catchup import SharedPlans
from celery_catchup.engine.tracked_entries import Declared, TrackedEntry
from celery_catchup.model import RunState, Slot
from celery_catchup.planning.entry import Entry, EntryState, Schedule
from celery_catchup.planning.planner import plan
from celery_catchup.timetables.timetable import IntervalTable

HOUR = 3_600_000
NOW = 500_000 * HOUR
POLICY = Policy(window=timedelta(hours=6))


def tracked(name: str, *, policy: Policy = POLICY, hours: int = 1, **state: Any) -> TrackedEntry:
    entry = Entry(name, (Schedule(IntervalTable(timedelta(hours=hours), anchor=0)),), policy)
    known = EntryState(first_seen_at=NOW - 20 * HOUR, decided=NOW - 3 * HOUR - 1, used=0)
    return TrackedEntry(
        Declared(name, "proj.etl", "", lambda _: entry), entry, replace(known, **state), catchup_until=NOW
    )


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of entries whose plans were computed."""
    names: list[str] = []

    def counted(entry: Entry, *args: Any, **options: Any) -> Any:
        names.append(entry.name)
        return plan(entry, *args, **options)

    monkeypatch.setattr(catchup, "plan", counted)
    return names


def test_equal_entries_share_a_plan(computed: list[str]) -> None:
    shared = SharedPlans(NOW - 3 * HOUR, NOW)

    plans = [shared.plan(tracked(name), limit=100) for name in ("a", "b", "c")]

    assert plans[0] is plans[1] is plans[2]
    assert computed == ["a"]


@pytest.mark.parametrize(
    "different",
    [
        {"policy": Policy(window=timedelta(hours=6), jitter=timedelta(minutes=5))},
        {"policy": Policy(window=timedelta(hours=2))},
        {"hours": 2},
        {"decided": NOW - 2 * HOUR},
        {"manual_start": NOW - HOUR},
        {"active": 1},
        {"room": 0},
        {"allowance": 1},
        {"existing": {Slot(NOW - HOUR): RunState.SUCCEEDED}},
    ],
)
def test_an_entry_that_differs_has_a_plan_of_its_own(computed: list[str], different: dict[str, Any]) -> None:
    shared = SharedPlans(NOW - 3 * HOUR, NOW)
    shared.plan(tracked("a"))

    other = tracked("b", **different)

    assert shared.plan(other) == plan(other.entry, other.state, other.scope(NOW - 3 * HOUR, NOW))
    assert computed == ["a", "b"]


def test_a_plan_that_is_longer_than_the_limit_is_not_shared(computed: list[str]) -> None:
    shared = SharedPlans(NOW - 3 * HOUR, NOW)
    every = Policy.from_raw({"window": "6h", "overlap_policy": "allow"}, where="")

    whole = shared.plan(tracked("a", policy=every))
    cut = shared.plan(tracked("b", policy=every), limit=1)

    assert (len(whole.runs), len(cut.runs)) == (3, 1)
    assert computed == ["a", "b"]
