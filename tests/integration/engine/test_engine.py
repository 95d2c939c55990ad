"""The engine on a real server: what is dispatched after an outage, by whom, and what survives."""

from __future__ import annotations

from typing import Any

import pytest
from redis.connection import Connection

from celery_catchup.engine import DispatchFailedError
from celery_catchup.engine.previews import preview
from celery_catchup.errors import DriftError
from celery_catchup.events import (
    CatchupCompleted,
    CatchupPlanned,
    CatchupStarted,
    EntryDrifted,
    EntryFailed,
    Leading,
    RunDispatched,
    StandingBy,
    StateSuspect,
)
from celery_catchup.model import to_instant, to_rfc3339
from celery_catchup.store import Keys
from celery_catchup.testing import FakeClock
from tests.integration.beats import NAMESPACE, Beat, Broker
from tests.integration.operating import Project

HOURLY = "0 * * * *"
TEN, ELEVEN, NOON = "2026-02-07T10:00:00Z", "2026-02-07T11:00:00Z", "2026-02-07T12:00:00Z"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock("2026-02-07T09:04:00Z")


def outage(url: str, clock: FakeClock, policy: dict[str, Any], **options: Any) -> Beat:
    """A beat that ran until 09:05, and another one that comes back at 12:02 and catches up."""
    entries = {"etl": (HOURLY, {"window": "6h", **policy})}
    first = Beat(url, clock, entries, **options)
    first.tick()
    first.run_for(seconds=60)
    first.engine.resign()
    clock.set("2026-02-07T12:02:00Z")
    second = Beat(url, clock, entries, **options)
    second.tick()
    return second


def test_all_makes_a_run_of_every_missed_slot_and_sends_the_first(redis_url: str, clock: FakeClock) -> None:
    beat = outage(redis_url, clock, {"overlap_policy": "all"})

    assert beat.dispatched("etl") == [TEN, ELEVEN, NOON]
    assert beat.sent() == [TEN]
    assert [run["state"] for run in beat.ledger.runs_of("etl")] == ["queued", "waiting", "waiting"]


def test_the_message_tells_its_slot_its_interval_and_that_it_is_late(
    redis_url: str, clock: FakeClock
) -> None:
    beat = outage(redis_url, clock, {"overlap_policy": "allow"})

    message = beat.messages()[0]

    run = beat.ledger.runs_of("etl")[0]
    assert message == {
        "id": run["id"],
        "entry": "etl",
        "slot": TEN,
        "is_catchup": True,
        "trigger": "catchup",
        "interval": ["2026-02-07T09:00:00Z", TEN],
    }


def test_skip_runs_the_first_and_says_why_not_the_others(redis_url: str, clock: FakeClock) -> None:
    beat = outage(redis_url, clock, {"overlap_policy": "skip"})

    assert beat.sent() == [TEN]
    assert beat.skipped("etl") == [(ELEVEN, NOON, 2, "guard_blocked")]


def test_latest_runs_the_newest_only(redis_url: str, clock: FakeClock) -> None:
    beat = outage(redis_url, clock, {"select": "latest"})

    assert beat.sent() == [NOON]
    assert beat.skipped("etl") == [(TEN, ELEVEN, 2, "superseded")]


def test_catch_up_off_runs_nothing_and_leaves_a_trace(redis_url: str, clock: FakeClock) -> None:
    beat = outage(redis_url, clock, {"select": False})

    assert beat.sent() == []
    assert beat.skipped("etl") == [(TEN, NOON, 3, "catchup_off")]
    assert [span["count"] for span in beat.ledger.skips_of("etl")] == [3]


def test_the_events_of_a_catch_up_tell_its_whole_story(redis_url: str, clock: FakeClock) -> None:
    beat = outage(redis_url, clock, {"overlap_policy": "all"})

    (started,), (planned,), (completed,) = map(beat.told, (CatchupStarted, CatchupPlanned, CatchupCompleted))
    assert (started.entries, started.candidates) == (1, 3)
    assert (planned.entry, planned.overlap_policy, planned.candidates, planned.window) == (
        "etl",
        "all",
        3,
        "6h",
    )
    assert (completed.dispatched, completed.skipped) == (3, 0)


