"""Intervals are a grid through their anchor, by arithmetic alone."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_catchup.errors import ScheduleError
from celery_catchup.model import Instant
from celery_catchup.planning.entry import too_frequent
from celery_catchup.timetables.cron_dialects import parse_cron
from celery_catchup.timetables.cron_table import CronTable
from celery_catchup.timetables.timetable import IntervalTable, Timetable
from celery_catchup.timetables.zones import LAST_INSTANT

NOON = 1_770_000_000_000

intervals = st.builds(
    lambda microseconds: timedelta(microseconds=microseconds),
    st.one_of(st.integers(1000, 10_000_000), st.integers(1, 40_000).map((1000).__mul__)),
)
anchors = st.integers(NOON - 10_000_000, NOON + 10_000_000)
instants = st.integers(NOON - 100_000, NOON + 100_000)


def brute_force(table: IntervalTable, after: Instant, until: Instant) -> list[Instant]:
    """Every k that could matter, one by one, in microseconds."""
    step = table.every // timedelta(microseconds=1)
    low = (after - table.anchor) * 1000 // step - 2
    high = (until - table.anchor) * 1000 // step + 2
    slots = [(table.anchor * 1000 + k * step) // 1000 for k in range(low, high + 1)]
    return [slot for slot in slots if after < slot <= until]


@given(intervals, anchors, instants, st.integers(0, 5_000))
def test_the_slots_are_the_anchor_and_whole_intervals_from_it(
    every: timedelta, anchor: Instant, after: Instant, length: int
) -> None:
    table = IntervalTable(every, anchor=anchor)

    slots = list(table.slots(after, after + length))

    assert slots == brute_force(table, after, after + length)
    assert list(table.slots(after, after + length, newest_first=True)) == slots[::-1]
    assert table.count(after, after + length) == len(slots)


@given(intervals, anchors, instants, st.integers(0, 5_000), st.integers(0, 5_000))
def test_a_range_in_two_parts_has_the_same_slots(
    every: timedelta, anchor: Instant, after: Instant, first: int, second: int
) -> None:
    table = IntervalTable(every, anchor=anchor)
    middle, until = after + first, after + first + second

    whole = list(table.slots(after, until))

    assert [*table.slots(after, middle), *table.slots(middle, until)] == whole


@given(intervals, anchors, instants)
def test_next_and_previous_are_neighbours_in_the_list(
    every: timedelta, anchor: Instant, instant: Instant
) -> None:
    table = IntervalTable(every, anchor=anchor)
    reach = 2 * (every // timedelta(milliseconds=1) + 1)

    following, previous = table.next_after(instant), table.previous_before(instant)

    assert following == brute_force(table, instant, instant + reach)[0]
    assert previous == brute_force(table, instant - reach, instant - 1)[-1]
    assert previous is not None
    assert table.next_after(previous) in (instant, following)


@given(intervals, anchors, instants)
def test_any_slot_of_whole_milliseconds_is_as_good_an_anchor(
    every: timedelta, anchor: Instant, instant: Instant
) -> None:
    whole = timedelta(milliseconds=every // timedelta(milliseconds=1))
    table = IntervalTable(whole, anchor=anchor)

    moved = IntervalTable(whole, anchor=table.next_after(instant) or 0)

    assert list(moved.slots(instant, instant + 500)) == list(table.slots(instant, instant + 500))


@given(intervals, anchors)
def test_the_minimum_distance_is_exact(every: timedelta, anchor: Instant) -> None:
    table = IntervalTable(every, anchor=anchor)
    # A thousand steps see every fraction of a millisecond that there is.
    slots = list(table.slots(anchor - 1, anchor + 1001 * (every // timedelta(milliseconds=1) + 1)))

    distances = {later - earlier for earlier, later in pairwise(slots)}

    assert table.minimum_distance() == min(distances)


def test_a_third_of_a_second_does_not_drift() -> None:
    table = IntervalTable(timedelta(seconds=1) / 3, anchor=NOON)

    assert table.count(NOON, NOON + 3_600_000) == 10_800
    assert table.previous_before(NOON + 3_600_000) == NOON + 10_800 * 333_333 // 1000


def test_slots_of_years_are_counted_without_being_listed() -> None:
    table = IntervalTable(timedelta(milliseconds=1), anchor=NOON)

    assert table.count(NOON, NOON + 10**13) == 10**13
    assert next(table.slots(NOON, NOON + 10**13, newest_first=True)) == NOON + 10**13


def test_slots_lie_between_1970_and_the_year_10000() -> None:
    table = IntervalTable(timedelta(hours=1), anchor=0)

    assert table.previous_before(1) == 0
    assert table.previous_before(0) is None
    assert table.next_after(-5_000_000) == 0
    assert table.next_after(LAST_INSTANT) is None
    assert list(table.slots(-5_000_000, 3_600_000)) == [0, 3_600_000]
    assert list(table.slots(LAST_INSTANT - 1, LAST_INSTANT + 10**9)) == [LAST_INSTANT]


def test_an_empty_or_backward_range_has_no_slots() -> None:
    table = IntervalTable(timedelta(seconds=1), anchor=NOON)

    assert list(table.slots(NOON, NOON)) == []
    assert list(table.slots(NOON + 5_000, NOON, newest_first=True)) == []
    assert table.count(NOON + 5_000, NOON) == 0


@pytest.mark.parametrize("every", [timedelta(), timedelta(seconds=-1), timedelta(microseconds=999)])
def test_an_interval_that_does_not_advance_is_refused(every: timedelta) -> None:
    with pytest.raises(ScheduleError, match="too short; use at least 1 ms"):
        IntervalTable(every, anchor=NOON)


def test_an_interval_is_a_timetable() -> None:
    assert isinstance(IntervalTable(timedelta(seconds=1), anchor=NOON), Timetable)


def test_the_slots_of_a_cron_string_are_not_compared_with_a_poll_interval_of_seconds() -> None:
    table = parse_cron("17 4 * * 2", zone=ZoneInfo("America/New_York"))

    assert too_frequent(table, poll_interval=timedelta(seconds=60)) is None
    assert isinstance(table, CronTable)
    assert "_minimum_distance" not in vars(table)
    assert too_frequent(table, poll_interval=timedelta(days=8)) is not None


def test_a_cron_string_is_refused_when_beat_looks_less_often_than_its_slots_come() -> None:
    assert too_frequent(parse_cron("* * * * *"), poll_interval=timedelta(seconds=61)) is not None


@pytest.mark.parametrize(
    ("cron", "minutes"), [("* * * * *", 1), ("0 9 * * *", 1440), ("0 9 * * 1-5", 1440), ("0 23,1 * * *", 120)]
)
def test_the_usual_distance_of_cron_slots_is_that_of_the_wall_clock(cron: str, minutes: int) -> None:
    table = parse_cron(cron, zone=ZoneInfo("America/New_York"))

    assert isinstance(table, CronTable)
    assert table.wall_distance() == minutes * 60_000
