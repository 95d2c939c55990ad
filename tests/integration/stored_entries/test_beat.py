"""Stored entries under beat: seen at the next tick, without a restart, each from its creation to its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from celery_catchup.beat.scheduler import Scheduler
from celery_catchup.model import to_datetime
from celery_catchup.operations import Operator
from celery_catchup.store import EntryRecords, Keys, Ledger, States, Store, entry_records
from celery_catchup.store.entry_records import RecordChange
from celery_catchup.stored_entries.entries import Entries, entries
from celery_catchup.testing import FakeClock
from tests.integration.operating import Project

KEYS = Keys("proj")
ALL = {"window": "1d", "overlap_policy": "all"}
EVERY_MINUTE = {"task": "proj.etl", "schedule": "* * * * *"}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    found = FakeClock("2026-02-07T09:05:30Z")
    monkeypatch.setattr(Entries, "clock", found)
    monkeypatch.setattr(Operator, "clock", found)
    return found


@pytest.fixture
def project(redis_url: str, clock: FakeClock) -> Project:
    return Project(redis_url, clock, catchup_ledger_ttl="30d")


@pytest.fixture
def stored(project: Project) -> Entries:
    return entries(project.app, actor="alice")


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as found:
        yield found


@pytest.fixture
def beat(project: Project) -> Iterator[Scheduler]:
    with project.beat() as scheduler:
        scheduler.tick()
        yield scheduler


def run_for(beat: Scheduler, clock: FakeClock, *, seconds: int) -> None:
    for _ in range(seconds):
        clock.advance(seconds=1)
        beat.tick()


def slots(client: redis.Redis, entry: str) -> list[str]:
    """The slots of the entry's runs, as hours and minutes."""
    runs = Ledger(Store(client, "proj")).runs_of(entry)
    return [f"{to_datetime(run['slot']):%H:%M:%S}" for run in runs]


def test_a_new_entry_runs_from_the_next_tick_on(
    beat: Scheduler, stored: Entries, clock: FakeClock, client: redis.Redis
) -> None:
    stored.create("sync", **EVERY_MINUTE)

    run_for(beat, clock, seconds=100)

    assert slots(client, "sync") == ["09:06:00", "09:07:00"]