def test_nothing_is_said_when_nothing_was_missed(redis_url: str, clock: FakeClock) -> None:
    beat = Beat(redis_url, clock, {"etl": (HOURLY, {"window": "6h"})})
    beat.tick()
    beat.run_for(seconds=120)

    assert [type(event) for event in beat.events] == [Leading]


def test_a_first_deployment_runs_nothing_old(redis_url: str, clock: FakeClock) -> None:
    clock.set("2026-02-07T12:00:00Z")
    beat = Beat(redis_url, clock, {"etl": (HOURLY, {"window": "7d"})})

    beat.tick()
    clock.advance(hours=1)
    beat.tick()

    assert beat.sent() == ["2026-02-07T13:00:00Z"]


def test_a_first_deployment_may_match_the_current_minute(redis_url: str, clock: FakeClock) -> None:
    clock.set("2026-02-07T12:00:40Z")
    beat = Beat(redis_url, clock, {"etl": (HOURLY, {"window": "7d"})}, first_start="match")

    beat.tick()

    assert beat.sent() == [NOON]


def test_live_slots_are_sent_when_they_come(redis_url: str, clock: FakeClock) -> None:
    beat = Beat(redis_url, clock, {"etl": ("* * * * *", {"window": "1h", "overlap_policy": "allow"})})
    beat.tick()
    beat.run_for(seconds=185)

    assert beat.sent() == [f"2026-02-07T09:0{minute}:00Z" for minute in (5, 6, 7)]
    assert {message["trigger"] for message in beat.messages()} == {"scheduler"}


def test_a_living_beat_that_was_frozen_catches_up_like_a_restarted_one(
    redis_url: str, clock: FakeClock
) -> None:
    beat = Beat(redis_url, clock, {"etl": (HOURLY, {"window": "90m", "overlap_policy": "allow"})})
    beat.tick()
    beat.run_for(seconds=60)

    clock.advance(hours=3)
    beat.tick()

    assert beat.sent() == [ELEVEN, NOON]
    assert beat.skipped("etl") == [(TEN, TEN, 1, "expired")]


def test_a_long_catch_up_is_spread_over_ticks_and_starves_nobody(redis_url: str, clock: FakeClock) -> None:
    entries = {
        "busy": ("* * * * *", {"window": "7d", "overlap_policy": "allow"}),
        "calm": ("5 12 * * *", {"window": "7d", "overlap_policy": "allow"}),
    }
    first = Beat(redis_url, clock, entries, batch_size=50)
    first.tick()
    first.engine.resign()
    clock.set("2026-02-07T12:04:00Z")
    beat = Beat(redis_url, clock, entries, batch_size=50)
    beat.tick()
    sent_at_once = len(beat.sent("busy"))

    clock.set("2026-02-07T12:05:00Z")
    beat.tick()
    before = len(beat.sent("busy"))
    calm = beat.sent("calm")
    for _ in range(10):
        beat.tick()

    assert sent_at_once == 50
    assert calm == ["2026-02-07T12:05:00Z"]
    assert before < 181
    assert len(beat.sent("busy")) == len(set(beat.sent("busy"))) == 181


def test_a_catch_up_goes_on_although_every_tick_is_full_of_live_slots(
    redis_url: str, clock: FakeClock
) -> None:
    policy = {"window": "1h", "overlap_policy": "allow"}
    live = {f"live-{i}": ("* * * * *", policy) for i in range(20)}
    late = ("* * * * *", {**policy, "on_resume": "catchup"})
    beat = Beat(redis_url, clock, {**live, "late": late}, batch_size=20)
    beat.tick()
    beat.controls.pause("late", now=beat.engine.now())
    clock.advance(minutes=3)
    beat.controls.resume("late", now=beat.engine.now())

    for _ in range(6):
        clock.advance(minutes=1)
        beat.tick()

    assert len(beat.ledger.runs_of("late")) >= 6


