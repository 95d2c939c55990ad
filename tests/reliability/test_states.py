"""Bad states of schedules, clocks and servers, each with what has to become of it."""

from __future__ import annotations

import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery.schedules import crontab, schedule

from celery_catchup.beat.celery_schedules import timetable_of
from celery_catchup.config.exclusions import compile_exclusions
from celery_catchup.config.policy import Policy
from celery_catchup.config.settings import SHORTEST_LEASE, Settings
from celery_catchup.engine import Declared
from celery_catchup.events import CatchupStarted, EntryDrifted, StateSuspect
from celery_catchup.model import to_instant
from celery_catchup.planning.entry import Entry, EntryState, Schedule
from celery_catchup.planning.planner import plan, survey
from celery_catchup.planning.scope import replay
from celery_catchup.store import Keys, Leadership, Store, connect
from celery_catchup.store.states import SCHEMA
from celery_catchup.testing import FakeClock
from celery_catchup.timetables.cron_dialects import parse_cron
from tests.integration.beats import Beat, record
from tests.integration.servers import a_scheduler, a_server

NINE, TEN, NOON = "2026-02-07T09:04:00Z", "2026-02-07T10:00:00Z", "2026-02-07T12:00:30Z"
ALLOW = {"window": "6h", "overlap_policy": "allow"}
ETL = {"etl": ("0 * * * *", ALLOW)}
DAY = to_instant(FakeClock("2026-02-01T00:00:00Z").now())
MONTH = DAY + 28 * 86_400_000


def hours(*numbers: int) -> list[str]:
    return [f"2026-02-07T{hour:02}:00:00Z" for hour in numbers]


# -- schedules -----------------------------------------------------------------------------------


