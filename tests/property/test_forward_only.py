"""Schedules that can only be asked for the next slot: adding up finds what walking finds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo

from celery.schedules import schedule
from hypothesis import given, settings
from hypothesis import strategies as st

from celery_catchup.beat.simulated_schedules import SimulatedSchedule
from celery_catchup.config.policy import Policy
from celery_catchup.model import Instant, SkipReason, to_instant
from celery_catchup.planning.entry import Entry, EntryState, Schedule
from celery_catchup.planning.planner import plan
from celery_catchup.planning.scope import replay
from celery_catchup.timetables.forward_only import ForwardOnlyTable

HOUR = 3_600_000
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Cairo"]
CHANGES = [  # of the offset of one of these zones, or near one
    datetime(2026, 3, 29, 1, tzinfo=UTC),
    datetime(2026, 10, 25, 1, tzinfo=UTC),
    datetime(2026, 3, 8, 7, tzinfo=UTC),
    datetime(2026, 4, 4, 15, tzinfo=UTC),
    datetime(2026, 4, 23, 22, tzinfo=UTC),
]
intervals = st.one_of(
    st.integers(7, 59).map(lambda n: timedelta(seconds=n * 11)),
    st.integers(1, 240).map(lambda n: timedelta(minutes=n)),
    st.integers(1, 100).map(lambda n: timedelta(hours=n)),
    st.integers(1, 9).map(lambda n: timedelta(days=n)),
    st.integers(61_001, 9_000_000).map(lambda n: timedelta(milliseconds=n)),
)
anchors = st.builds(
    lambda change, before: to_instant(change) - before, st.sampled_from(CHANGES), st.integers(0, 40 * HOUR)
)


def tables(zone: str, every: timedelta, anchor: Instant) -> tuple[ForwardOnlyTable, ForwardOnlyTable]:
    """A relative interval that adds up, and one that walks."""
    rules = ZoneInfo(zone)
    step = SimulatedSchedule(schedule(every, relative=True), zone=rules, name="e").step
    return ForwardOnlyTable(step, anchor=anchor, steady_in=rules), ForwardOnlyTable(step, anchor=anchor)


@settings(max_examples=60)
@given(st.sampled_from(ZONES), intervals, anchors, st.lists(st.floats(-0.1, 1), min_size=2, max_size=6))
def test_a_relative_interval_has_the_same_slots_whether_it_is_walked_or_added_up(
    zone: str, every: timedelta, anchor: Instant, places: list[float]
) -> None:
    added, walked = tables(zone, every, anchor)
    span = min(300 * int(every.total_seconds() * 1000), 120 * 24 * HOUR)
    moments = [anchor + int(place * span) for place in places]
    asks: list[Callable[[ForwardOnlyTable], Any]] = []
    for moment, other in pairwise(moments):
        low, high = min(moment, other), max(moment, other)
        asks += [
            lambda table, low=low, high=high: table.count(low, high),
            lambda table, high=high: table.previous_before(high),
            lambda table, low=low: table.next_after(low),
            lambda table, low=low, high=high: list(islice(table.slots(low, high), 5)),
            lambda table, low=low, high=high: list(islice(table.slots(low, high, newest_first=True), 5)),
        ]

    for ask in asks:
        assert ask(added) == ask(walked)


@settings(max_examples=40)
@given(st.sampled_from(ZONES), intervals, anchors, st.integers(1, 40), st.integers(1, 40))
def test_the_last_slot_is_as_good_an_anchor_as_the_first(
    zone: str, every: timedelta, anchor: Instant, slots: int, more: int
) -> None:
    table, _ = tables(zone, every, anchor)
    chain = list(islice(table.slots(anchor, 2**47), slots + more))

    after_restart, _ = tables(zone, every, chain[slots - 1])

    assert list(islice(after_restart.slots(chain[slots - 1], 2**47), more)) == chain[slots:]


@settings(max_examples=25)
@given(st.sampled_from(ZONES), intervals, anchors, st.integers(1, 200), st.integers(1, 50))
def test_every_slot_of_an_outage_is_run_or_skipped_once_however_long_it_was(
    zone: str, every: timedelta, anchor: Instant, slots: int, window: int
) -> None:
    added, walked = tables(zone, every, anchor)
    policy = Policy(window=window * every, overlap_policy="allow", misfire_threshold="1s")
    chain = list(islice(walked.slots(anchor, 2**47), slots))
    state = EntryState(first_seen_at=anchor, decided=anchor)
    entry = Entry("e", (Schedule(added),), policy)

    found = plan(entry, state, replay(entry, state, scheduler_watermark=anchor, now=chain[-1]))

    ran = [run.slot.at for run in found.runs]
    expired = [skip for skip in found.skips if skip.reason is SkipReason.EXPIRED]
    assert ran == chain[len(chain) - len(ran) :]
    assert sum(skip.count for skip in expired) == len(chain) - len(ran)
    assert all(at > chain[-1] - int(window * every.total_seconds() * 1000) for at in ran)
