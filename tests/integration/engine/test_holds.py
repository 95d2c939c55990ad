"""Held catch-ups: more runs than ``hold_above`` wait for a person, and nothing is lost meanwhile."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from celery_catchup.events import EntryHeld
from celery_catchup.model import to_instant, to_rfc3339
from celery_catchup.testing import FakeClock
from celery_catchup.timetables.cron_dialects import parse_cron
from tests.integration.beats import Beat
from tests.integration.operating import HOURLY, Project

BEGIN = to_instant(datetime(2026, 2, 7, 8, 30, tzinfo=UTC))
POLICY = {"window": "6h", "overlap_policy": "allow", "hold_above": 3}


def hours(*wanted: int) -> list[str]:
    return [f"2026-02-07T{hour:02}:00:00Z" for hour in wanted]


def outage(url: str, clock: FakeClock, until: str, **policy: Any) -> Beat:
    """A beat that returns at ``until``, after it was down since 08:30."""
    entries = {"etl": ("0 * * * *", POLICY | policy), "other": ("0 * * * *", {"window": "6h"})}
    before = Beat(url, clock, entries)
    before.tick()
    before.engine.resign()
    clock.set(until)
    beat = Beat(url, clock, entries)
    beat.tick()
    beat.tick()
    return beat


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock("2026-02-07T08:30:00Z")


def test_a_catch_up_above_the_limit_waits_and_live_slots_wait_with_it(
    redis_url: str, clock: FakeClock
) -> None:
    beat = outage(redis_url, clock, "2026-02-07T12:30:00Z")

    beat.run_for(seconds=3600, step=60)

    assert beat.sent("etl") == []
    assert beat.skipped("etl") == []
    assert beat.told(EntryHeld) == [EntryHeld("etl", 4)]
    assert beat.sent("other") == hours(9), "another entry goes on"


def test_a_catch_up_within_the_limit_is_not_held(redis_url: str, clock: FakeClock) -> None:
    beat = outage(redis_url, clock, "2026-02-07T11:30:00Z")

    assert beat.sent("etl") == hours(9, 10, 11)
    assert beat.told(EntryHeld) == []


@pytest.mark.parametrize("wait", [20, 60 * 10], ids=["soon", "after the window"])
def test_an_approval_runs_everything_that_was_held_however_late_it_comes(
    redis_url: str, clock: FakeClock, wait: int
) -> None:
    beat = outage(redis_url, clock, "2026-02-07T12:30:00Z")
    beat.run_for(seconds=60 * wait, step=600)

    beat.controls.resume("etl", now=beat.engine.now())
    beat.run_for(seconds=60)

    first = beat.sent("etl")
    assert first[:4] == hours(9, 10, 11, 12)
    assert len(first) == 4 + wait // 60
    assert beat.skipped("etl") == []


def test_a_hold_survives_leaders_and_an_approval_survives_a_crash_in_its_middle(
    redis_url: str, clock: FakeClock
) -> None:
    beat = outage(redis_url, clock, "2026-02-07T13:30:00Z", hold_above=2)
    beat.engine.resign()
    entries: dict[str, Any] = {"etl": ("0 * * * *", POLICY | {"hold_above": 2})}
    second = Beat(redis_url, clock, entries, batch_size=1)
    second.tick()
    assert second.sent("etl") == []

    second.controls.resume("etl", now=second.engine.now())
    second.tick()
    assert second.sent("etl") == hours(9)
    second.engine.resign()
    third = Beat(redis_url, clock, entries)
    third.tick()

    assert third.sent("etl") == hours(9, 10, 11, 12, 13)
    assert third.told(EntryHeld) == []


def test_a_hold_whose_answer_was_lost_is_reported_by_the_next_tick_and_by_the_next_leader(
    redis_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries: dict[str, Any] = {"etl": ("0 * * * *", POLICY)}
    before = Beat(redis_url, clock, entries)
    before.tick()
    clock.set("2026-02-07T12:30:00Z")
    states = before.engine.services.states

    def hold(*args: Any, **options: Any) -> bool:
        type(states).hold(states, *args, **options)
        raise ConnectionError("no answer")

    with monkeypatch.context() as broken:
        broken.setattr(states, "hold", hold)
        with pytest.raises(ConnectionError):
            before.tick()
    assert before.told(EntryHeld) == []
    before.tick()
    before.tick()
    before.engine.resign()
    after = Beat(redis_url, clock, entries)
    after.tick()

    assert before.told(EntryHeld) == after.told(EntryHeld) == [EntryHeld("etl", 4)]


def test_a_discarded_catch_up_is_on_record_and_new_slots_run(redis_url: str, clock: FakeClock) -> None:
    beat = outage(redis_url, clock, "2026-02-07T12:30:00Z")

    beat.controls.resume("etl", discard=True, now=beat.engine.now())
    beat.run_for(seconds=3600, step=60)

    assert beat.skipped("etl") == [(*hours(9, 12), 4, "discarded")]
    assert beat.sent("etl") == hours(13)


@pytest.mark.parametrize("seed", range(8))
def test_a_held_entry_loses_nothing_through_leaders_and_new_schedules(
    redis_url: str, clock: FakeClock, seed: int
) -> None:
    chance = random.Random(seed)
    cron, select = "0 * * * *", chance.choice(["all", "span"])
    policy = POLICY | {"window": "2d", "select": select}
    beat = outage(redis_url, clock, "2026-02-07T12:30:00Z", **policy | {"hold_above": 1, "select": "all"})
    assert beat.told(EntryHeld)

    for _ in range(6):
        match chance.choice(["leader", "schedule", "policy", "time"]):
            case "schedule":
                cron = chance.choice(["0 * * * *", "*/20 * * * *", "45 */2 * * *"])
            case "policy":
                policy = policy | {"hold_above": chance.choice([1, 2, 100])}
            case "time":
                beat.run_for(seconds=chance.choice([60, 5400]), step=60)
                continue
            case _:
                pass
        beat.engine.resign()
        beat = Beat(redis_url, clock, {"etl": (cron, policy)})
        beat.tick()
        assert beat.sent("etl") == []

    beat.controls.resume("etl", now=beat.engine.now())
    beat.run_for(seconds=60, step=10)

    table = parse_cron(cron, zone=UTC)
    missed = [to_rfc3339(at) for at in table.slots(BEGIN, beat.engine.now())]
    ran, covered = beat.sent("etl"), list[str]()
    for first, last, _, reason in beat.skipped("etl"):
        assert reason == "covered"
        covered += [at for at in missed if first <= at <= last]
    assert sorted(ran + covered) == missed
    assert select == "span" or not covered


def test_commands_show_approve_and_discard_what_is_held(redis_url: str, desk_clock: FakeClock) -> None:
    clock = desk_clock
    clock.set("2026-02-07T08:30:00Z")
    policies = {"a": POLICY, "b": POLICY}
    project = Project(redis_url, clock, {"a": HOURLY, "b": HOURLY}, policies)
    with project.beat() as beat:
        beat.tick()
    clock.set("2026-02-07T12:30:00Z")

    assert "wait for an approval" in project.catchup("preview", "a").stderr
    with project.beat() as beat:
        beat.tick()
        beat.tick()
        assert "Scheduler: running (2 entries held: 8 runs)" in project.text("status")
        previewed = project.catchup("preview")
        assert "In all: 8 runs would be dispatched." in previewed.stdout
        assert previewed.stderr.count("wait for an approval") == 2
        assert project.text("entries").count("held (4 runs)") == 2
        findings = {one["check"]: one for one in project.json("doctor", code=1)["findings"]}
        assert findings["held catch-ups"]["detail"].startswith("8 runs wait for an approval")
        assert "catchup approve --all" in findings["held catch-ups"]["fix"]
        project.catchup("approve", code=2)
        assert "4 runs would be dispatched" in project.text("approve", "--all", "-n")
        assert "Approved a" in project.text("approve", "a")
        assert "refusing to skip 4 slots" in project.catchup("discard", "b", code=1).stderr
        assert "Discarded b" in project.text("discard", "b", "-f")
        beat.tick()
        assert "is not held" in project.catchup("approve", "a", code=1).stderr
    assert project.text("runs", "a", "--state", "queued").count("Catch-up") == 4
    assert "discarded" in project.text("runs", "b", "--state", "skipped")
