"""Backfills: ranges that somebody asked for, worked on by the leader, beside everything else."""

from __future__ import annotations

from typing import Any

import pytest

from celery_catchup.engine import backfill_runner
from celery_catchup.model import RunState, to_instant, to_rfc3339
from celery_catchup.store import Backfill
from celery_catchup.testing import FakeClock
from tests.integration.beats import Beat, Broker
from tests.integration.ledgers import new_backfill

HOURLY = "0 * * * *"
DAY = [f"2026-02-06T{hour:02}:00:00Z" for hour in range(24)]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock("2026-02-07T09:04:00Z")


@pytest.fixture
def beat(redis_url: str, clock: FakeClock) -> Beat:
    running = Beat(redis_url, clock, {"etl": (HOURLY, {"window": "6h", "overlap_policy": "all"})})
    running.tick()
    return running


def ask(beat: Beat, start: str = DAY[0], end: str = DAY[-1], **more: Any) -> Backfill:
    fields = {"reprocess": "none", "newest_first": False, "max_active": 1, "total": 24, **more}
    instants = {name: to_instant(FakeClock(text).now()) for name, text in (("start", start), ("end", end))}
    return beat.backfills.create(
        new_backfill({"entry": "etl", "created": beat.engine.now(), **instants, **fields})
    )


def work(beat: Beat, *, limit: int = 10_000, state: RunState = RunState.SUCCEEDED) -> list[str]:
    """A worker that takes messages off the queue, one by one, while beat ticks."""
    done: list[str] = []
    while len(done) < limit:
        beat.tick()
        messages = beat.messages()
        if not messages:
            break
        message = messages[0]
        beat.client.rpop("celery")
        run_id = message["id"][:36]
        beat.leases.claim(run_id, owner="w", task="proj.etl", worker="w1")
        beat.leases.finish(run_id, entry="etl", owner="w", state=state)
        done.append(message["slot"])
    return done


def test_every_slot_of_the_range_runs_both_ends_included(beat: Beat) -> None:
    asked = ask(beat)

    assert work(beat) == DAY
    beat.tick()
    done = beat.backfills.get(asked.id)
    assert done is not None
    assert (done.state, done.dispatched, done.skipped) == ("completed", 24, 0)
    assert {run["trigger"] for run in beat.ledger.runs_of("etl")} == {"backfill"}


def test_many_backfills_take_turns_and_a_tick_continues_a_bounded_number(
    beat: Beat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill_runner, "_AT_ONCE", 2)
    asked = [ask(beat, DAY[hour], DAY[hour], total=1) for hour in range(5)]

    counts = []
    for _ in range(3):
        beat.tick()
        counts.append(sum((beat.backfills.get(one.id) or one).dispatched for one in asked))

    assert counts == [2, 4, 5]


def test_a_live_run_is_published_before_backfills_go_on_and_ends_their_part_of_the_tick(
    redis_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(atomic=False)
    policy = {"window": "6h", "overlap_policy": "allow"}
    beat = Beat(redis_url, clock, {"etl": (HOURLY, policy), "live": ("* * * * *", policy)}, broker=broker)
    beat.tick()
    several = [ask(beat, DAY[hour], DAY[hour], total=1) for hour in range(2)]
    clock.set("2026-02-07T09:05:00Z")
    backfills, published = beat.engine.services.backfills, list[list[str]]()
    commit = backfills.commit

    def slow(*args: Any, **given: Any) -> Any:
        published.append(list(broker.published))
        clock.advance(minutes=1)
        return commit(*args, **given)

    monkeypatch.setattr(backfills, "commit", slow)
    beat.tick()

    assert published == [["2026-02-07T09:05:00Z"]], "one backfill, after the live run of this tick"
    beat.tick()
    assert [(beat.backfills.get(one.id) or one).dispatched for one in several] == [1, 1]


def test_newest_first_goes_downwards(beat: Beat) -> None:
    ask(beat, newest_first=True)

    assert work(beat) == DAY[::-1]


def test_it_never_moves_a_watermark(beat: Beat) -> None:
    before = beat.client.hgetall(beat.keys.decided)

    ask(beat)
    work(beat)

    assert beat.client.hgetall(beat.keys.decided) == before


def test_no_more_of_its_runs_are_active_than_it_allows_and_live_slots_go_on(
    beat: Beat, clock: FakeClock
) -> None:
    ask(beat, max_active=3)
    beat.tick()
    at_once = beat.sent()
    clock.set("2026-02-07T10:00:00Z")
    beat.tick()

    assert at_once == DAY[:3]
    assert beat.sent()[3:] == ["2026-02-07T10:00:00Z"]


def test_runs_that_exist_are_skipped_unless_they_are_to_be_reprocessed(beat: Beat) -> None:
    ask(beat, end=DAY[2])
    work(beat)
    first = {run["id"]: run["attempt"] for run in beat.ledger.runs_of("etl")}

    ask(beat, end=DAY[3])
    second = work(beat)
    ask(beat, end=DAY[3], reprocess="completed")
    third = work(beat)

    assert second == [DAY[3]]
    assert third == DAY[:4]
    again = {run["id"]: run["attempt"] for run in beat.ledger.runs_of("etl")}
    assert all(again[run_id] == attempt + 1 for run_id, attempt in first.items())


def test_failed_runs_only_can_be_reprocessed(beat: Beat) -> None:
    ask(beat, end=DAY[1])
    work(beat, limit=1, state=RunState.FAILED)
    work(beat)

    ask(beat, end=DAY[1], reprocess="failed")

    assert work(beat) == [DAY[0]]


def test_paused_it_starts_nothing_and_resumed_it_goes_on(beat: Beat) -> None:
    asked = ask(beat)
    work(beat, limit=5)
    assert beat.backfills.set_state(asked.id, "paused") == "paused"
    active = work(beat)  # what was sent before the pause
    assert work(beat) == []

    assert beat.backfills.set_state(asked.id, "running") == "running"

    assert work(beat) == DAY[5 + len(active) :]


def test_cancelled_it_sends_nothing_more(beat: Beat) -> None:
    asked = ask(beat)
    work(beat, limit=5)

    assert beat.backfills.set_state(asked.id, "cancelled") == "cancelled"

    assert len(work(beat)) <= 1
    assert beat.backfills.set_state(asked.id, "running") == "cancelled"
    states = [run["state"] for run in beat.ledger.runs_of("etl")]
    assert states.count("revoked") >= 18


def test_another_leader_goes_on_where_the_first_stopped(beat: Beat, redis_url: str, clock: FakeClock) -> None:
    minutes = [to_rfc3339(to_instant(FakeClock(DAY[0]).now()) + n * 60_000) for n in range(1000)]
    entries = {"etl": ("* * * * *", {"window": "6h", "overlap_policy": "all"})}
    beat.engine.resign()
    first = Beat(redis_url, clock, entries)
    first.tick()
    ask(first, end=minutes[-1], max_active=5, total=1000)
    done = work(first, limit=300)
    first.engine.resign()
    second = Beat(redis_url, clock, entries)

    done += work(second)

    assert sorted(done) == minutes
    assert len(done) == len(set(done))


def test_there_is_no_such_backfill(beat: Beat) -> None:
    assert beat.backfills.set_state("nope", "paused") is None
    assert beat.backfills.get("nope") is None
