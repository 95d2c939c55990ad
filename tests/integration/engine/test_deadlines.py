"""Deadlines: a slot that has not succeeded within ``expect_within`` is overdue once, and recovers once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import redis

from celery_catchup.engine import DispatchFailedError
from celery_catchup.engine import deadlines as engine_deadlines
from celery_catchup.events import SlotOverdue, SlotRecovered
from celery_catchup.model import RunState, to_rfc3339
from celery_catchup.testing import FakeClock
from tests.integration.beats import Beat, Broker

POLICY = {"window": "6h", "overlap_policy": "all", "expect_within": "20m"}
NINE, TEN = "2026-02-07T09:00:00Z", "2026-02-07T10:00:00Z"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock("2026-02-07T08:30:00Z")


def started(url: str, clock: FakeClock, entries: Mapping[str, Any] | None = None, **policy: Any) -> Beat:
    beat = Beat(url, clock, entries or {"etl": ("0 * * * *", POLICY | policy)})
    beat.tick()
    return beat


def at(beat: Beat, moment: str) -> None:
    """Let a healthy beat arrive at a time: the tick just before, and two at it."""
    beat.clock.set(moment)
    beat.clock.advance(seconds=-1)
    beat.tick()
    for _ in range(2):
        beat.clock.advance(seconds=1)
        beat.tick()


def end(beat: Beat, state: RunState = RunState.SUCCEEDED, entry: str = "etl") -> None:
    """A worker ends the entry's active run."""
    (run_id,) = beat.ledger.active(entry)
    run = beat.ledger.run(run_id)
    assert run is not None
    beat.leases.claim(run_id, owner="w", task=run["task"], worker="w", entry=entry)
    beat.leases.finish(run_id, entry=entry, owner="w", state=state)


def overdue(*beats: Beat) -> list[tuple[str, str]]:
    """The slots that these beats have reported, each with its state."""
    found = [one for beat in beats for one in beat.told(SlotOverdue)]
    return [(to_rfc3339(one.slot), one.state) for one in found]


def recovered(*beats: Beat) -> list[str]:
    return [to_rfc3339(one.slot) for beat in beats for one in beat.told(SlotRecovered)]


