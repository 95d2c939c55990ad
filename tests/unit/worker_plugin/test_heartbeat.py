"""The heartbeat loses no report, and tells apart what was lost from what has ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from celery_catchup.events.log_lines import process_events
from celery_catchup.model import RunState, Trigger
from celery_catchup.testing import FakeClock
from celery_catchup.worker_plugin.context import LeaseWatch, RunContext
from celery_catchup.worker_plugin.heartbeat import Execution, Heartbeat
from celery_catchup.worker_plugin.reports import Report


class Store:
    """Leases and reports, as far as a heartbeat has to do with them."""

    def __init__(self) -> None:
        self.away: BaseException | None = None
        self.delivered: list[str] = []
        self.renewed: list[list[tuple[str, str]]] = []
        self.lost: list[str] = []

    def deliver(self, report: Report) -> None:
        if self.away is not None:
            raise self.away
        self.delivered.append(report.run_id)

    def renew(self, held: Sequence[tuple[str, str]]) -> list[str]:
        self.renewed.append(list(held))
        return self.lost


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def heartbeat(store: Store, clock: FakeClock) -> Heartbeat:
    events = process_events()
    heartbeat = Heartbeat(store, store.deliver, clock=clock, interval=20, events=events)  # type: ignore[arg-type]
    heartbeat.stop()  # its thread ends at once: the test beats by itself
    return heartbeat


def report(run_id: str) -> Report:
    return Report(run_id=run_id, entry="e", owner="o", state=RunState.SUCCEEDED)


def execution(clock: FakeClock, name: str = "r") -> Execution:
    lease = LeaseWatch(clock, seconds=60)
    run = RunContext(
        entry="e", run_id=name, trigger=Trigger.SCHEDULER, attempt=1, slot=0, started=0, lease=lease
    )
    return Execution(run, owner=f"owner of {name}")


def test_a_report_waits_while_the_store_is_away(
    heartbeat: Heartbeat, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.away = RedisConnectionError("refused")
    for name in "abc":
        heartbeat.report(report(name))
    assert store.delivered == []

    store.away = None
    heartbeat.beat()

    assert sorted(store.delivered) == ["a", "b", "c"]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]  # said once


def test_a_process_that_ends_waits_for_the_store_with_its_reports(
    heartbeat: Heartbeat, store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(seconds=seconds)
        store.away = RedisConnectionError("refused") if len(pauses) < 3 else None

    monkeypatch.setattr(time, "sleep", pause)
    store.away = RedisConnectionError("refused")
    heartbeat.report(report("a"))

    heartbeat.flush_before_exit()

    assert store.delivered == ["a"]
    assert len(pauses) == 3


def test_a_process_that_ends_gives_up_after_ten_seconds_and_without_reports_at_once(
    heartbeat: Heartbeat, store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = clock.monotonic()
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.advance(seconds=seconds))
    store.away = RedisConnectionError("refused")

    heartbeat.flush_before_exit()
    assert clock.monotonic() == begun

    heartbeat.report(report("a"))
    heartbeat.flush_before_exit()
    assert clock.monotonic() == begun + 10


def test_a_report_that_is_interrupted_is_not_lost(heartbeat: Heartbeat, store: Store) -> None:
    store.away = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        heartbeat.report(report("a"))

    store.away = None
    heartbeat.flush()

    assert store.delivered == ["a"]


def test_what_is_held_is_renewed_and_what_others_hold(
    heartbeat: Heartbeat, store: Store, clock: FakeClock
) -> None:
    mine = execution(clock)
    heartbeat.hold(mine.owner, mine)
    clock.advance(seconds=50)

    heartbeat.beat([("r", mine.owner), ("other", "child")])
    clock.advance(seconds=50)

    assert store.renewed == [[("r", mine.owner)], [("other", "child")]]
    assert not mine.run.lost


def test_a_lost_run_is_told_once_and_renewed_no_more(
    heartbeat: Heartbeat, store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    mine = execution(clock)
    heartbeat.hold(mine.owner, mine)
    store.lost = ["r"]

    heartbeat.beat()
    heartbeat.beat()

    assert mine.run.lost
    assert len(store.renewed) == 1
    assert [record.getMessage() for record in caplog.records] == ['msg="Run lost" entry=e run_id=r attempt=1']


def test_a_run_that_ended_during_the_renewal_is_not_lost(
    heartbeat: Heartbeat, store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = execution(clock)
    heartbeat.hold(mine.owner, mine)

    def renew(held: Sequence[tuple[str, str]]) -> list[str]:
        heartbeat.drop(mine.owner)
        return ["r"]

    monkeypatch.setattr(store, "renew", renew)
    heartbeat.beat()

    assert not mine.run.lost


def test_nothing_to_do_is_nothing_asked(heartbeat: Heartbeat, store: Store) -> None:
    heartbeat.beat()

    assert store.renewed == []
