"""``catchup_max_active`` limits the queued and running catch-up and backfill runs of all entries."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from celery_catchup.engine import DispatchFailedError
from celery_catchup.model import RunState
from celery_catchup.store import Replay
from celery_catchup.store.controls import Resend
from celery_catchup.testing import FakeClock
from tests.integration.beats import Beat, Broker
from tests.integration.ledgers import new_backfill
from tests.integration.operating import HOURLY, Project

ALL = {"window": "6h", "overlap_policy": "all"}
ALLOW = {"window": "6h", "overlap_policy": "allow"}
NAMES = ("a", "b", "c")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock("2026-02-07T09:00:30Z")


def outage(
    url: str,
    clock: FakeClock,
    entries: dict[str, dict[str, Any]],
    *,
    minutes: int = 5,
    broker: Broker | None = None,
    **settings: Any,
) -> Beat:
    """A beat that was down for some minutes, and has come back."""
    declared = {name: ("* * * * *", policy) for name, policy in entries.items()}
    before = Beat(url, clock, declared, broker=broker, **settings)
    before.tick()
    before.engine.resign()
    clock.advance(minutes=minutes)
    beat = Beat(url, clock, declared, broker=broker, **settings)
    beat.tick()
    return beat


def active(beat: Beat) -> list[dict[str, Any]]:
    """Catch-up and backfill runs that are queued or running, by the ledger alone."""
    stored: Any = beat.client.hgetall(beat.keys.ledger)
    runs = [{"id": i.decode(), **json.loads(text)} for i, text in stored.items()]
    late = [run for run in runs if run["trigger"] in ("catchup", "backfill")]
    return [run for run in late if run["state"] in ("queued", "running") and not run.get("unreported")]


def counted(beat: Beat) -> set[str]:
    found: Any = beat.client.zrange(beat.keys.catchup_active, 0, -1)
    return {run.decode() for run in found}


def end(beat: Beat, run: dict[str, Any], state: RunState = RunState.SUCCEEDED) -> None:
    beat.leases.claim(run["id"], owner="w", task=run["task"], worker="w", entry=run["entry"])
    beat.leases.finish(run["id"], entry=run.get("lane", run["entry"]), owner="w", state=state)


def drain(beat: Beat, *, most: int, rounds: int = 500) -> list[tuple[str, int]]:
    """Let workers end one run after another; return what ended, in order."""
    ended = []
    for _ in range(rounds):
        runs = active(beat)
        assert len(runs) <= most
        assert counted(beat) == {run["id"] for run in runs}
        if not runs:
            break
        first = min(runs, key=lambda run: (run["queued"], run["slot"]))
        ended.append((first["entry"], first["slot"]))
        end(beat, first)
    return ended


@pytest.mark.parametrize("policy", [ALL, ALLOW, ALL | {"max_active_runs": 3}], ids=["all", "allow", "three"])
def test_workers_drain_a_catch_up_without_ever_exceeding_the_limit(
    redis_url: str, clock: FakeClock, policy: dict[str, Any]
) -> None:
    beat = outage(redis_url, clock, dict.fromkeys(NAMES, policy), max_active=2)

    ended = drain(beat, most=2)

    assert len(ended) == 3 * 4, "the fifth slot of each is live"
    for name in NAMES:
        slots = [slot for entry, slot in ended if entry == name]
        assert slots == sorted(slots)


def test_lanes_take_turns(redis_url: str, clock: FakeClock) -> None:
    beat = outage(redis_url, clock, dict.fromkeys(NAMES, ALLOW), max_active=1)

    ended = drain(beat, most=1)

    assert [entry for entry, _ in ended] == ["a", *["a", "b", "c"] * 3, "b", "c"]


def test_the_next_run_is_released_without_the_leader(redis_url: str, clock: FakeClock) -> None:
    beat = outage(redis_url, clock, {key: {"window": "6h"} for key in NAMES}, max_active=1)
    beat.engine.resign()

    assert len(drain(beat, most=1)) == 3


def test_the_leader_passes_a_place_on_if_the_worker_dies(
    redis_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat = outage(redis_url, clock, {key: {"window": "6h"} for key in NAMES}, max_active=1)
    monkeypatch.setattr(beat.leases, "_pass_on", lambda lanes: ([], []))
    (first,) = active(beat)

    end(beat, first)
    without = active(beat)
    clock.advance(seconds=1)
    beat.tick()

    assert without == []
    assert [run["entry"] for run in active(beat)] == ["b"]


def test_the_leader_leaves_a_place_to_the_worker_that_is_about_to_pass_it_on(
    redis_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat = outage(redis_url, clock, {key: {"window": "6h"} for key in NAMES}, max_active=2)
    monkeypatch.setattr(beat.leases, "_pass_on", lambda lanes: ([], []))
    first, second = active(beat)
    end(beat, first)
    entries = dict[int, list[str]]()

    for age in (0, 1100):  # milliseconds since a run got the place that is not free
        seconds, micros = beat.client.time()  # type: ignore[misc]
        taken = seconds * 1000 + micros // 1000 - age
        beat.client.zadd(beat.keys.catchup_active, {second["id"]: taken})
        beat.tick()
        entries[age] = sorted(run["entry"] for run in active(beat))

    assert entries == {0: ["b"], 1100: ["b", "c"]}


@pytest.mark.parametrize(
    ("milliseconds", "decided"), [(0, 100), (20, 20)], ids=["idle", "a live slot is due"]
)
def test_a_live_slot_that_becomes_due_ends_the_part_of_a_catch_up(
    redis_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, milliseconds: int, decided: int
) -> None:
    clock.set("2026-02-07T06:00:30Z")
    beat = outage(redis_url, clock, {"a": ALLOW | {"window": "1d"}, "live": ALLOW}, minutes=0, max_active=1)
    beat.controls.move_watermarks(["a"], beat.engine.now() - 300 * 60_000, scheduler=False)
    beat.client.hset(beat.keys.first_seen, "a", beat.engine.now() - 86_400_000)
    clock.set("2026-02-07T06:00:59.990Z")
    before, commit = len(beat.ledger.runs_of("a")), beat.ledger.start_commit

    def slow(*args: Any, **given: Any) -> Any:
        clock.advance(milliseconds=milliseconds)
        return commit(*args, **given)

    monkeypatch.setattr(beat.ledger, "start_commit", slow)
    beat.tick()

    assert len(beat.ledger.runs_of("a")) - before == decided
    beat.tick()
    assert len(beat.sent("live")) == (1 if milliseconds else 0)


def test_live_runs_of_other_entries_and_of_allow_do_not_wait(redis_url: str, clock: FakeClock) -> None:
    beat = outage(redis_url, clock, {"a": ALLOW, "b": ALLOW}, max_active=1)
    beat.client.delete("celery")

    beat.run_for(seconds=180, step=20)

    live = [m for m in beat.messages() if m["trigger"] == "scheduler"]
    assert len(live) == 2 * 3
    assert len(active(beat)) == 1


def test_live_runs_in_the_outbox_do_not_wait_either(redis_url: str, clock: FakeClock) -> None:
    broker = Broker(atomic=False)
    beat = outage(redis_url, clock, {"a": ALLOW}, max_active=1, broker=broker)
    broker.published.clear()

    beat.run_for(seconds=120, step=20)

    assert broker.published == ["2026-02-07T09:06:00Z", "2026-02-07T09:07:00Z"]
    assert len(active(beat)) == 1


def test_a_live_run_is_published_before_runs_are_read_that_a_worker_publishes(
    redis_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(atomic=False)
    beat = outage(redis_url, clock, {"a": ALLOW, "b": ALLOW}, max_active=1, broker=broker)
    (first,) = active(beat)
    beat.leases.now_ms = first["queued"] + 60_000
    end(beat, first)  # the worker has not published the next one yet
    broker.published.clear()
    published, outgoing = list[list[str]](), beat.ledger.outgoing

    def read(run_ids: Any) -> Any:
        published.append(list(broker.published))
        return outgoing(run_ids)

    monkeypatch.setattr(beat.ledger, "outgoing", read)
    clock.set("2026-02-07T09:06:00Z")
    beat.tick()

    assert published == [["2026-02-07T09:06:00Z"] * 2]


def test_runs_that_a_broker_did_not_take_are_published_in_their_order(
    redis_url: str, clock: FakeClock
) -> None:
    broker = Broker(atomic=False)
    beat = outage(redis_url, clock, {"a": ALLOW}, broker=broker)
    broker.published.clear()
    broker.down = True
    clock.set("2026-02-07T09:06:00Z")
    with pytest.raises(DispatchFailedError):
        beat.tick()
    broker.down = False
    clock.set("2026-02-07T09:07:00Z")
    beat.tick()

    assert broker.published == ["2026-02-07T09:06:00Z", "2026-02-07T09:07:00Z"]


def test_under_all_a_live_run_keeps_its_place_in_the_chain(redis_url: str, clock: FakeClock) -> None:
    beat = outage(redis_url, clock, {"a": ALL, "b": ALL}, max_active=1)
    beat.run_for(seconds=60, step=20)

    drain(beat, most=1)

    assert len(beat.sent("b")) == 5, "after the catch-up, its first live run"
    assert beat.sent("b") == sorted(beat.sent("b"))


def test_the_outbox_counts_and_a_worker_publishes_what_it_has_passed_on(
    redis_url: str, clock: FakeClock
) -> None:
    broker = Broker(atomic=False)
    beat = outage(
        redis_url, clock, {"a": {"window": "6h"}, "b": {"window": "6h"}}, max_active=1, broker=broker
    )
    (first,) = active(beat)

    beat.leases.claim(first["id"], owner="w", task=first["task"], worker="w")
    result = beat.leases.finish(first["id"], entry="a", owner="w", state=RunState.SUCCEEDED)

    assert len(broker.published) == 1
    assert [one.run["entry"] for one in result.released] == ["b"]


def test_a_run_that_waits_for_its_retry_gives_its_place_back_and_queues_up_for_the_next(
    redis_url: str, clock: FakeClock
) -> None:
    policy = ALL | {"max_attempts": 2, "retry_delay": "1s"}
    beat = outage(redis_url, clock, {"a": policy, "b": policy}, max_active=1)
    (first,) = active(beat)

    end(beat, first, RunState.FAILED)
    others = [run["entry"] for run in active(beat)]
    later = first["queued"] + 10_000_000_000_000
    beat.recovery.now_ms = later
    beat.engine.services.reaper.reap(later)

    assert others == ["b"]
    assert len(active(beat)) == 1
    ended = drain(beat, most=1)
    slots = [slot for entry, slot in ended if entry == "a"]
    assert slots == sorted(slots)
    assert slots[0] == first["slot"], "the retry comes first"
    assert len(ended) == 8


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.REVOKED])
def test_every_end_frees_the_place(redis_url: str, clock: FakeClock, state: RunState) -> None:
    beat = outage(redis_url, clock, {key: {"window": "6h"} for key in NAMES}, max_active=1)
    (first,) = active(beat)

    end(beat, first, state)

    assert [run["entry"] for run in active(beat)] == ["b"]


def test_a_lost_worker_keeps_the_place_until_its_run_is_dead(redis_url: str, clock: FakeClock) -> None:
    beat = outage(redis_url, clock, {"a": {"window": "6h"}, "b": {"window": "6h"}}, max_active=1)
    (first,) = active(beat)
    at = 10_000_000_000_000
    for _ in range(4):
        beat.leases.claim(first["id"], owner="w", task=first["task"], worker="w")
        assert [run["id"] for run in active(beat)] == [first["id"]]
        beat.recovery.now_ms = at = at + 10_000_000
        beat.engine.services.reaper.reap(at)
    clock.advance(seconds=1)
    beat.tick()

    assert [run["entry"] for run in active(beat)] == ["b"]


def test_backfills_share_the_limit(redis_url: str, clock: FakeClock) -> None:
    beat = outage(redis_url, clock, {"a": ALL}, max_active=2)
    now = beat.engine.now()
    fields = {"entry": "a", "start": now - 3_600_000, "end": now - 1_800_000, "reprocess": "none"}
    more = {"newest_first": True, "max_active": 5, "created": now, "total": 30}
    beat.backfills.create(new_backfill(fields | more))
    clock.advance(seconds=1)
    beat.tick()

    ended = drain(beat, most=2)

    assert len(ended) == 4 + 30


def test_a_cancelled_backfill_gives_its_turn_to_others(redis_url: str, clock: FakeClock) -> None:
    beat = outage(redis_url, clock, {"a": ALL, "b": ALL}, max_active=1)
    now = beat.engine.now()
    fields = {"entry": "a", "start": now - 3_600_000, "end": now - 1_800_000, "reprocess": "none"}
    more = {"newest_first": False, "max_active": 5, "created": now, "total": 30}
    one = beat.backfills.create(new_backfill(fields | more))
    clock.advance(seconds=1)
    beat.tick()

    beat.backfills.set_state(one.id, "cancelled")
    for _ in range(3):
        clock.advance(seconds=1)
        beat.tick()
        drain(beat, most=1)

    assert active(beat) == []
    assert beat.client.zcard(beat.keys.catchup_waiting) == 0
    assert len(beat.sent()) == 10


def test_a_replaced_run_that_waits_for_a_place_ends_with_the_active_ones(
    redis_url: str, clock: FakeClock
) -> None:
    replacing = {"window": "6h", "overlap_policy": "cancel_other", "misfire_threshold": "1s"}
    beat = outage(redis_url, clock, {"a": {"window": "6h"}, "b": replacing}, max_active=1)
    waiting = [run for run in beat.ledger.runs_of("b") if run["state"] == "waiting"]

    beat.run_for(seconds=30, step=10)

    assert len(waiting) == 1
    assert [run["state"] for run in beat.ledger.runs_of("b")] == ["revoked", "queued"]


def test_a_replay_waits_for_a_place_even_if_its_failure_stopped_the_chain(
    redis_url: str, clock: FakeClock
) -> None:
    beat = outage(redis_url, clock, {"a": ALL | {"on_failure": "stop"}, "b": ALLOW}, max_active=1)
    (first,) = active(beat)
    end(beat, first, RunState.FAILED)

    assert beat.controls.replay(first["id"], entry="a") is Replay.REPLAYED
    assert len(active(beat)) == 1

    assert len(drain(beat, most=1)) == 8
    assert {run["state"] for run in beat.ledger.runs_of("a")[:4]} == {"succeeded"}


def test_a_resend_of_a_failed_run_waits_for_a_place(redis_url: str, clock: FakeClock) -> None:
    policy = ALL | {"max_attempts": 2, "retry_delay": "1h"}
    beat = outage(redis_url, clock, {"a": policy, "b": ALLOW}, max_active=1)
    (first,) = active(beat)
    end(beat, first, RunState.FAILED)

    assert beat.controls.resend(first["id"], entry="a") is Resend.WAITING
    clock.advance(seconds=1)
    beat.tick()

    assert len(drain(beat, most=1)) == 8


# -- the setting changes at a restart ---------------------------------------------------------------


def test_a_first_limit_counts_what_was_sent_without_one(redis_url: str, clock: FakeClock) -> None:
    beat = outage(redis_url, clock, {"a": ALLOW}, minutes=10)
    assert len(active(beat)) == 9
    beat.engine.resign()

    beat = outage(redis_url, clock, {"a": ALLOW, "b": ALLOW}, max_active=2)

    assert len(counted(beat)) == len(active(beat)) == 9
    while len(active(beat)) > 2:
        before = len(active(beat))
        end(beat, active(beat)[0])
        assert len(active(beat)) == max(2, before - 1)
    drain(beat, most=2)
    assert {run["state"] for run in beat.ledger.runs_of("a")} == {"succeeded", "queued"}


@pytest.mark.parametrize("after", [3, None])
def test_a_higher_limit_or_none_releases_what_waits(
    redis_url: str, clock: FakeClock, after: int | None
) -> None:
    beat = outage(redis_url, clock, {"a": ALLOW, "b": ALLOW}, max_active=1)
    beat.engine.resign()

    settings = {} if after is None else {"max_active": after}
    beat = Beat(redis_url, clock, dict.fromkeys("ab", ("* * * * *", ALLOW)), **settings)
    beat.tick()
    clock.advance(seconds=1)
    beat.tick()

    assert len(active(beat)) == (after or 8)
    if after is None:
        assert beat.client.exists(beat.keys.catchup_active, beat.keys.catchup_waiting) == 0


def test_a_lower_limit_lets_the_active_runs_end(redis_url: str, clock: FakeClock) -> None:
    beat = outage(redis_url, clock, {"a": ALLOW, "b": ALLOW}, max_active=4)
    beat.engine.resign()
    beat = Beat(redis_url, clock, dict.fromkeys("ab", ("* * * * *", ALLOW)), max_active=2)
    beat.tick()

    for left in (3, 2, 2):
        end(beat, active(beat)[0])
        assert len(active(beat)) == left


def test_a_place_that_nobody_gave_back_is_free_again_within_a_minute(
    redis_url: str, clock: FakeClock
) -> None:
    beat = outage(redis_url, clock, {"a": {"window": "6h"}, "b": {"window": "6h"}}, max_active=1)
    (first,) = active(beat)
    end(beat, first)
    beat.client.zadd(beat.keys.catchup_active, {first["id"]: 0})

    beat.active_limit.recount(beat.engine.services.leadership)

    assert first["id"] not in counted(beat)


def test_without_a_limit_nothing_is_counted(redis_url: str, clock: FakeClock) -> None:
    beat = outage(redis_url, clock, {"a": ALLOW, "b": ALL})

    assert beat.active_limit.read() is None
    assert beat.client.exists(beat.keys.catchup_active, beat.keys.catchup_waiting) == 0
    assert len(active(beat)) == 5


def test_commands_show_the_limit(redis_url: str, desk_clock: FakeClock) -> None:
    desk_clock.set("2026-02-07T08:30:00Z")
    names = ("a", "b", "c")
    project = Project(
        redis_url, desk_clock, dict.fromkeys(names, HOURLY), dict.fromkeys(names, ALL), catchup_max_active=2
    )
    with project.beat() as beat:
        beat.tick()
    desk_clock.set("2026-02-07T12:30:00Z")

    assert "At most 2 of them are queued or running at once" in project.catchup("preview", "a").stderr
    with project.beat() as beat:
        beat.tick()
        status = project.text("status")

    line = next(line for line in status.splitlines() if line.startswith("Catch-up runs active"))
    assert line.endswith("2 of 2, 1 entry or backfill waits")


# -- any order of steps -----------------------------------------------------------------------------


def of_state(beat: Beat, *states: str) -> list[dict[str, Any]]:
    stored: Any = beat.client.hgetall(beat.keys.ledger)
    runs = [{"id": i.decode(), **json.loads(text)} for i, text in stored.items()]
    return sorted(
        (run for run in runs if run["state"] in states), key=lambda run: (run["slot"], run["entry"])
    )


def step(beat: Beat, clock: FakeClock, chance: random.Random, later: int) -> None:
    """A worker, the clock, a lost worker or a person does something."""
    runs, dead = active(beat), of_state(beat, "dead", "failed")
    match chance.choice("eeeeftltr"):
        case "e" if runs:
            end(beat, chance.choice(runs))
        case "f" if runs:
            end(beat, chance.choice(runs), RunState.FAILED)
        case "t":
            clock.advance(seconds=chance.choice([1, 20, 61]))
            beat.tick()
        case "l":
            reap(beat, later)
        case "r" if dead:
            run = chance.choice(dead)
            beat.controls.replay(run["id"], entry=run["entry"])


def reap(beat: Beat, at: int) -> None:
    """Recover what is overdue at that time of the server."""
    beat.recovery.now_ms = at
    beat.engine.services.reaper.reap(at)
    beat.recovery.now_ms = 0


@pytest.mark.parametrize("seed", range(12))
def test_random_steps_never_exceed_the_limit_and_lose_nothing(
    redis_url: str, clock: FakeClock, seed: int
) -> None:
    chance = random.Random(seed)
    most = chance.randint(1, 3)
    retried = {"max_attempts": 2, "retry_delay": "1s"}
    policies = [ALL | retried, ALLOW | retried, ALL | {"max_active_runs": 2}, {"window": "6h"}]
    entries = {f"e{n}": chance.choice(policies) for n in range(4)}
    broker = Broker(atomic=chance.random() < 0.7)
    beat = outage(redis_url, clock, entries, minutes=chance.randint(3, 8), max_active=most, broker=broker)
    at = 10_000_000_000_000
    for _ in range(60):
        at += 10_000_000
        step(beat, clock, chance, at)
        assert len(active(beat)) <= most
        assert counted(beat) == {run["id"] for run in active(beat)}

    for _ in range(300):
        at += 10_000_000
        reap(beat, at)
        beat.tick()
        runs = of_state(beat, "queued", "running")
        for run in runs[:3]:
            end(beat, run)
        if not runs:
            break
    assert of_state(beat, "waiting", "queued", "running") == []
    assert beat.client.zcard(beat.keys.catchup_waiting) == 0