def test_a_change_costs_no_more_than_what_changed(
    beat: Scheduler, stored: Entries, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.apply([{**EVERY_MINUTE, "name": f"sync-{i}", "schedule": "0 0 1 1 *"} for i in range(50)])
    run_for(beat, clock, seconds=2)
    asked: list[list[str] | None] = []
    stock = States.load

    def load(self: States, *, any_schema: bool = False, names: Any = None) -> Any:
        asked.append(None if names is None else list(names))
        return stock(self, any_schema=any_schema, names=names)

    monkeypatch.setattr(States, "load", load)
    stored.update("sync-7", schedule="0 0 2 1 *")
    run_for(beat, clock, seconds=3)

    assert asked == [["sync-7"]]


def test_an_idle_tick_is_one_call(
    beat: Scheduler, stored: Entries, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.create("sync", **EVERY_MINUTE)
    run_for(beat, clock, seconds=2)
    calls: list[str] = []
    stock = Store.call
    monkeypatch.setattr(
        Store,
        "call",
        lambda self, name, *args, **more: calls.append(name) or stock(self, name, *args, **more),  # type: ignore[func-returns-value]
    )

    run_for(beat, clock, seconds=3)

    assert calls == ["lead"] * 3


def test_slots_between_the_creation_and_the_next_tick_run(
    beat: Scheduler, stored: Entries, clock: FakeClock, client: redis.Redis
) -> None:
    clock.advance(seconds=29, milliseconds=900)  # 09:05:59.9
    stored.create("sync", **EVERY_MINUTE)
    clock.advance(seconds=1)
    beat.tick()

    assert slots(client, "sync") == ["09:06:00"]


def test_slots_since_the_creation_survive_a_leader_that_dies_before_it_decides_them(
    project: Project, stored: Entries, clock: FakeClock, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    with project.beat() as beat:
        beat.tick()
        clock.advance(seconds=29, milliseconds=900)
        stored.create("sync", **EVERY_MINUTE)
        clock.advance(seconds=1)
        monkeypatch.setattr(type(beat._work.engine), "advance", lambda *_: None)
        beat.tick()
        monkeypatch.undo()
    monkeypatch.setattr(Entries, "clock", clock)
    clock.advance(seconds=1)
    project.tick()

    assert slots(client, "sync") == ["09:06:00"]


def test_an_entry_that_was_created_while_beat_was_down_is_caught_up_from_its_creation(
    project: Project, stored: Entries, clock: FakeClock, client: redis.Redis
) -> None:
    project.tick()
    clock.advance(hours=1)
    stored.create("sync", task="proj.etl", schedule="*/10 * * * *", catchup=ALL)
    clock.advance(minutes=30)
    project.tick()

    assert slots(client, "sync") == ["10:10:00", "10:20:00", "10:30:00"]


def test_a_new_schedule_is_in_force_at_once(
    beat: Scheduler, stored: Entries, clock: FakeClock, client: redis.Redis
) -> None:
    stored.create("sync", task="proj.etl", schedule="0 0 1 1 *")
    run_for(beat, clock, seconds=29)  # 09:05:59
    clock.advance(milliseconds=900)
    stored.update("sync", schedule="* * * * *")
    clock.advance(seconds=1)
    beat.tick()

    assert slots(client, "sync") == ["09:06:00"]


def test_a_deleted_entry_stops_and_keeps_its_history_and_watermark(
    beat: Scheduler, stored: Entries, clock: FakeClock, client: redis.Redis
) -> None:
    stored.create("sync", **EVERY_MINUTE)
    run_for(beat, clock, seconds=40)

    stored.delete("sync")
    run_for(beat, clock, seconds=120)

    assert slots(client, "sync") == ["09:06:00"]
    assert client.hget(KEYS.decided, "sync")
    assert "sync" not in beat.schedule


def test_an_entry_that_is_created_again_has_no_slots_from_before(
    beat: Scheduler, stored: Entries, clock: FakeClock, client: redis.Redis
) -> None:
    fields: dict[str, Any] = {**EVERY_MINUTE, "catchup": ALL}
    stored.create("sync", **fields)
    run_for(beat, clock, seconds=40)
    stored.delete("sync")
    run_for(beat, clock, seconds=120)

    stored.create("sync", **fields)
    run_for(beat, clock, seconds=60)

    assert slots(client, "sync") == ["09:06:00", "09:09:00"]


def test_an_interval_that_is_created_again_counts_from_its_creation(
    beat: Scheduler, stored: Entries, clock: FakeClock, client: redis.Redis
) -> None:
    fields: dict[str, Any] = {"task": "proj.etl", "schedule": {"every": "1m"}, "catchup": ALL}
    stored.create("sync", **fields)
    run_for(beat, clock, seconds=70)
    stored.delete("sync")
    run_for(beat, clock, seconds=30)  # 09:07:10

    stored.create("sync", **fields)
    run_for(beat, clock, seconds=70)

    assert slots(client, "sync") == ["09:06:30", "09:08:10"]


def test_another_schedule_of_an_entry_that_is_created_again_is_no_change(
    project: Project, stored: Entries, clock: FakeClock, client: redis.Redis
) -> None:
    policy = {**ALL, "on_schedule_change": "from_now"}
    stored.create("sync", task="proj.etl", schedule="0 0 1 1 *", catchup=policy)
    project.tick()
    stored.delete("sync")
    project.tick()

    stored.create("sync", task="proj.etl", schedule="*/10 * * * *", catchup=policy)
    clock.advance(minutes=30)
    project.tick()

    assert slots(client, "sync") == ["09:10:00", "09:20:00", "09:30:00"]


def test_a_disabled_entry_rests_until_it_is_enabled(
    beat: Scheduler, stored: Entries, clock: FakeClock, client: redis.Redis
) -> None:
    stored.create("sync", **EVERY_MINUTE, enabled=False)
    run_for(beat, clock, seconds=40)
    stored.update("sync", enabled=True)
    run_for(beat, clock, seconds=60)
    stored.update("sync", enabled=False)
    run_for(beat, clock, seconds=60)

    assert slots(client, "sync") == ["09:07:00"]


def test_a_standby_knows_the_entries_before_it_takes_over(
    project: Project, stored: Entries, clock: FakeClock, client: redis.Redis
) -> None:
    with project.beat() as leader, project.beat() as standby:
        leader.tick()
        standby.tick()
        stored.create("sync", **EVERY_MINUTE)
        run_for(leader, clock, seconds=1)
        standby.tick()
        assert "sync" in standby.schedule
        stored.create("late", **EVERY_MINUTE)
        leader.tick()
        leader.close()
        clock.advance(seconds=40)
        standby.tick()

    assert slots(client, "sync") == slots(client, "late") == ["09:06:00"]
    assert not client.hlen(KEYS.left_off)


def test_an_entry_that_cannot_be_used_fails_alone(
    beat: Scheduler, project: Project, stored: Entries, clock: FakeClock, client: redis.Redis
) -> None:
    good = stored.create("good", **EVERY_MINUTE)
    records = EntryRecords(Store(client, "proj"))
    for name, text in (("torn", "{"), ("odd", '{"task":"t","schedule":"x y"}')):
        records.write([RecordChange(name, 0, text)], change=None, now=0)

    run_for(beat, clock, seconds=40)

    assert slots(client, "good") == ["09:06:00"]
    failing = {one["entry"]: one["reason"] for one in project.json("status")["failing"]}
    assert failing.keys() == {"torn", "odd"}
    assert "entries.odd.schedule" in failing["odd"]
    records.write([RecordChange("torn", good.revision + 1)], change=None, now=0)
    run_for(beat, clock, seconds=2)
    assert [one["entry"] for one in project.json("status")["failing"]] == ["odd"]


def test_a_declared_entry_wins_over_a_stored_one_of_its_name(
    project: Project, stored: Entries, clock: FakeClock, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    stored.create("sync", **EVERY_MINUTE)
    project.app.conf.beat_schedule["sync"] = {"task": "proj.other", "schedule": "* * * * *", "catchup": "1h"}
    with caplog.at_level(logging.WARNING), project.beat() as beat:
        beat.tick()
        run_for(beat, clock, seconds=40)
        assert beat.schedule["sync"].task == "proj.other"
        assert "a declared entry has the name 'sync', and wins" in caplog.text

        del beat.schedule["sync"]
        run_for(beat, clock, seconds=60)
        assert beat.schedule["sync"].task == "proj.etl"

    runs = Ledger(Store(client, "proj")).runs_of("sync")
    assert [run["task"] for run in runs] == ["proj.other", "proj.etl"]


def test_operators_see_stored_entries_as_they_see_declared_ones(
    project: Project, stored: Entries, clock: FakeClock
) -> None:
    stored.create("sync", **EVERY_MINUTE, catchup=ALL)
    project.tick()
    clock.advance(minutes=3)

    assert "sync" in project.text("entries")
    assert "3 runs would be dispatched" in project.text("preview", "sync")
    project.catchup("pause", "sync")
    project.tick()
    assert project.json("entries")["entries"][1]["paused"]
    assert project.json("drift", code=0)["differences"] == []


def test_a_one_off_runs_once_and_is_gone_after_the_ledgers_lifetime(
    project: Project, stored: Entries, clock: FakeClock, client: redis.Redis
) -> None:
    stored.create("once", task="proj.etl", schedule={"at": "2026-02-07T11:00+01:00"})
    stored.update("once", schedule={"at": "2026-02-07T12:00+01:00"})
    project.tick()
    clock.advance(hours=4)  # beat is down meanwhile
    project.tick()
    project.tick()
    stored.update("once", description="It has run, and may still be described.")

    assert slots(client, "once") == ["11:00:00"]
    clock.advance(days=29)
    with project.beat() as beat:
        beat.tick()
        engine = beat._work.engine

        def sweep() -> None:
            month = engine.now() - 30 * 86_400_000
            engine.services.stored_entries.delete_finished(["once"], before=month)

        sweep()
        assert stored.list()
        clock.advance(days=2)
        sweep()
    assert stored.list() == []
    assert slots(client, "once") == ["11:00:00"]


def test_an_operator_follows_changes_and_reads_only_what_changed(
    project: Project, stored: Entries, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.apply([{**EVERY_MINUTE, "name": name} for name in ("a", "b", "c")])
    with project.operator() as first:
        assert list(first.schedule) == ["hourly-etl", "a", "b", "c"]
        assert first.follow_stored() is first
        stored.update("a", task="proj.other")
        stored.delete("b")
        stored.create("d", **EVERY_MINUTE)
        monkeypatch.setattr(EntryRecords, "read_all", None)

        second = first.follow_stored()

        assert {name: entry.task for name, entry in second.schedule.items()} == {
            "hourly-etl": "proj.etl",
            "c": "proj.etl",
            "a": "proj.other",
            "d": "proj.etl",
        }
        assert second.declared.keys() == second.configuration.policies.keys() == set(second.schedule)
        assert {one.name for one in second.every_entry} == set(second.schedule)


def test_warnings_about_many_entries_are_no_flood(
    beat: Scheduler, stored: Entries, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    short = {"task": "proj.etl", "catchup": {"window": "6h"}}
    days = [{**short, "name": f"sync-{i}", "schedule": f"0 0 {i + 1} 1 *"} for i in range(28)]
    more = [{**short, "name": f"sync-0-{i}", "schedule": "0 0 1 1 *"} for i in range(5)]
    stored.apply([*days, *more])

    with caplog.at_level(logging.WARNING):
        run_for(beat, clock, seconds=2)

    warned = [line for line in caplog.messages if "Configuration warning" in line]
    assert len(warned) == 21
    assert "5 more stored entries are like it" in warned[0]
    assert "8 more about stored entries" in warned[-1]


def test_entries_that_share_schedule_and_policy_run_each_with_its_own_task_and_arguments(
    beat: Scheduler, stored: Entries, clock: FakeClock, client: redis.Redis
) -> None:
    shared = {"schedule": {"every": "1m"}, "catchup": ALL}
    stored.apply(
        [
            {**shared, "name": "a", "task": "crm.sync", "kwargs": {"customer": "a"}},
            {**shared, "name": "b", "task": "crm.report", "kwargs": {"customer": "b"}},
        ]
    )
    run_for(beat, clock, seconds=10)
    stored.create("c", task="crm.sync", **shared)

    run_for(beat, clock, seconds=70)

    assert [beat.schedule[name].kwargs for name in "ab"] == [{"customer": "a"}, {"customer": "b"}]
    tasks = {name: {run["task"] for run in Ledger(Store(client, "proj")).runs_of(name)} for name in "abc"}
    assert tasks == {"a": {"crm.sync"}, "b": {"crm.report"}, "c": {"crm.sync"}}
    assert slots(client, "a") == slots(client, "b") == ["09:06:30"]
    assert slots(client, "c") == ["09:06:40"]


def test_a_mistake_that_alike_entries_share_is_reported_for_each(
    beat: Scheduler, stored: Entries, clock: FakeClock, client: redis.Redis
) -> None:
    records = EntryRecords(Store(client, "proj"))
    wrong = '{"task":"proj.etl","schedule":"61 * * * *"}'
    records.write([RecordChange(name, 0, wrong) for name in ("a", "a.b", "c")], change=None, now=0)
    stored.create("good", **EVERY_MINUTE)

    run_for(beat, clock, seconds=100)

    failing = States(Store(client, "proj")).failing()
    assert sorted(failing) == ["a", "a.b", "c"]
    assert "entries.a.b.schedule" in failing["a.b"]
    assert slots(client, "good") == ["09:06:00", "09:07:00"]


# -- changes while the leader decides ----------------------------------------------------------


def test_an_entry_that_is_lost_with_the_state_does_not_fail_any_more(
    beat: Scheduler, project: Project, stored: Entries, clock: FakeClock, client: redis.Redis
) -> None:
    EntryRecords(Store(client, "proj")).write([RecordChange("torn", 0, "{")], change=None, now=0)
    run_for(beat, clock, seconds=2)
    assert [one["entry"] for one in project.json("status")["failing"]] == ["torn"]

    client.flushall()
    run_for(beat, clock, seconds=2)

    assert project.json("status")["failing"] == []


def raises(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def during_the_next_commit(monkeypatch: pytest.MonkeyPatch, *actions: Callable[[], object]) -> None:
    """Do something between the leader's plan and its commit."""
    stock, left = Ledger.start_commit, list(actions)

    def commit(self: Ledger, *args: Any, **more: Any) -> Any:
        while left:
            left.pop(0)()
        return stock(self, *args, **more)

    monkeypatch.setattr(Ledger, "start_commit", commit)


def test_a_pause_holds_that_comes_while_the_first_slot_of_a_new_entry_is_decided(
    project: Project,
    beat: Scheduler,
    stored: Entries,
    clock: FakeClock,
    client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored.create("sync", **EVERY_MINUTE)
    clock.advance(seconds=31)
    during_the_next_commit(monkeypatch, lambda: project.catchup("pause", "sync"))
    beat.tick()

    run_for(beat, clock, seconds=120)

    assert slots(client, "sync") == ["09:06:00"]


def test_a_pause_holds_that_comes_while_a_resume_is_decided(
    project: Project, beat: Scheduler, clock: FakeClock, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.catchup("pause", "hourly-etl")
    beat.tick()
    clock.advance(hours=1)
    project.catchup("resume", "hourly-etl")
    during_the_next_commit(monkeypatch, lambda: project.catchup("pause", "hourly-etl"))
    beat.tick()

    clock.advance(hours=1)
    beat.tick()

    assert slots(client, "hourly-etl") == ["10:00:00"]


def test_a_new_schedule_that_comes_while_a_new_entry_is_decided_loses_no_slot(
    beat: Scheduler, stored: Entries, clock: FakeClock, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.create("sync", task="proj.etl", schedule="0 0 1 1 *")
    clock.advance(seconds=29, milliseconds=900)  # 09:05:59.9
    during_the_next_commit(monkeypatch, lambda: stored.update("sync", schedule="* * * * *"))
    beat.tick()
    clock.advance(seconds=1)
    beat.tick()

    assert slots(client, "sync") == ["09:06:00"]


def test_an_entry_that_is_created_again_during_its_catch_up_has_no_slots_from_before(
    redis_url: str, clock: FakeClock, client: redis.Redis
) -> None:
    project = Project(redis_url, clock, catchup_ledger_ttl="30d", catchup_rate_limit="10s")
    stored, fields = entries(project.app), {**EVERY_MINUTE, "catchup": ALL}
    stored.create("sync", **fields)
    clock.advance(minutes=10)  # 09:15:30; slots from 09:06 on
    with project.beat() as beat:
        beat.tick()
        clock.advance(minutes=5)
        stored.delete("sync")
        stored.create("sync", **fields)
        run_for(beat, clock, seconds=60)

    assert slots(client, "sync") == ["09:06:00", "09:21:00"]


def test_a_pause_during_a_catch_up_that_no_tick_has_seen_is_discarded(
    redis_url: str, clock: FakeClock, client: redis.Redis
) -> None:
    project = Project(redis_url, clock, catchup_ledger_ttl="30d", catchup_rate_limit="10s")
    policy = {**ALL, "on_resume": "discard"}
    entries(project.app).create("sync", **EVERY_MINUTE, catchup=policy)
    clock.advance(minutes=3)  # 09:08:30
    with project.beat() as beat:
        beat.tick()
        clock.advance(seconds=1)
        project.catchup("pause", "sync")
        clock.advance(minutes=5)
        project.catchup("resume", "sync")
        run_for(beat, clock, seconds=60)

    assert slots(client, "sync") == ["09:06:00", "09:07:00", "09:08:00", "09:14:00"]


def test_a_change_is_in_force_although_the_entry_changes_again_while_it_is_read(
    beat: Scheduler, stored: Entries, clock: FakeClock, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.create("sync", **EVERY_MINUTE)
    run_for(beat, clock, seconds=29)  # 09:05:59
    stored.update("sync", enabled=False)
    stock, again = EntryRecords.changed, [lambda: stored.update("sync", description="x")]

    def changed(self: EntryRecords, after: int, until: int) -> list[str]:
        while again:
            again.pop()()
        return stock(self, after, until)

    monkeypatch.setattr(EntryRecords, "changed", changed)
    run_for(beat, clock, seconds=2)

    assert slots(client, "sync") == []


def test_a_change_of_many_entries_is_read_whole_while_one_of_them_changes_again(
    stored: Entries, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_records, "AT_ONCE", 2)
    names = [f"sync-{i}" for i in range(7)]
    stored.apply([{**EVERY_MINUTE, "name": name} for name in names])
    stock, changes = client.zrangebyscore, [*names[:2]]

    def zrangebyscore(*args: Any, **more: Any) -> Any:
        if changes:
            stored.update(changes.pop(), description="changed")
        return stock(*args, **more)

    monkeypatch.setattr(client, "zrangebyscore", zrangebyscore)
    found = EntryRecords(Store(client, "proj")).changed(0, 1)

    assert set(found) >= set(names[2:])


def test_a_loss_of_state_is_noticed_if_the_entries_cannot_be_read_at_that_moment(
    project: Project,
    beat: Scheduler,
    stored: Entries,
    clock: FakeClock,
    client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stored.create("sync", **EVERY_MINUTE)
    run_for(beat, clock, seconds=40)
    client.flushall()
    with monkeypatch.context() as broken:
        broken.setattr(EntryRecords, "read_all", raises(redis.ConnectionError("reset")))
        stored.create("other", **EVERY_MINUTE)
        run_for(beat, clock, seconds=1)
    run_for(beat, clock, seconds=1)

    assert "the server has forgotten what it had acknowledged" in caplog.text
    assert set(beat._work.engine.services.stored_entries.entries) == {"other"}


def test_a_changed_entry_does_not_wait_for_those_that_did_not_change(
    redis_url: str, clock: FakeClock, client: redis.Redis
) -> None:
    policy = {"window": "1h", "overlap_policy": "allow"}
    every = {"task": "proj.etl", "schedule": {"every": "1s"}, "catchup": policy}
    project = Project(redis_url, clock, catchup_ledger_ttl="30d", catchup_batch_size=2)
    stored = entries(project.app)
    stored.apply([{**every, "name": name} for name in ("a", "b", "changed")])
    with project.beat() as beat:
        run_for(beat, clock, seconds=2)
        project.catchup("pause", "changed")
        project.catchup("resume", "changed")
        before = len(slots(client, "changed"))
        run_for(beat, clock, seconds=10)  # each tick has time for two of the three

        counts = [len(slots(client, name)) for name in ("a", "b", "changed")]

    assert before < counts[2]
    assert max(counts) - min(counts) <= 3
