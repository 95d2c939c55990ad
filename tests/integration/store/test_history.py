"""What the store keeps for people: attempts, hours, outages, the last catch-up; all of it bounded."""

from __future__ import annotations

from datetime import timedelta

import pytest

from celery_catchup.model import RunState, SkipReason, Trigger, to_instant
from celery_catchup.store.history import last_catchup
from celery_catchup.testing import FakeClock
from tests.integration.beats import by_tester
from tests.integration.operating import ALL, HOURLY, Project

KEPT_HOURS = 192
"""Eight days."""


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    """Beat was down from 09:05 to 12:02; nothing was executed yet."""
    project = Project(redis_url, desk_clock)
    project.tick()
    desk_clock.set("2026-02-07T12:02:00Z")
    project.tick()
    return project


def ms(text: str) -> int:
    return to_instant(FakeClock(text).now())


# -- hours -----------------------------------------------------------------------------------


def test_an_hour_counts_what_was_dispatched_and_skipped_and_the_largest_lag(
    project: Project, desk_clock: FakeClock
) -> None:
    for _ in range(3):
        project.execute("hourly-etl")
        desk_clock.advance(seconds=1)

    with project.operator() as operator:
        tally = operator.history.counts(since=operator.now())
        own = operator.history.counts_of(["hourly-etl", "other"], since=operator.now(), now=operator.now())

    assert tally.dispatched(Trigger.CATCHUP) == tally.missed == 3
    assert tally.dispatched(Trigger.SCHEDULER) == 0
    assert tally.lag == ms("2026-02-07T12:02:00Z") - ms("2026-02-07T10:00:00Z")
    assert own["hourly-etl"] == tally
    assert own["other"].missed == 0
    assert own["other"].lag is None


def test_what_an_hour_counts_is_also_counted_for_good(project: Project, desk_clock: FakeClock) -> None:
    with project.operator() as operator:
        hour = operator.history.counts(since=operator.now())
        before = operator.history.ever()

        desk_clock.advance(hours=KEPT_HOURS + 1)
        project.execute("hourly-etl")
        ever = operator.history.ever()

        assert operator.history.counts(since=operator.now()).dispatched(Trigger.CATCHUP) == 0
    assert before == dict(hour.counts)
    late = operator.now() - ms("2026-02-07T10:00:00Z")
    week_and_more = {"lag:catchup:inf": 1, "lag_ms:catchup": late}
    assert ever == before | week_and_more | {"ended:succeeded": 1}


