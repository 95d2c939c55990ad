"""Under ``all`` the order is the slots' order: a run that is sent later keeps its place."""

from __future__ import annotations

from typing import Any

import pytest

from celery_catchup.model import RunState, to_rfc3339
from celery_catchup.store import Backfill
from celery_catchup.testing import FakeClock
from tests.integration.beats import Beat
from tests.integration.operating import HOURLY, Project

JITTER = {"window": "6h", "overlap_policy": "all", "jitter": "50m"}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock("2026-02-07T08:01:00Z")


def finish_all(beat: Beat, entry: str = "etl") -> None:
    for run_id in beat.ledger.active(entry):
        beat.leases.claim(run_id, owner="w", task=f"proj.{entry}", worker="w", entry=entry)
        beat.leases.finish(run_id, entry=entry, owner="w", state=RunState.SUCCEEDED)


@pytest.mark.parametrize("crons", [["0 * * * *", "5 * * * *"], ["0 * * * *", "0 * * * *"]], ids=str)
def test_two_schedules_of_an_entry_keep_their_order_under_jitter(
    redis_url: str, clock: FakeClock, crons: list[str]
) -> None:
    beat = Beat(redis_url, clock, {"etl": (crons, JITTER)})
    beat.tick()

    for _ in range(8 * 60):
        clock.advance(minutes=1)
        beat.tick()
        finish_all(beat)

    recorded = [(run["slot"], run["schedule"], run["id"]) for run in beat.ledger.runs_of("etl")]
    in_order = [run_id for _, _, run_id in sorted(recorded)]
    sent = [message["id"] for message in beat.messages()]
    assert len(sent) >= 15
    assert sent == in_order[: len(sent)]


def test_a_delayed_run_is_not_overtaken_by_a_catch_up(redis_url: str, clock: FakeClock) -> None:
    entries: dict[str, Any] = {"etl": ("0 * * * *", JITTER)}
    beat = Beat(redis_url, clock, entries)
    beat.tick()
    while clock.now().strftime("%H:%M") != "10:01":
        clock.advance(minutes=1)
        beat.tick()
        finish_all(beat)
    assert [run["state"] for run in beat.ledger.runs_of("etl")] == ["succeeded", "waiting"]
    beat.engine.resign()
    clock.set("2026-02-07T12:11:00Z")

    beat = Beat(redis_url, clock, entries)
    for _ in range(5):
        beat.tick()
        finish_all(beat)

    assert [slot[11:16] for slot in beat.sent()] == ["09:00", "10:00", "11:00", "12:00"]


def test_the_end_of_a_run_does_not_release_what_is_behind_a_delayed_one(
    redis_url: str, clock: FakeClock
) -> None:
    beat = Beat(redis_url, clock, {"etl": (["0 * * * *", "0 * * * *"], JITTER)})
    beat.tick()
    clock.set("2026-02-07T09:00:00Z")

    beat.tick()

    waiting = beat.ledger.runs_of("etl")
    assert {(run["state"], run.get("delayed")) for run in waiting} == {("waiting", True)}
    finish_all(beat)
    assert beat.sent() == []


def test_a_delayed_run_blocks_nothing_where_runs_have_no_order(redis_url: str, clock: FakeClock) -> None:
    policy = {"window": "6h", "overlap_policy": "allow", "jitter": "50m"}
    beat = Beat(redis_url, clock, {"etl": ("0 * * * *", policy)})
    beat.tick()
    clock.set("2026-02-07T09:00:00Z")
    beat.tick()
    assert beat.sent() == []

    beat.run_for(seconds=3600, step=60)

    assert [slot[11:16] for slot in beat.sent()][:1] == ["09:00"]


def test_a_jitter_never_goes_past_the_entrys_next_slot(redis_url: str, clock: FakeClock) -> None:
    beat = Beat(
        redis_url, clock, {"etl": (["0 * * * *", "5 * * * *"], {**JITTER, "overlap_policy": "allow"})}
    )
    beat.tick()

    for _ in range(6 * 60):
        clock.advance(minutes=1)
        beat.tick()

    for run in beat.ledger.runs_of("etl"):
        if "queued" in run and to_rfc3339(run["slot"])[14:16] == "00":
            assert run["queued"] - run["slot"] <= 5 * 60_000


# -- attempts of backfills -------------------------------------------------------------------


def test_a_run_of_a_backfill_is_attempted_as_often_as_its_entry_says(
    redis_url: str, desk_clock: FakeClock
) -> None:
    policy = {"window": "2d", "max_attempts": 3, "retry_delay": "1m"}
    project = Project(redis_url, desk_clock, {"e": HOURLY}, {"e": policy})
    project.tick()
    made = project.json(
        "backfill", "create", "e", "--start", "2026-02-06T01:00Z", "--end", "2026-02-06T01:00Z", "-f"
    )
    lane = Backfill.lane_of(made["id"])

    with project.beat() as beat:
        beat.tick()
        states = []
        for _ in range(3):
            project.execute(lane, state=RunState.FAILED, error="boom")
            states.append(project.json("runs", "e")["runs"][0]["state"])
            with project.operator() as operator:  # its delay is over, by the server's clock
                for run_id in operator.store.client.zrange(operator.store.keys.retries, 0, -1):
                    operator.store.client.zadd(operator.store.keys.retries, {run_id: 0})
            beat.tick()

    assert states == ["waiting", "waiting", "dead"]