def test_no_live_entry_starves_if_there_is_not_time_for_all(redis_url: str, clock: FakeClock) -> None:
    policy = {"window": "1h", "overlap_policy": "allow", "misfire_threshold": "1h"}
    beat = Beat(redis_url, clock, dict.fromkeys("abc", ("* * * * *", policy)), batch_size=2)
    beat.tick()

    for _ in range(12):
        clock.advance(minutes=1)
        beat.tick()

    counts = [len(beat.ledger.runs_of(name)) for name in "abc"]
    assert max(counts) - min(counts) <= 3


def test_a_rate_limit_spaces_the_catch_up(redis_url: str, clock: FakeClock) -> None:
    beat = outage(redis_url, clock, {"overlap_policy": "allow"}, rate_limit="100ms")
    counts = [len(beat.sent())]
    for _ in range(6):
        clock.advance(milliseconds=50)
        beat.tick()
        counts.append(len(beat.sent()))

    assert counts == [1, 1, 2, 2, 3, 3, 3]


def test_a_cap_over_all_entries_keeps_the_oldest_slots(redis_url: str, clock: FakeClock) -> None:
    entries = {
        "a": ("10 * * * *", {"window": "1d", "overlap_policy": "allow"}),
        "b": ("20 * * * *", {"window": "1d", "overlap_policy": "allow"}),
    }
    first = Beat(redis_url, clock, entries, max_runs=3)
    first.tick()
    first.engine.resign()
    clock.set("2026-02-07T12:02:00Z")
    beat = Beat(redis_url, clock, entries, max_runs=3)
    for _ in range(3):
        beat.tick()

    assert beat.sent() == ["2026-02-07T09:10:00Z", "2026-02-07T10:10:00Z", "2026-02-07T09:20:00Z"]
    assert [span[2:] for span in beat.skipped("a") + beat.skipped("b")] == [
        (1, "cap_exceeded"),
        (2, "cap_exceeded"),
    ]


def test_a_crash_in_the_middle_of_a_catch_up_loses_and_doubles_nothing(
    redis_url: str, clock: FakeClock
) -> None:
    entries = {"etl": ("* * * * *", {"window": "1d", "overlap_policy": "allow"})}
    Beat(redis_url, clock, entries).tick()
    clock.advance(minutes=30)
    crashed = Beat(redis_url, clock, entries, batch_size=7)
    crashed.tick()
    clock.advance(seconds=11)
    crashed.tick()

    after = Beat(redis_url, clock, entries, batch_size=7)
    after.tick()
    clock.advance(seconds=11)
    for _ in range(10):
        after.tick()

    expected = [f"2026-02-07T09:{minute:02}:00Z" for minute in range(5, 35)]
    assert after.sent() == expected


def test_only_one_of_two_beats_leads_and_the_other_says_so_once(redis_url: str, clock: FakeClock) -> None:
    entries = {"etl": ("* * * * *", {"window": "1h", "overlap_policy": "allow"})}
    leader, standby = Beat(redis_url, clock, entries), Beat(redis_url, clock, entries)
    for _ in range(70):
        clock.advance(seconds=1)
        leader.tick()
        standby.tick()

    assert len(leader.sent()) == 1
    assert len(standby.told(StandingBy)) == 1
    assert not standby.told(RunDispatched)


def test_a_dead_leader_is_replaced_within_its_lease(redis_url: str, clock: FakeClock) -> None:
    entries = {"etl": ("* * * * *", {"window": "1h", "overlap_policy": "allow"})}
    leader, standby = Beat(redis_url, clock, entries), Beat(redis_url, clock, entries)
    leader.tick()
    standby.tick()

    waited = 0
    while not standby.tick():
        clock.advance(seconds=1)
        waited += 1

    assert 9 <= waited <= 11


