"""Entries: the identity of a slot's run, and which slots an entry can have."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from celery_catchup.config.exclusions import compile_exclusions
from celery_catchup.config.policy import Policy
from celery_catchup.model import RunState, Slot, to_instant
from celery_catchup.planning.entry import Entry, RecordedRun, Schedule
from celery_catchup.timetables.cron_dialects import parse_cron

TEN = to_instant(datetime(2026, 2, 7, 10, tzinfo=UTC))
HOUR = 3_600_000
HOURLY, DAILY = parse_cron("0 * * * *"), parse_cron("30 6 * * *")


def entry(*schedules: Schedule, **policy: Any) -> Entry:
    return Entry("etl", schedules, Policy.from_raw({"window": "6h", **policy}, where="etl"))


def test_a_schedule_with_an_id_keeps_its_runs_when_another_is_put_in_front_of_it() -> None:
    before = entry(Schedule(HOURLY, id="hourly"))
    after = entry(Schedule(DAILY, id="daily"), Schedule(HOURLY, id="hourly"))

    assert before.run_id("app", Slot(TEN, 0)) == after.run_id("app", Slot(TEN, 1))
    recorded = [RecordedRun(before.run_id("app", Slot(TEN, 0)), TEN, RunState.SUCCEEDED)]
    assert after.slots_of("app", recorded) == {Slot(TEN, 1): RunState.SUCCEEDED}


def test_without_an_id_the_position_counts() -> None:
    before, after = entry(Schedule(HOURLY)), entry(Schedule(DAILY), Schedule(HOURLY))

    assert before.run_id("app", Slot(TEN, 0)) != after.run_id("app", Slot(TEN, 1))


def test_an_id_that_names_the_old_position_keeps_the_runs_of_a_list_without_ids() -> None:
    before = entry(Schedule(HOURLY))
    after = entry(Schedule(DAILY, id="daily"), Schedule(HOURLY, id="0"))

    assert before.run_id("app", Slot(TEN, 0)) == after.run_id("app", Slot(TEN, 1))


def test_a_run_of_another_version_or_tenant_is_not_the_slots_run() -> None:
    old, new = entry(Schedule(HOURLY), logic_version="1"), entry(Schedule(HOURLY), logic_version="2")

    recorded = [RecordedRun(old.run_id("app", Slot(TEN)), TEN, RunState.SUCCEEDED)]
    assert new.slots_of("app", recorded) == {}
    assert old.version_fields == {"logic_version": "1"}


def test_an_entry_has_only_slots_on_its_timetable_and_between_its_dates() -> None:
    dated = entry(Schedule(HOURLY), start_date="2026-02-07T10:00Z", end_date="2026-02-07T11:00Z")
    hour = 3_600_000

    assert [dated.has_slot(Slot(TEN + shift)) for shift in (-hour, 0, 1, hour, 2 * hour)] == [
        False,
        True,
        False,
        True,
        False,
    ]
    assert dated.next_after(0, TEN - 9 * hour) == TEN
    assert dated.next_after(0, TEN + hour) is None


def test_the_next_run_is_after_the_excluded_slots_and_these_are_no_slots_to_run() -> None:
    excluding = replace(
        entry(Schedule(HOURLY)), exclusions=compile_exclusions(("2026-02-07T11:00..2026-02-08",), UTC, ())
    )

    assert excluding.next_after(0, TEN) == TEN + HOUR
    assert excluding.next_run_after(0, TEN) == to_instant(datetime(2026, 2, 9, tzinfo=UTC))
    assert [excluding.has_slot(Slot(at)) for at in (TEN, TEN + HOUR)] == [True, False]


def test_a_schedule_whose_slots_are_all_excluded_has_no_next_run() -> None:
    excluding = replace(entry(Schedule(HOURLY)), exclusions=compile_exclusions(("0 * * * *",), UTC, ()))

    assert excluding.next_run_after(0, TEN) is None


def test_a_slot_for_which_a_run_stands_has_its_state_unless_it_has_succeeded_itself() -> None:
    one, hour = entry(Schedule(HOURLY)), 3_600_000
    first, last = TEN - 3 * hour, TEN - hour
    span = RecordedRun(
        one.run_id("app", Slot(TEN), first=first), TEN, RunState.RUNNING, first, ((0, first, last),)
    )
    own = [
        RecordedRun(one.run_id("app", Slot(first)), first, RunState.SUCCEEDED),
        RecordedRun(one.run_id("app", Slot(last)), last, RunState.DEAD),
    ]

    found = one.slots_of("app", [span, *own])

    assert found == {
        Slot(first): RunState.SUCCEEDED,
        Slot(TEN - 2 * hour): RunState.RUNNING,
        Slot(last): RunState.RUNNING,
        Slot(TEN): RunState.RUNNING,
    }
