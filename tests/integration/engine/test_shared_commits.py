"""Entries with one plan share parts of a commit, and each keeps its own records."""

from __future__ import annotations

import pytest

from celery_catchup.store import states
from celery_catchup.testing import FakeClock
from tests.integration.operating import HOURLY, Project

NAMES = ("first", "second")


def test_a_span_of_skips_is_extended_for_each_entry_by_its_own_slots(
    redis_url: str, desk_clock: FakeClock
) -> None:
    desk_clock.set("2026-02-07T03:30:00Z")
    policy = {"window": "1d", "exclude": "* * * * *"}  # its plan is shared, and every slot is skipped
    project = Project(redis_url, desk_clock, dict.fromkeys(NAMES, HOURLY), {"*": policy})

    with project.beat() as beat:
        beat.tick()
        for hour in ("06", "09"):  # it stood still meanwhile
            desk_clock.set(f"2026-02-07T{hour}:30:00Z")
            beat.tick()

    with project.operator() as operator:
        spans = {name: [span["count"] for span in operator.ledger.skips_of(name)] for name in NAMES}
    assert spans == {"first": [6], "second": [6]}


def test_the_leader_reads_the_same_state_by_script(
    redis_url: str, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "AT_ONCE", 7)
    # More fields than the server keeps in one piece, which it always returns whole.
    names = [f'entrée {number} / "quoted"' for number in range(600)]
    project = Project(redis_url, desk_clock, dict.fromkeys(names, HOURLY), {"*": {"window": "1d"}})
    project.tick()

    with project.operator() as operator:
        assert operator.states.load(by_script=True) == operator.states.load()
        assert operator.states.accepted(by_script=True) == operator.states.accepted()
        assert len(operator.states.accepted()) >= len(names)