def test_a_leader_that_wakes_leaves_the_lead_to_one_who_got_its_numbers_from_a_server_that_forgot(
    redis_url: str, clock: FakeClock
) -> None:
    entries = {"etl": (HOURLY, {"window": "1h"})}
    frozen, standby = Beat(redis_url, clock, entries), Beat(redis_url, clock, entries)
    frozen.tick()
    frozen.client.flushdb()
    standby.tick()
    clock.advance(seconds=11)
    leader = frozen.client.hgetall(Keys(NAMESPACE).leader)

    assert (leader[b"epoch"], leader[b"beat"]) == (b"1", b"1")  # as when it was frozen
    assert not frozen.tick()


def test_a_leader_in_its_second_term_notices_that_the_server_is_back_in_its_longer_first(
    redis_url: str, clock: FakeClock
) -> None:
    entries = {"etl": (HOURLY, {"window": "6h", "overlap_policy": "allow"})}
    leader, other = Beat(redis_url, clock, entries), Beat(redis_url, clock, entries)
    for _ in range(20):
        leader.tick()
    kept: Any = {key: leader.client.dump(key) for key in leader.client.scan_iter()}
    leader.engine.resign()
    other.tick()
    other.engine.resign()
    leader.run_for(seconds=2 * 3600, step=600)
    sent = leader.sent()

    leader.client.flushdb()
    for key, value in kept.items():
        leader.client.restore(key, 0, value)
    leader.tick()

    assert sent == [TEN, ELEVEN]
    assert leader.sent() == sent  # all of it was forgotten, and is decided anew


@pytest.mark.parametrize(("field", "value"), [("beat", None), ("beat", "x"), ("epoch", "x")])
def test_a_damaged_record_of_a_dead_leader_locks_nobody_out(
    redis_url: str, clock: FakeClock, field: str, value: str | None
) -> None:
    entries = {"etl": (HOURLY, {"window": "1h"})}
    leader, standby = Beat(redis_url, clock, entries), Beat(redis_url, clock, entries)
    leader.tick()
    place = Keys(NAMESPACE).leader
    leader.client.hdel(place, field) if value is None else leader.client.hset(place, field, value)

    assert not standby.tick()
    clock.advance(seconds=11)
    assert standby.tick()


def test_a_leader_that_stops_hands_over_at_once(redis_url: str, clock: FakeClock) -> None:
    entries = {"etl": (HOURLY, {"window": "1h"})}
    leader, standby = Beat(redis_url, clock, entries), Beat(redis_url, clock, entries)
    leader.tick()
    assert not standby.tick()

    leader.engine.resign()

    assert standby.tick()


def test_a_leader_that_was_frozen_changes_nothing_when_it_wakes(redis_url: str, clock: FakeClock) -> None:
    entries = {"etl": ("* * * * *", {"window": "1h", "overlap_policy": "allow"})}
    frozen, standby = Beat(redis_url, clock, entries), Beat(redis_url, clock, entries)
    frozen.tick()
    standby.tick()
    clock.advance(seconds=61)
    assert standby.tick()
    sent = standby.sent()

    # it wakes between its lease check and its writes
    frozen.engine.advance(frozen.engine.now())
    leads = frozen.engine.leading

    assert (leads, frozen.tick()) == (False, False)
    assert standby.sent() == sent
    assert not frozen.told(RunDispatched)


def test_no_watermark_means_no_catch_up_and_a_warning(redis_url: str, clock: FakeClock) -> None:
    entries = {"etl": (HOURLY, {"window": "6h", "overlap_policy": "allow"})}
    first = Beat(redis_url, clock, entries)
    first.tick()
    first.run_for(seconds=3600, step=60)
    first.engine.resign()
    first.client.hdel(Keys(NAMESPACE).scheduler, "watermark")
    clock.advance(hours=3)
    beat = Beat(redis_url, clock, entries)

    beat.tick()

    assert [event.what for event in beat.told(StateSuspect)] == [
        "the scheduler's watermark is missing; nothing is replayed"
    ]
    assert beat.sent() == [TEN]


