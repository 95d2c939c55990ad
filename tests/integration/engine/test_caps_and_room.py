"""Caps count what is dispatched, room is decided once per catch-up, and preview says the same."""

from __future__ import annotations

from typing import Any

import pytest

from celery_catchup.model import to_rfc3339
from celery_catchup.operations.pauses import pause, resume
from celery_catchup.operations.previews import preview
from celery_catchup.testing import FakeClock
from tests.integration.operating import Project

HOURLY = {"task": "proj.etl", "schedule": "0 * * * *"}
HALF_PAST = {"task": "proj.etl", "schedule": "30 * * * *"}


def times(project: Project, entry: str) -> list[str]:
    return [slot[11:16] for slot, _ in project.slots(entry)]


def skips(project: Project, entry: str) -> list[tuple[str, str, int, str]]:
    with project.operator() as operator:
        spans = operator.ledger.skips_of(entry)
    return [
        (to_rfc3339(one["first"])[11:16], to_rfc3339(one["last"])[11:16], one["count"], one["reason"])
        for one in spans
    ]


def test_a_slot_is_not_lost_to_a_cap_that_is_unused(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, {"e": HOURLY}, {"e": "6h"}, catchup_max_runs=10)
    with project.beat() as beat:
        beat.tick()
        for at in ("10:00", "11:00"):  # the second is skipped, because the first is active
            desk_clock.set(f"2026-02-07T{at}:00Z")
            beat.tick()
        project.execute("e")

        desk_clock.set("2026-02-07T14:05:00Z")  # the host was suspended
        for _ in range(3):
            beat.tick()

    assert times(project, "e") == ["10:00", "12:00"]
    assert skips(project, "e") == [
        ("11:00", "11:00", 1, "guard_blocked"),
        ("13:00", "14:00", 2, "guard_blocked"),
    ]


def test_a_cap_is_never_exceeded_whatever_is_resumed_meanwhile(redis_url: str, desk_clock: FakeClock) -> None:
    desk_clock.set("2026-02-07T00:05:00Z")
    policy = {"window": "24h", "overlap_policy": "allow"}
    capped = {"catchup_max_runs": 10, "catchup_rate_limit": "1s"}
    project = Project(
        redis_url, desk_clock, {"a": HOURLY, "b": HALF_PAST}, {"a": policy, "b": policy}, **capped
    )
    project.tick()
    with project.operator() as operator:
        pause(operator, ["b"])
    desk_clock.set("2026-02-07T12:05:00Z")

    with project.beat() as beat:
        for _ in range(3):
            beat.tick()
            desk_clock.advance(seconds=1)
        assert times(project, "a") == ["01:00", "02:00", "03:00"]
        with project.operator() as operator:
            resume(operator, ["b"])
        for _ in range(30):
            beat.tick()
            desk_clock.advance(seconds=1)

    assert times(project, "a") == ["01:00", "02:00", "03:00", "04:00", "05:00"]
    assert times(project, "b") == ["00:30", "01:30", "02:30", "03:30", "04:30"]
    assert skips(project, "a") == [("06:00", "12:00", 7, "cap_exceeded")]


def test_a_share_that_an_entry_cannot_use_goes_to_the_others(redis_url: str, desk_clock: FakeClock) -> None:
    policy = {"window": "24h", "overlap_policy": "allow"}
    capped = {"catchup_max_runs": 4, "catchup_rate_limit": "1s"}
    project = Project(
        redis_url, desk_clock, {"a": HOURLY, "b": HALF_PAST}, {"a": policy, "b": policy}, **capped
    )
    project.tick()
    desk_clock.set("2026-02-07T15:05:00Z")

    with project.beat() as beat:
        beat.tick()
        with project.operator() as operator:
            pause(operator, ["b"])
        for _ in range(10):
            desk_clock.advance(seconds=1)
            beat.tick()

    assert len(times(project, "a")) + len(times(project, "b")) == 4
    assert len(times(project, "a")) >= 3


@pytest.mark.parametrize("policy", ["cancel_other", "terminate_other"])
def test_a_cap_keeps_the_newest_of_a_replacing_policy(
    redis_url: str, desk_clock: FakeClock, policy: str
) -> None:
    entries = {"e": {"task": "proj.etl", "schedule": "*/10 * * * *"}}
    project = Project(
        redis_url,
        desk_clock,
        entries,
        {"e": {"window": "12h", "overlap_policy": policy}},
        catchup_preset="conservative",
    )
    project.tick()
    desk_clock.set("2026-02-07T15:05:00Z")

    project.tick()

    assert times(project, "e") == ["15:00"]
    assert skips(project, "e") == [("09:10", "14:50", 35, "superseded")]


@pytest.mark.parametrize(
    "policy",
    [
        {"overlap_policy": "skip"},
        {"overlap_policy": "buffer_one"},
        {"overlap_policy": "all", "max_pending": 2},
        {"overlap_policy": "all", "max_pending": 2, "max_runs": 2},
        {"overlap_policy": "all", "max_active_runs": 2, "max_pending": 3, "max_runs": 4, "keep": "newest"},
        {"overlap_policy": "allow", "max_runs": 3, "keep": "newest"},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "settings", [{}, {"catchup_rate_limit": "100ms"}, {"catchup_batch_size": 1}], ids=str
)
def test_preview_and_restart_agree_however_fast_the_workers_are(
    redis_url: str, desk_clock: FakeClock, policy: dict[str, Any], settings: dict[str, Any]
) -> None:
    project = Project(redis_url, desk_clock, {"e": HOURLY}, {"e": {"window": "12h", **policy}}, **settings)
    project.tick()
    desk_clock.set("2026-02-07T19:05:00Z")
    with project.operator() as operator:
        (ahead,) = preview(operator, ["e"])
    promised = [f"{one.scheduled_time:%H:%M}" for one in ahead.slots if one.action == "dispatch"]

    with project.beat() as beat:
        for _ in range(30):
            beat.tick()
            project.execute("e")  # ends before the next tick
            desk_clock.advance(milliseconds=100)

    assert times(project, "e") == promised
    assert sum(count for _, _, count, _ in skips(project, "e")) == ahead.skipped


@pytest.mark.parametrize("cap", [1, 4, 7])
def test_preview_and_restart_agree_on_entries_that_share_a_cap(
    redis_url: str, desk_clock: FakeClock, cap: int
) -> None:
    policies = {
        "a": {"window": "12h", "overlap_policy": "allow"},
        "b": {"window": "12h", "overlap_policy": "buffer_one"},
        "c": {"window": "12h", "select": "latest"},
    }
    entries = {"a": HOURLY, "b": HALF_PAST, "c": HOURLY}
    project = Project(
        redis_url, desk_clock, entries, policies, catchup_max_runs=cap, catchup_rate_limit="100ms"
    )
    project.tick()
    desk_clock.set("2026-02-07T13:05:00Z")
    with project.operator() as operator:
        found = {one.entry: one for one in preview(operator)}
    promised = {
        name: [f"{s.scheduled_time:%H:%M}" for s in one.slots if s.action == "dispatch"]
        for name, one in found.items()
    }

    with project.beat() as beat:
        for _ in range(30):
            beat.tick()
            for name in entries:
                project.execute(name)
            desk_clock.advance(milliseconds=100)

    assert {name: times(project, name) for name in entries} == promised
    assert sum(map(len, promised.values())) == cap