def lose_the_next_answer(beat: Beat, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server judges, and its answer does not arrive; the tick after it gets its answers again."""
    records = beat.engine.services.deadlines
    judge = records.judge

    def lost(*args: Any, **options: Any) -> Any:
        judge(*args, **options)
        monkeypatch.setattr(records, "judge", judge)
        raise redis.ConnectionError("no answer")

    monkeypatch.setattr(records, "judge", lost)
    beat.clock.advance(seconds=5)
    with pytest.raises(redis.ConnectionError):
        beat.tick()


def stored(beat: Beat) -> list[Any]:
    found: Any = beat.client.zrange(beat.keys.overdue, 0, -1)
    return [json.loads(one) for one in found]


def test_a_slot_that_succeeds_in_time_is_not_overdue(redis_url: str, clock: FakeClock) -> None:
    beat = started(redis_url, clock)
    at(beat, NINE)
    end(beat)

    at(beat, "2026-02-07T09:59:00Z")

    assert overdue(beat) == []


def test_a_slot_is_overdue_once_and_recovers_once(redis_url: str, clock: FakeClock) -> None:
    beat = started(redis_url, clock)
    at(beat, NINE)
    at(beat, "2026-02-07T09:19:50Z")
    assert overdue(beat) == []

    at(beat, "2026-02-07T09:20:00Z")
    at(beat, "2026-02-07T09:40:00Z")
    assert overdue(beat) == [(NINE, "queued")]
    assert recovered(beat) == []

    end(beat)
    at(beat, "2026-02-07T09:45:00Z")
    at(beat, "2026-02-07T09:50:00Z")
    assert overdue(beat) == [(NINE, "queued")]
    assert recovered(beat) == [NINE]
    assert stored(beat) == []


def test_the_next_leader_neither_repeats_nor_forgets(redis_url: str, clock: FakeClock) -> None:
    first = started(redis_url, clock)
    at(first, NINE)
    at(first, "2026-02-07T09:30:00Z")
    first.engine.resign()

    second = started(redis_url, clock)
    at(second, "2026-02-07T09:40:00Z")
    assert overdue(first, second) == [(NINE, "queued")]
    end(second)
    at(second, "2026-02-07T09:50:00Z")
    second.engine.resign()
    third = started(redis_url, clock)
    at(third, "2026-02-07T09:55:00Z")

    assert recovered(first, second, third) == [NINE]


def test_a_slot_is_overdue_once_when_the_answer_is_lost(
    redis_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat = started(redis_url, clock)
    at(beat, NINE)
    clock.set("2026-02-07T09:20:00Z")
    lose_the_next_answer(beat, monkeypatch)
    at(beat, "2026-02-07T09:30:00Z")
    assert overdue(beat) == [(NINE, "queued")]

    end(beat)
    at(beat, "2026-02-07T09:40:00Z")

    assert (overdue(beat), recovered(beat)) == ([(NINE, "queued")], [NINE])


def test_a_slot_recovers_once_when_the_answer_is_lost(
    redis_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat = started(redis_url, clock)
    at(beat, NINE)
    at(beat, "2026-02-07T09:30:00Z")
    end(beat)
    lose_the_next_answer(beat, monkeypatch)
    assert stored(beat) == []

    at(beat, "2026-02-07T09:40:00Z")
    at(beat, "2026-02-07T09:50:00Z")

    assert (recovered(beat), beat.engine.deadlines.overdue_entries()) == ([NINE], {})


def test_a_slot_that_succeeds_before_it_could_be_reported_is_reported_by_neither_event(
    redis_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat = started(redis_url, clock)
    at(beat, NINE)
    clock.set("2026-02-07T09:20:00Z")
    lose_the_next_answer(beat, monkeypatch)
    end(beat)

    at(beat, "2026-02-07T09:30:00Z")

    assert (overdue(beat), recovered(beat), stored(beat)) == ([], [], [])


def test_a_clock_that_is_put_back_repeats_no_report(redis_url: str, clock: FakeClock) -> None:
    beat = started(redis_url, clock)
    at(beat, NINE)
    at(beat, "2026-02-07T09:30:00Z")
    at(beat, "2026-02-07T08:50:00Z")
    at(beat, "2026-02-07T09:30:00Z")
    assert overdue(beat) == [(NINE, "queued")]

    at(beat, "2026-02-07T08:50:00Z")
    end(beat)
    at(beat, "2026-02-07T08:51:00Z")
    assert recovered(beat) == [NINE], "an hour that the clock repeats is not waited for"
    at(beat, "2026-02-07T09:50:00Z")

    assert (overdue(beat), recovered(beat)) == ([(NINE, "queued")], [NINE])


def test_a_slot_is_overdue_while_the_broker_is_down(redis_url: str, clock: FakeClock) -> None:
    beat = Beat(redis_url, clock, {"etl": ("0 * * * *", POLICY)}, broker=Broker(atomic=False))
    beat.tick()
    beat.broker.down = True
    clock.set(NINE)
    with pytest.raises(DispatchFailedError):
        beat.tick()

    clock.set("2026-02-07T09:20:01Z")
    with pytest.raises(DispatchFailedError):
        beat.tick()

    assert overdue(beat) == [(NINE, "queued")]


def test_slots_of_an_outage_are_overdue_when_a_leader_is_back(redis_url: str, clock: FakeClock) -> None:
    before = started(redis_url, clock)
    before.engine.resign()
    clock.set("2026-02-07T10:30:00Z")

    beat = started(redis_url, clock)

    assert overdue(beat) == [(NINE, "queued"), (TEN, "waiting")]
    end(beat)
    end(beat)
    at(beat, "2026-02-07T10:40:00Z")
    assert recovered(beat) == [NINE, TEN]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param({"window": "90m"}, [(NINE, "expired"), (TEN, "queued")], id="expired"),
        pytest.param({"max_runs": 1}, [(NINE, "queued"), (TEN, "cap_exceeded")], id="beyond the cap"),
        pytest.param({"overlap_policy": "skip"}, [(NINE, "queued")], id="by its overlap policy"),
        pytest.param({"select": "latest"}, [(TEN, "queued")], id="by its select"),
        pytest.param({"select": "span"}, [(TEN, "queued")], id="covered"),
        pytest.param({"exclude": ["0 9 * * *"]}, [(TEN, "queued")], id="excluded"),
        pytest.param({"hold_above": 1}, [(NINE, "undecided"), (TEN, "undecided")], id="held"),
    ],
)
def test_a_skipped_slot_is_overdue_if_nobody_wanted_it_skipped(
    redis_url: str, clock: FakeClock, policy: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    before = started(redis_url, clock, **policy)
    before.engine.resign()
    clock.set("2026-02-07T10:45:00Z")

    beat = started(redis_url, clock, **policy)
    beat.tick()

    assert overdue(beat) == expected


def test_a_lost_slot_is_overdue_for_a_day_and_no_longer(redis_url: str, clock: FakeClock) -> None:
    before = started(redis_url, clock, window="90m")
    before.engine.resign()
    clock.set("2026-02-07T10:45:00Z")
    beat = started(redis_url, clock, window="90m")
    end(beat)
    assert [slot for _, _, slot in stored(beat)], "the expired slot stays"

    clock.set("2026-02-08T09:30:00Z")
    beat.tick()
    beat.tick()

    assert NINE not in [to_rfc3339(slot) for _, _, slot in stored(beat)]


def test_a_dead_run_stays_overdue_until_its_replay_succeeds(redis_url: str, clock: FakeClock) -> None:
    beat = started(redis_url, clock)
    at(beat, NINE)
    (run_id,) = beat.ledger.active("etl")
    end(beat, RunState.FAILED)
    at(beat, "2026-02-07T09:30:00Z")
    assert overdue(beat) == [(NINE, "dead")]

    beat.controls.replay(run_id, entry="etl")
    end(beat)
    at(beat, "2026-02-07T09:40:00Z")

    assert recovered(beat) == [NINE]


def test_a_discarded_dead_letter_is_not_overdue_any_more(redis_url: str, clock: FakeClock) -> None:
    beat = started(redis_url, clock)
    at(beat, NINE)
    (run_id,) = beat.ledger.active("etl")
    end(beat, RunState.FAILED)
    at(beat, "2026-02-07T09:30:00Z")

    beat.controls.discard(run_id, entry="etl")
    at(beat, "2026-02-07T09:40:00Z")

    assert (recovered(beat), stored(beat)) == ([], [])


def test_a_pause_suspends_deadlines_and_they_count_from_the_resume(redis_url: str, clock: FakeClock) -> None:
    beat = started(redis_url, clock)
    beat.controls.pause("etl", now=beat.engine.now())
    at(beat, "2026-02-07T10:30:00Z")
    assert overdue(beat) == []

    beat.controls.resume("etl", now=beat.engine.now())
    at(beat, "2026-02-07T10:45:00Z")
    assert len(beat.ledger.active("etl")) == 1
    assert overdue(beat) == []
    at(beat, "2026-02-07T10:55:00Z")

    assert overdue(beat) == [(NINE, "queued"), (TEN, "waiting")]


def test_the_resume_counts_for_the_next_leader_too(redis_url: str, clock: FakeClock) -> None:
    beat = started(redis_url, clock)
    beat.controls.pause("etl", now=beat.engine.now())
    at(beat, "2026-02-07T10:30:00Z")
    beat.controls.resume("etl", now=beat.engine.now())
    at(beat, "2026-02-07T10:40:00Z")
    beat.engine.resign()

    second = started(redis_url, clock)
    at(second, "2026-02-07T10:45:00Z")

    assert overdue(second) == []


def test_a_deadline_begins_with_the_field_and_ends_with_it(redis_url: str, clock: FakeClock) -> None:
    beat = started(redis_url, clock, expect_within=None)
    at(beat, NINE)
    beat.engine.resign()
    clock.set("2026-02-07T09:30:00Z")
    beat = started(redis_url, clock)
    at(beat, TEN)
    at(beat, "2026-02-07T10:20:00Z")
    assert overdue(beat) == [(TEN, "waiting")], "the slot of nine came before the field"
    beat.engine.resign()

    beat = started(redis_url, clock, expect_within=None)

    assert stored(beat) == []
    assert beat.client.hlen(beat.keys.deadlines) == 0


def test_a_deadline_that_nobody_has_seen_before_survives_a_restart(redis_url: str, clock: FakeClock) -> None:
    beat = started(redis_url, clock)
    at(beat, NINE)
    beat.engine.resign()
    clock.set("2026-02-07T09:10:00Z")

    second = started(redis_url, clock)
    at(second, "2026-02-07T09:20:00Z")

    assert overdue(second) == [(NINE, "queued")]


def test_an_entry_with_a_damaged_key_does_not_keep_others_from_being_judged(
    redis_url: str, clock: FakeClock
) -> None:
    entries = dict.fromkeys(("bad", "good"), ("0 * * * *", POLICY))
    beat = started(redis_url, clock, entries)
    at(beat, NINE)
    beat.client.delete(beat.keys.skips("bad"))
    beat.client.set(beat.keys.skips("bad"), "another program")

    at(beat, "2026-02-07T09:20:00Z")

    assert [one.entry for one in beat.told(SlotOverdue)] == ["good"]


def test_after_a_long_outage_only_the_newest_slots_are_judged_in_bounded_steps(
    redis_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_deadlines, "_MOST_BEHIND", 120)
    entries = {"often": ("* * * * *", {"window": "5m", "expect_within": "1m"})}
    started(redis_url, clock, entries).engine.resign()
    clock.set("2026-02-07T14:30:00Z")

    beat = started(redis_url, clock, entries)
    counts = [len(overdue(beat))]
    for _ in range(4):
        beat.tick()
        counts.append(len(overdue(beat)))

    assert counts[0] == 50
    assert 110 < counts[-1] <= 120
    assert overdue(beat)[0][0] == "2026-02-07T12:30:00Z"


def test_a_stop_of_a_schedule_is_not_expected_and_every_start_is(redis_url: str, clock: FakeClock) -> None:
    entries = {"etl": ({"start": "0 * * * *", "stop": "5 * * * *"}, POLICY | {"overlap_policy": "allow"})}
    beat = started(redis_url, clock, entries)
    at(beat, NINE)

    at(beat, "2026-02-07T09:50:00Z")

    assert [slot for slot, _ in overdue(beat)] == [NINE]