@pytest.mark.parametrize(
    ("value", "warning"),
    [
        ("rubbish", "the scheduler's watermark 'rubbish' is not a time; nothing is replayed"),
        ("-5", "the scheduler's watermark '-5' is not a time; nothing is replayed"),
        (
            str(to_instant(FakeClock("2027-01-01T00:00:00Z").now())),
            "the scheduler's watermark 2027-01-01T00:00:00Z is in the future; it counts as now",
        ),
    ],
)
def test_a_watermark_that_cannot_be_is_said_and_replays_nothing(
    redis_url: str, clock: FakeClock, value: str, warning: str
) -> None:
    entries = {"etl": (HOURLY, {"window": "6h", "overlap_policy": "allow"})}
    first = Beat(redis_url, clock, entries)
    first.tick()
    first.engine.resign()
    first.client.hset(Keys(NAMESPACE).scheduler, "watermark", value)
    clock.advance(hours=3)
    beat = Beat(redis_url, clock, entries)

    beat.tick()

    assert [event.what for event in beat.told(StateSuspect)] == [warning]
    assert beat.sent() == []
    clock.advance(hours=1)
    beat.tick()
    assert beat.sent() == ["2026-02-07T13:00:00Z"]


def test_an_entry_that_cannot_be_sent_is_tried_again_and_loses_nothing(
    redis_url: str, clock: FakeClock
) -> None:
    entries = {
        "good": (HOURLY, {"window": "6h", "overlap_policy": "allow"}),
        "bad": (HOURLY, {"window": "6h", "overlap_policy": "allow"}),
    }
    broker = Broker()
    broker.failing.add("bad")
    beat = Beat(redis_url, clock, entries, broker=broker)
    beat.tick()
    clock.set("2026-02-07T10:00:00Z")
    beat.tick()
    beat.run_for(seconds=600)
    failures = len(beat.told(EntryFailed))
    assert beat.sent() == [TEN]
    assert 8 < failures < 25

    beat.engine.resign()
    healed = Beat(redis_url, clock, entries)
    healed.tick()

    assert sorted(healed.sent("bad")) == [TEN]
    assert healed.sent("good") == [TEN]


def test_elsewhere_the_outbox_is_published_and_kept_while_the_broker_is_down(
    redis_url: str, clock: FakeClock
) -> None:
    broker = Broker(atomic=False)
    broker.down = True
    entries = {"etl": (HOURLY, {"window": "6h", "overlap_policy": "allow"})}
    beat = Beat(redis_url, clock, entries, broker=broker)
    beat.tick()
    clock.set("2026-02-07T10:00:00Z")
    for _ in range(2):
        with pytest.raises(DispatchFailedError, match="broker is down"):
            beat.tick()
    broker.down = False

    beat.tick()

    assert broker.published == [TEN]
    assert beat.ledger.outbox(10) == []


def test_jitter_sends_a_live_run_later_and_once(redis_url: str, clock: FakeClock) -> None:
    entries = {"etl": (HOURLY, {"window": "6h", "overlap_policy": "allow", "jitter": "10m"})}
    beat = Beat(redis_url, clock, entries)
    beat.tick()
    clock.set("2026-02-07T10:00:00Z")
    beat.tick()
    (event,) = beat.told(RunDispatched)
    at_slot = beat.sent()
    beat.run_for(seconds=601)

    assert at_slot == []
    assert 0 < event.run.send_at - event.run.slot.at <= 600_000
    assert beat.sent() == [TEN]