def test_a_reversed_range_goes_over_the_end_and_a_long_step_leaves_the_first_value() -> None:
    evening = parse_cron("0 22-2 * * *").slots(DAY - 1, DAY + 86_400_000 - 1)
    hourly = parse_cron("*/90 * * * *").count(DAY - 1, DAY + 86_400_000 - 1)

    assert [(slot - DAY) // 3_600_000 for slot in evening] == [0, 1, 2, 22, 23]
    assert hourly == 24


def test_both_day_fields_are_either_in_a_cron_string_and_both_in_a_crontab() -> None:
    either = parse_cron("0 0 13 * 5").count(DAY, MONTH)
    both = timetable_of(
        crontab(minute=0, hour=0, day_of_month=13, day_of_week=5), zone=UTC, anchor=0, name="x"
    ).count(DAY, MONTH)

    assert (either, both) == (4, 1)  # February 2026: four Fridays, one of them the 13th


def test_a_schedule_with_a_policy_faster_than_beat_looks_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fast = {"etl": {"task": "proj.etl", "schedule": 0.0001}}
    with (
        pytest.raises(SystemExit) as ended,
        a_scheduler("redis://127.0.0.1:1/0", FakeClock(), beat_schedule=fast),
    ):
        pass

    assert ended.value.code == 2
    assert "beat_schedule.etl.schedule" in capsys.readouterr().err


def test_an_interval_keeps_the_phase_of_its_first_sight_over_a_restart(redis_url: str) -> None:
    clock = FakeClock("2026-02-07T09:05:07Z")
    every = {"etl": {"task": "proj.etl", "schedule": timedelta(minutes=10)}}
    for moment in ("09:05:07", "09:15:07", "09:31:00"):
        clock.set(f"2026-02-07T{moment}Z")
        with a_scheduler(redis_url, clock, beat_schedule=every) as scheduler:
            scheduler.tick()
    beat = Beat(redis_url, clock, {})

    found: Any = beat.client.zrange(Keys("proj").runs_of("etl"), 0, -1, withscores=True)
    phase = {(score - to_instant(FakeClock("2026-02-07T09:05:07Z").now())) % 600_000 for _, score in found}
    assert len(found) == 2
    assert phase == {0}


class Unsteppable(schedule):
    """A schedule of the user's own that asks a clock of its own."""

    def remaining_estimate(self, last_run_at: Any) -> timedelta:
        return timedelta(seconds=60 - time.time() % 60)

    def is_due(self, last_run_at: Any) -> tuple[bool, float]:
        return time.time() % 60 < 1, 60 - time.time() % 60


def test_a_schedule_that_cannot_be_replayed_runs_as_under_celery_and_that_is_said(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    own = {"etl": {"task": "proj.etl", "schedule": Unsteppable(60)}}
    with a_scheduler(redis_url, FakeClock(), beat_schedule=own) as scheduler:
        scheduler.tick()

        assert scheduler._unmanaged is not None
        assert list(scheduler._unmanaged.entries) == ["etl"]
    assert [r.levelname for r in caplog.records if "Catch-up is off" in r.getMessage()] == ["WARNING"]


def test_zone_rules_that_change_while_beat_is_down_give_new_slots_and_repeat_no_run(redis_url: str) -> None:
    clock = FakeClock(NINE)

    def beat(zone: str) -> Beat:
        made = Beat(redis_url, clock, {})

        def build(_: int) -> Entry:
            return Entry(
                "etl",
                (Schedule(parse_cron("0 11,12,13 * * *", zone=ZoneInfo(zone))),),
                Policy.from_raw(ALLOW, where="etl"),
            )

        made.engine._declared = {"etl": Declared("etl", "proj.etl", "0 11,12,13 * * *", build)}
        made.engine.records = dict(map(record, made.engine.declared))
        return made

    first = beat("Etc/GMT-1")  # 10:00, 11:00, 12:00 UTC
    first.tick()
    clock.set(TEN)
    first.tick()
    first.engine.resign()
    clock.set(NOON)
    second = beat("Etc/GMT-2")  # by the new rules 09:00, 10:00, 11:00 UTC
    second.tick()

    assert second.sent() == hours(10, 11)
    assert len({message["id"] for message in second.messages()}) == 2


def test_a_changed_schedule_is_told_with_the_number_of_slots_it_makes(redis_url: str) -> None:
    clock = FakeClock(NINE)
    Beat(redis_url, clock, ETL).tick()
    Beat(redis_url, clock, {}).client.delete(Keys("test").leader)
    clock.set(NOON)
    minutely = Beat(redis_url, clock, {"etl": ("* * * * *", {**ALLOW, "max_runs": 5})})
    minutely.tick()

    assert [event.entry for event in minutely.told(EntryDrifted)] == ["etl"]
    assert [event.candidates for event in minutely.told(CatchupStarted)] == [176]


def test_a_task_that_beat_does_not_know_is_sent_all_the_same(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock(NINE)
    with a_scheduler(redis_url, clock) as scheduler:
        assert "proj.etl" not in scheduler.app.tasks
        scheduler.tick()
        clock.set(TEN)
        scheduler.tick()
    beat = Beat(redis_url, clock, {})

    assert beat.client.llen("celery") == 1
    assert [r for r in caplog.records if r.levelname in ("WARNING", "ERROR")] == []


# -- leases and clocks ---------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [int(SHORTEST_LEASE.total_seconds()), 10, 60])
def test_no_call_takes_longer_than_a_third_of_the_lease(seconds: int) -> None:
    settings = Settings.read({"catchup_lease_ttl": f"{seconds}s"})
    client = connect("redis://127.0.0.1:1/0", patience=settings.lease_ttl.total_seconds() / 3)
    place = client.connection_pool.connection_kwargs

    assert max(place["socket_timeout"], place["socket_connect_timeout"]) <= seconds / 3
    assert place["retry"]._retries == 0
    client.close()


def test_two_beats_of_one_process_on_one_host_have_names_of_their_own(redis_url: str) -> None:
    client = connect(redis_url)
    store = Store(client, "x")
    owners = {Leadership(store, clock=FakeClock(), ttl_ms=10_000).owner for _ in range(100)}

    assert len(owners) == 100
    client.close()


@pytest.mark.parametrize("jump", [3600, -3600, 30, -30])
def test_a_clock_that_is_set_while_beat_runs_makes_nothing_early_and_nothing_twice(
    redis_url: str, jump: int
) -> None:
    clock = FakeClock(NINE)
    beat = Beat(redis_url, clock, ETL)
    beat.tick()
    beat.run_for(seconds=3600, step=60)
    clock.set(clock.now() + timedelta(seconds=jump))
    beat.run_for(seconds=2 * 3600 + 60, step=60)

    sent = beat.sent("etl")
    assert len(sent) == len(set(sent))
    assert sent == sorted(sent)
    latest = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    assert all(slot <= latest for slot in sent)
    assert sent[0] == TEN


@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_the_servers_clock_has_no_say_in_who_leads(redis_url: str, hours: int) -> None:
    clock = FakeClock(NINE)
    leader, standby = Beat(redis_url, clock, ETL), Beat(redis_url, clock, ETL)
    leader.tick()
    record: Any = leader.client.hgetall(leader.keys.leader)

    # Its only time tells two renewals apart, and it does not expire: no clock but the observer's ends it.
    assert set(record) == {b"owner", b"epoch", b"beat", b"at", b"ttl_ms"}
    leader.client.hset(leader.keys.leader, "at", str(float(record[b"at"]) + 3600 * hours))
    assert leader.client.ttl(leader.keys.leader) == -1
    assert standby.tick() is False
    clock.advance(seconds=11)
    assert standby.tick() is True


def test_a_watermark_a_few_seconds_in_the_future_is_the_clock_of_another_host(redis_url: str) -> None:
    clock = FakeClock(NINE)
    beat = Beat(redis_url, clock, ETL)
    beat.tick()
    ahead = beat.engine.now() + 5000
    beat.client.hset(beat.keys.decided, "etl", ahead)
    beat.client.incr(beat.keys.version)
    beat.tick()
    clock.set(TEN)
    beat.tick()

    assert beat.told(StateSuspect) == []
    assert beat.sent("etl") == [TEN]


@pytest.mark.parametrize("value", ["-1", "253402300800000", "1801612800000"])
def test_a_watermark_of_another_age_is_said_and_the_entry_goes_on_with_its_next_slot(
    redis_url: str, value: str
) -> None:
    clock = FakeClock(NINE)
    beat = Beat(redis_url, clock, {**ETL, "other": ETL["etl"]})
    beat.tick()
    beat.client.hset(beat.keys.decided, "etl", value)
    beat.client.incr(beat.keys.version)
    clock.set("2026-02-07T09:59:00Z")
    beat.tick()
    clock.set(TEN)
    beat.tick()

    assert len(beat.told(StateSuspect)) == 1
    assert (beat.sent("etl"), beat.sent("other")) == ([TEN], [TEN])


# -- servers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("away", "slots"),
    [(timedelta(seconds=2), 1), (timedelta(minutes=10), 1), (timedelta(hours=3), 3)],
    ids=["2 s", "10 min", "3 h"],
)
def test_not_one_slot_is_lost_however_long_redis_is_away(tmp_path: Path, away: timedelta, slots: int) -> None:
    clock = FakeClock("2026-02-07T09:59:59Z")
    with a_server(tmp_path, appendonly="yes", appendfsync="always") as server:
        with a_scheduler(server.url(), clock) as scheduler:
            scheduler.tick()
            server.kill()
            clock.advance(seconds=away.total_seconds())
            waits = [scheduler.tick() for _ in range(3)]
            server.start()
            for _ in range(3):
                scheduler.tick()
        with server.admin() as admin:
            count = admin.llen("celery")

    assert min(waits) > 0.5
    assert count == slots


def test_state_without_a_mark_of_its_version_is_marked_by_the_leader_once(redis_url: str) -> None:
    clock = FakeClock(NINE)
    beat = Beat(redis_url, clock, ETL)
    beat.tick()
    beat.client.hdel(beat.keys.meta, "schema", "declares")
    beat.engine.resign()
    clock.set(NOON)

    for _ in range(2):  # the first one is killed before it has done anything else
        successor = Beat(redis_url, clock, ETL)
        successor.client.delete(successor.keys.leader)
        successor.engine.lead(successor.engine.now())
    successor.tick()

    assert successor.client.hget(successor.keys.meta, "schema") == str(SCHEMA).encode()
    assert successor.sent("etl") == hours(10, 11, 12)


# -- a great deal --------------------------------------------------------------------------------


def test_five_years_of_minutes_are_planned_in_no_time_and_no_memory() -> None:
    policy = Policy.from_raw({"window": "3650d", "select": "latest"}, where="x")
    entry = Entry("etl", (Schedule(parse_cron("* * * * *")),), policy)
    now = to_instant(FakeClock("2031-02-07T00:00:00Z").now())
    state = EntryState(first_seen_at=now - 2_628_000 * 60_000)
    tracemalloc.start()
    begun = time.perf_counter()

    result = plan(entry, state, replay(entry, state, scheduler_watermark=state.first_seen_at, now=now))

    seconds, peak = time.perf_counter() - begun, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(result.runs) + result.skipped == 2_628_000
    assert len(result.runs) == 1
    assert len(result.skips) == 1
    assert seconds < 2
    assert peak < 50 * 2**20


@pytest.mark.parametrize(("select", "overlap"), [("all", "skip"), ("latest", "all"), ("all", "all")])
def test_five_years_of_minutes_with_a_thousand_exclusions_are_planned_in_half_a_second(
    select: str, overlap: str
) -> None:
    start = datetime(2026, 2, 7, tzinfo=UTC)
    nights = [start + timedelta(hours=40 * number) for number in range(1000)]
    exclude = [f"{one:%Y-%m-%dT%H:%M}..{one + timedelta(hours=5):%Y-%m-%dT%H:%M}" for one in nights]
    raw = {"window": "3650d", "select": select, "overlap_policy": overlap, "exclude": exclude}
    policy = Policy.from_raw(raw, where="x")
    entry = Entry(
        "etl", (Schedule(parse_cron("* * * * *")),), policy, compile_exclusions(policy.exclude, UTC, ())
    )
    now = to_instant(FakeClock("2031-02-07T00:00:00Z").now())
    state = EntryState(first_seen_at=now - 2_628_000 * 60_000)
    begun = time.process_time()

    scope = replay(entry, state, scheduler_watermark=state.first_seen_at, now=now)
    counted = survey(entry, scope)
    result = plan(entry, state, scope, limit=500)

    assert time.process_time() - begun < 0.5
    assert counted == 2_628_000
    assert not any(entry.exclusions.contains(run.slot.at) for run in result.runs)


def test_ten_thousand_entries_start_in_time_and_cost_little_when_nothing_is_due(redis_url: str) -> None:
    clock = FakeClock(NINE)
    begun = time.process_time()  # what others do on this machine does not count
    beat = Beat(redis_url, clock, {f"entry-{number}": ETL["etl"] for number in range(10_000)})
    beat.tick()
    started = time.process_time() - begun
    begun = time.perf_counter()
    beat.tick()

    assert time.perf_counter() - begun < 1
    assert started < 5


def test_when_all_are_due_at_once_they_are_sent_in_batches_between_which_the_lease_is_renewed(
    redis_url: str,
) -> None:
    clock = FakeClock(NINE)
    beat = Beat(redis_url, clock, {f"entry-{number}": ETL["etl"] for number in range(10_000)})
    beat.tick()
    clock.set(TEN)
    counts, beats = [0], set()
    while len(counts) < 50 and counts[-1] < 10_000:
        beat.tick()
        counts.append(int(beat.client.llen("celery")))
        beats.add(beat.client.hget(beat.keys.leader, "beat"))

    batches = [after - before for before, after in pairwise(counts)]
    assert sum(batches) == 10_000
    assert max(batches) <= beat.engine.settings.batch_size
    assert len(beats) == len(batches)
