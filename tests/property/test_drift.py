"""``catchup_on_drift``: a set is refused exactly when it differs from the one last accepted."""

from __future__ import annotations

from datetime import UTC
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from celery_catchup.config.configuration import UNSET, Declaration, load
from celery_catchup.config.drift import DriftKind, differences, record_of
from celery_catchup.errors import DriftError
from celery_catchup.events import EntryDrifted
from celery_catchup.testing import FakeClock
from tests.integration.beats import Beat

NAMES = st.sampled_from(["a", "b", "c"])
CRONS = st.sampled_from(["0 * * * *", "30 * * * *", ["0 * * * *", "30 * * * *"]])
POLICIES = st.sampled_from([UNSET, False, "1h", {"window": "1h", "overlap_policy": "all"}])
MODES = st.sampled_from(["adopt", "warn", "refuse", "refuse"])

described = st.fixed_dictionaries(
    {
        "schedule": CRONS,
        "policy": POLICIES,
        "task": st.sampled_from(["t", "u"]),
        "args": st.sampled_from([(), (1,), ("1",)]),
        "kwargs": st.sampled_from([{}, {"x": 1}, {"x": {"y": [1]}}]),
        "options": st.sampled_from([{}, {"queue": "q"}]),
    }
)


def records(entries: dict[str, dict[str, Any]]) -> dict[str, str]:
    declared = {name: Declaration(one["schedule"], one["policy"]) for name, one in entries.items()}
    configuration = load({}, declared=declared, timezone=UTC)
    return {
        name: record_of(
            SimpleNamespace(**one),
            schedule=repr(one["schedule"]),
            policy=configuration.policies[name],
            form=configuration.forms[name],
        )
        for name, one in entries.items()
    }


def means(one: dict[str, Any]) -> dict[str, Any]:
    """What the description says; a list without a policy is one with catch-up off."""
    managed = isinstance(one["schedule"], list) and one["policy"] is UNSET
    return {**one, "policy": False if managed else one["policy"]}


@given(st.dictionaries(NAMES, described), st.dictionaries(NAMES, described))
def test_the_difference_of_two_sets_is_every_entry_that_is_not_the_same_in_both(
    before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]
) -> None:
    found = differences(records(before), records(after))

    by_change = {change: {one.entry for one in found if one.change is change} for change in DriftKind}
    assert by_change[DriftKind.ADDED] == after.keys() - before.keys()
    assert by_change[DriftKind.REMOVED] == before.keys() - after.keys()
    assert by_change[DriftKind.CHANGED] == {
        name for name in before.keys() & after.keys() if means(before[name]) != means(after[name])
    }


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(MODES, st.dictionaries(NAMES, CRONS, min_size=1)), min_size=2, max_size=6))
def test_a_set_is_refused_exactly_when_it_differs_from_the_accepted_one(
    redis_url: str, steps: list[tuple[str, dict[str, Any]]]
) -> None:
    clock = FakeClock("2026-02-07T09:05:00Z")
    accepted: dict[str, Any] | None = None
    for mode, entries in steps:
        beat = Beat(redis_url, clock, {n: (c, {"window": "1h"}) for n, c in entries.items()}, on_drift=mode)
        if accepted is None:
            beat.client.flushall()
            accepted = entries
        changed = {name for name in accepted.keys() & entries.keys() if accepted[name] != entries[name]}
        if mode == "refuse" and accepted != entries:
            with pytest.raises(DriftError):
                beat.tick()
            assert beat.sent() == []
        else:
            assert beat.tick()
            told = changed | (accepted.keys() ^ entries.keys() if mode == "warn" else set())
            assert {event.entry for event in beat.told(EntryDrifted)} == told
            accepted = entries
        beat.engine.resign()
        beat.client.close()