def test_an_idle_tick_is_one_round_trip(
    redis_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat = Beat(redis_url, clock, {f"e{n}": (HOURLY, {"window": "6h"}) for n in range(50)})
    beat.tick()
    beat.tick()
    sent: list[object] = []
    send = Connection.send_packed_command
    monkeypatch.setattr(
        Connection,
        "send_packed_command",
        lambda self, *args, **kw: (sent.append(args), send(self, *args, **kw)),
    )

    for _ in range(10):
        clock.advance(seconds=1)
        beat.tick()

    assert len(sent) == 10


def test_preview_tells_what_the_next_tick_does(redis_url: str, clock: FakeClock) -> None:
    entries = {
        "all": (HOURLY, {"window": "6h", "overlap_policy": "all"}),
        "skip": (["*/20 * * * *", "0 * * * *"], {"window": "6h", "max_runs": 2}),
        "off": (HOURLY, {"select": False}),
    }
    first = Beat(redis_url, clock, entries)
    first.tick()
    first.engine.resign()
    clock.set("2026-02-07T12:02:00Z")
    beat = Beat(redis_url, clock, entries)

    states = beat.engine.services.states
    found, _ = preview(
        beat.engine.declared,
        states.load(),
        states=states,
        settings=beat.engine.settings,
        now=beat.engine.now(),
        namespace=NAMESPACE,
    )
    plans = {one.tracked.entry.name: one.plan for one in found}
    for _ in range(3):
        beat.tick()

    for name, plan in plans.items():
        assert [run.slot.at for run in plan.runs] == [
            event.run.slot.at for event in beat.told(RunDispatched) if event.entry == name
        ]
        assert sum(skip.count for skip in plan.skips) == sum(span[2] for span in beat.skipped(name))


def redeclared(url: str, clock: FakeClock, **settings: Any) -> Beat:
    """A beat whose hourly entry runs at half past now, and whose other entry is gone."""
    first = Beat(url, clock, {"etl": (HOURLY, {"window": "6h"}), "gone": (HOURLY, {"window": "6h"})})
    first.tick()
    first.engine.resign()
    return Beat(url, clock, {"etl": ("30 * * * *", {"window": "6h"})}, **settings)


def test_changed_entries_are_adopted_and_the_change_is_said_once(redis_url: str, clock: FakeClock) -> None:
    beat = redeclared(redis_url, clock)
    beat.tick()
    beat.engine.resign()
    again = Beat(redis_url, clock, {"etl": ("30 * * * *", {"window": "6h"})})
    again.tick()

    assert [(event.entry, event.loud) for event in beat.told(EntryDrifted)] == [("etl", False)]
    assert again.told(EntryDrifted) == []


def test_drift_can_be_warned_of(redis_url: str, clock: FakeClock) -> None:
    beat = redeclared(redis_url, clock, on_drift="warn")
    beat.tick()

    assert {(event.entry, event.loud) for event in beat.told(EntryDrifted)} == {("etl", True), ("gone", True)}


def test_drift_can_be_refused(redis_url: str, clock: FakeClock) -> None:
    beat = redeclared(redis_url, clock, on_drift="refuse")

    with pytest.raises(DriftError, match="'gone' is not declared any more; 'etl' schedule: was .* is "):
        beat.tick()


def test_an_entry_that_comes_back_has_lost_nothing(redis_url: str, clock: FakeClock) -> None:
    policy = {"window": "6h", "overlap_policy": "allow"}
    for entries in ({"etl": (HOURLY, policy), "x": (HOURLY, policy)}, {"x": (HOURLY, policy)}):
        beat = Beat(redis_url, clock, entries)
        beat.tick()
        beat.engine.resign()
    clock.set("2026-02-07T12:02:00Z")
    beat = Beat(redis_url, clock, {"etl": (HOURLY, policy), "x": (HOURLY, policy)})

    beat.tick()

    assert beat.sent("etl") == [TEN, ELEVEN, NOON]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, ["2026-02-07T09:30:00Z", "2026-02-07T10:30:00Z", "2026-02-07T11:30:00Z"]),
        ({"on_schedule_change": "from_now"}, []),
    ],
)
def test_a_changed_schedule_holds_for_the_time_before_unless_told_otherwise(
    redis_url: str, clock: FakeClock, policy: dict[str, Any], expected: list[str]
) -> None:
    rules = {"window": "6h", "overlap_policy": "allow", **policy}
    first = Beat(redis_url, clock, {"etl": (HOURLY, rules)})
    first.tick()
    first.engine.resign()
    clock.set("2026-02-07T12:02:00Z")
    beat = Beat(redis_url, clock, {"etl": ("30 * * * *", rules)})

    beat.tick()

    assert beat.sent() == expected
    clock.set("2026-02-07T12:30:00Z")
    beat.tick()
    assert beat.sent() == [*expected, "2026-02-07T12:30:00Z"]