def test_slots_that_are_not_recovered_are_counted_by_their_reason(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = Project(redis_url, desk_clock, policies={"hourly-etl": {"window": "90m"}})
    project.tick()
    desk_clock.set("2026-02-07T13:02:00Z")
    project.tick()

    with project.operator() as operator:
        tally = operator.history.counts(since=operator.now())

    assert tally.skipped(SkipReason.EXPIRED) == 2
    assert tally.skipped(SkipReason.GUARD_BLOCKED) == 1
    assert tally.missed == 4


def test_hours_before_the_range_are_left_out_and_a_ring_of_eight_days_forgets_the_oldest(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = Project(
        redis_url, desk_clock, {"e": {"task": "proj.etl", "schedule": timedelta(hours=1)}}, {"e": ALL}
    )
    with project.beat() as beat:
        for _ in range(KEPT_HOURS + 8):
            beat.tick()
            project.execute("e")
            desk_clock.advance(seconds=3600)

    with project.operator() as operator:
        lately = operator.history.counts(since=operator.now() - 3 * 3_600_000)
        everything = operator.history.counts(since=0)
        size = operator.store.client.hlen(operator.store.keys.hours) - len(operator.history.ever())

    assert lately.dispatched(Trigger.SCHEDULER) == 3
    assert everything.dispatched(Trigger.SCHEDULER) == size == KEPT_HOURS


DAMAGES = ("no JSON", "[]", "7", '{"hour": null}', '{"hour": 491234, "catchup": "x"}')


def test_damaged_hours_and_outages_are_ignored(project: Project, desk_clock: FakeClock) -> None:
    before = len(project.slots("hourly-etl"))
    with project.operator() as operator:
        client, keys = operator.store.client, operator.store.keys
        for damage in DAMAGES:
            desk_clock.advance(seconds=3600)
            hour = operator.now() // 3_600_000
            text = damage.replace("491234", str(hour))
            for key in (keys.hours, keys.hours_of("hourly-etl")):
                client.hset(key, str(hour % KEPT_HOURS), text)
            client.zadd(keys.outages, {text: operator.now() + 1})
            assert operator.history.counts(since=operator.now()).missed == 0
            assert operator.history.outages(since=operator.now()) == []
            project.tick()

    assert len(project.slots("hourly-etl")) == before + len(DAMAGES)


# -- outages ---------------------------------------------------------------------------------


def test_the_time_without_a_tick_is_an_outage(project: Project) -> None:
    with project.operator() as operator:
        found = operator.history.outages(since=0)
        later = operator.history.outages(since=operator.now())

    assert found == [(ms("2026-02-07T09:05:00Z"), ms("2026-02-07T12:02:00Z"))]
    assert later == []


def test_a_take_over_within_two_leases_is_not_an_outage(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, catchup_lease_ttl="10s")
    project.tick()
    desk_clock.advance(seconds=20)
    project.tick()
    desk_clock.advance(seconds=21)
    project.tick()

    with project.operator() as operator:
        assert len(operator.history.outages(since=0)) == 1


def test_the_last_two_hundred_outages_are_kept(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, policies={})
    with project.beat() as beat:
        for _ in range(205):
            beat.tick()
            desk_clock.advance(seconds=60)

    with project.operator() as operator:
        assert len(operator.history.outages(since=0)) == 200


# -- the last catch-up -----------------------------------------------------------------------


def test_the_last_catch_up_tells_its_slots_and_what_ran(project: Project) -> None:
    with project.operator() as operator:
        last = last_catchup(operator.states.scheduler())

    assert last is not None
    assert (last.first, last.last) == (ms("2026-02-07T10:00:00Z"), ms("2026-02-07T12:00:00Z"))
    assert (last.dispatched, last.skipped) == (3, 0)
    assert last.ended == ms("2026-02-07T12:02:00Z")


def test_a_catch_up_over_several_ticks_is_told_as_one(redis_url: str, desk_clock: FakeClock) -> None:
    entry = {"task": "proj.etl", "schedule": "*/10 * * * *"}
    project = Project(
        redis_url, desk_clock, {"e": entry, "f": HOURLY}, {"e": ALL, "f": "6h"}, catchup_batch_size=4
    )
    project.tick()
    desk_clock.set("2026-02-07T12:02:00Z")
    with project.beat() as beat:
        beat.tick()
        assert last_catchup(_scheduler(project)) is None
        for _ in range(8):
            beat.tick()

    last = last_catchup(_scheduler(project))
    assert last is not None
    assert (last.dispatched, last.skipped) == (19, 2)
    assert (last.first, last.last) == (ms("2026-02-07T09:10:00Z"), ms("2026-02-07T12:00:00Z"))


def test_a_scheduler_that_never_caught_up_has_no_last_catch_up() -> None:
    assert last_catchup({"watermark": "1"}) is None
    assert last_catchup({f"last_catchup_{name}": "x" for name in ("ended", "first", "last")}) is None


# -- attempts --------------------------------------------------------------------------------


def test_failed_attempts_are_remembered_with_their_run(redis_url: str, desk_clock: FakeClock) -> None:
    policy = {**ALL, "max_attempts": 2, "retry_delay": "1m"}
    project = Project(redis_url, desk_clock, policies={"hourly-etl": policy})
    project.tick()
    desk_clock.set("2026-02-07T10:00:00Z")
    project.tick()
    (run_id,) = project.execute("hourly-etl", state=RunState.FAILED, error="KeyError: 1")

    with project.operator() as operator:
        record = operator.ledger.run(run_id) or {}

    assert record["past"] == [
        {
            "attempt": 1,
            "started": ms("2026-02-07T10:00:00Z"),
            "ended": ms("2026-02-07T10:00:00Z"),
            "worker": "celery@here",
            "outcome": "failed",
            "error": "KeyError: 1",
        }
    ]


def test_a_replay_remembers_how_the_run_had_ended_and_no_more_than_twenty_attempts(
    project: Project, desk_clock: FakeClock
) -> None:
    (run_id,) = project.execute("hourly-etl", state=RunState.FAILED, error="first")
    for number in range(25):
        with project.operator() as operator:
            operator.controls.replay(run_id, change=by_tester(), entry="hourly-etl")
        desk_clock.advance(seconds=1)
        while run_id not in project.execute("hourly-etl", state=RunState.FAILED, error=f"again {number}"):
            pass

    with project.operator() as operator:
        past = (operator.ledger.run(run_id) or {})["past"]

    assert len(past) == 20
    assert [one["attempt"] for one in past] == list(range(6, 26))
    assert past[-1]["outcome"] == "dead"
    assert past[-1]["error"] == "again 23"


def _scheduler(project: Project) -> dict[str, str]:
    with project.operator() as operator:
        return dict(operator.states.scheduler())
