"""What a task is told about its run, and when its lease counts as lost."""

from __future__ import annotations

import threading
from contextvars import copy_context
from datetime import UTC, datetime, timedelta

import pytest

from celery_catchup import current_run
from celery_catchup.errors import LeaseLostError
from celery_catchup.model import Trigger
from celery_catchup.testing import FakeClock
from celery_catchup.worker_plugin.context import LeaseWatch, RunContext, enter_run, leave_run

RECORD = {
    "entry": "hourly-etl",
    "trigger": "catchup",
    "attempt": 2,
    "slot": 1_770_458_400_000,
    "previous": 1_770_454_800_000,
    "attempt_started": 1_770_465_720_500,
    "state": "running",
}
RUN_ID = "a1b2c3d4-0000-5000-8000-000000000000"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def run(clock: FakeClock) -> RunContext:
    return RunContext.of(RUN_ID, RECORD, lease=LeaseWatch(clock, seconds=60))


def test_a_run_knows_its_slot_and_its_interval(run: RunContext) -> None:
    assert run.scheduled_time == datetime(2026, 2, 7, 10, tzinfo=UTC)
    assert run.data_interval.start == datetime(2026, 2, 7, 9, tzinfo=UTC)
    assert run.data_interval.end == run.scheduled_time
    assert run.lag == timedelta(hours=2, minutes=2, milliseconds=500)
    assert (run.entry, run.run_id, run.attempt) == ("hourly-etl", RUN_ID, 2)
    assert (run.trigger, run.is_catchup) == (Trigger.CATCHUP, True)


def test_a_first_slot_has_no_start() -> None:
    run = RunContext.of(RUN_ID, {**RECORD, "previous": None, "trigger": "scheduler"}, lease=None)

    assert run.data_interval.start is None
    assert not run.is_catchup
    assert "CATCHUP_DATA_INTERVAL_START" not in run.environ()


def test_each_attempt_has_an_identity_of_its_own(run: RunContext) -> None:
    again = RunContext.of(RUN_ID, {**RECORD, "attempt": 3}, lease=None)

    assert run.attempt_id != again.attempt_id
    assert run.attempt_id == RunContext.of(RUN_ID, RECORD, lease=None).attempt_id


def test_a_lease_that_is_renewed_holds(run: RunContext, clock: FakeClock) -> None:
    assert run.lease is not None
    for _ in range(10):
        clock.advance(seconds=20)
        run.lease.renewed(begun=clock.monotonic())
        run.check()

    assert not run.lost


def test_a_lease_cannot_be_relied_on_until_it_is_renewed(run: RunContext, clock: FakeClock) -> None:
    assert run.lease is not None
    clock.advance(seconds=61)
    assert run.lost
    with pytest.raises(LeaseLostError, match=r"no longer this worker's; stop here"):
        run.check()

    run.lease.renewed(begun=clock.monotonic())

    run.check()


def test_a_lease_that_was_taken_stays_lost(run: RunContext, clock: FakeClock) -> None:
    assert run.lease is not None
    run.lease.taken = True

    run.lease.renewed(begun=clock.monotonic())

    assert run.lost


def test_a_run_without_a_lease_is_never_lost() -> None:
    run = RunContext.of(RUN_ID, RECORD, lease=None)

    run.check()
    assert not run.lost


def test_the_current_run_is_there_between_enter_and_leave(run: RunContext) -> None:
    assert current_run() is None

    enter_run(run)
    assert current_run() is run
    leave_run()

    assert current_run() is None


def test_a_thread_of_the_tasks_own_needs_a_copy_of_its_context(run: RunContext) -> None:
    seen: list[RunContext | None] = []
    enter_run(run)
    context = copy_context()

    for target in (
        lambda: seen.append(current_run()),
        lambda: context.run(lambda: seen.append(current_run())),
    ):
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
    leave_run()

    assert seen == [None, run]