def test_a_run_that_its_own_guard_keeps_back_is_skipped_with_that_reason(
    redis_url: str, clock: FakeClock
) -> None:
    broker = Broker()
    broker.guarded.add("etl")
    beat = Beat(
        redis_url, clock, {"etl": (HOURLY, {"window": "6h", "overlap_policy": "allow"})}, broker=broker
    )
    beat.tick()
    clock.set(TEN)
    beat.tick()

    assert beat.sent() == []
    assert beat.skipped("etl") == [(TEN, TEN, 1, "guard_blocked")]


def test_a_tick_publishes_what_it_has_decided_without_reading_it_back(
    redis_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, policy = Broker(atomic=False), {"window": "6h", "overlap_policy": "allow"}
    beat = Beat(redis_url, clock, {"etl": (HOURLY, policy)}, broker=broker)
    beat.tick()
    clock.set(TEN)
    monkeypatch.delattr(type(beat.ledger), "outgoing")

    beat.tick()

    assert broker.published == [TEN]
    assert beat.ledger.outbox(10) == []


def test_a_run_that_ends_before_it_is_published_is_not_sent(
    redis_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, policy = Broker(atomic=False), {"window": "6h", "overlap_policy": "allow"}
    beat = Beat(redis_url, clock, {"etl": (HOURLY, policy)}, broker=broker)
    beat.tick()
    clock.set(TEN)
    decide = beat.engine.advance

    def advance(now: int) -> None:
        decide(now)
        beat.client.delete(beat.keys.outbox)  # as `discard` does

    monkeypatch.setattr(beat.engine, "advance", advance)
    beat.tick()

    assert broker.published == []


def test_a_run_that_no_queue_takes_keeps_nobody_back_and_is_tried_less_and_less_often(
    redis_url: str, clock: FakeClock
) -> None:
    broker = Broker(atomic=False)
    broker.unroutable.add("bad")
    policy = {"window": "6h", "overlap_policy": "allow"}
    beat = Beat(redis_url, clock, {"bad": (HOURLY, policy), "good": (HOURLY, policy)}, broker=broker)
    beat.tick()
    clock.set(TEN)
    for _ in range(20):
        beat.tick()

    assert broker.published == [TEN]
    assert [event.retry_in for event in beat.told(EntryFailed)] == [1.0]
    assert len(beat.ledger.outbox(10)) == 1


def test_a_beat_that_was_closed_in_a_tick_exits_in_the_next_one(
    redis_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Project(redis_url, clock).beat() as scheduler:
        scheduler.tick()
        # Celery's handler of SIGTERM closes it during a tick; here the exit that it raises is swallowed.
        monkeypatch.setattr(scheduler._unmanaged, "next_wake", scheduler.close)
        scheduler.tick()

        with pytest.raises(SystemExit):
            scheduler.tick()


def test_the_watermark_moves_although_a_slot_is_due_in_every_tick(redis_url: str) -> None:
    clock = FakeClock("2026-02-07T09:05:30Z")
    minutes = {f"e{i}": (f"{i} * * * *", {"window": "1h", "overlap_policy": "allow"}) for i in range(60)}
    beat = Beat(redis_url, clock, minutes)
    beat.tick()

    for _ in range(3):
        clock.advance(minutes=1)
        beat.tick()

    stored: Any = beat.client.hget(beat.keys.scheduler, "watermark")
    assert to_rfc3339(int(stored)) == "2026-02-07T09:07:30Z"
