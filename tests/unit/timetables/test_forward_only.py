"""Schedules that only know what comes next become whole timetables."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_catchup.errors import ScheduleError
from celery_catchup.model import Instant
from celery_catchup.timetables import forward_only
from celery_catchup.timetables.forward_only import ForwardOnlyTable
from celery_catchup.timetables.timetable import Timetable
from celery_catchup.timetables.zones import LAST_INSTANT

NOON = 1_770_000_000_000


def hourly(last: Instant) -> Instant:
    """Memoryless, as solar events are."""
    return (last // 3_600_000 + 1) * 3_600_000


def uneven(last: Instant) -> Instant:
    """With a memory: what comes next depends on exactly where one is."""
    return last + 1 + last * 7919 % 97


class Counted:
    """A step that counts how often it is taken."""

    def __init__(self, step: Callable[[Instant], Instant | None]) -> None:
        self.step, self.taken = step, 0

    def __call__(self, last: Instant) -> Instant | None:
        self.taken += 1
        return self.step(last)


def chain_from(anchor: Instant, length: int) -> list[Instant]:
    """The oracle: one step after the other."""
    points = [anchor]
    for _ in range(length):
        points.append(uneven(points[-1]))
    return points[1:]


offsets = st.integers(0, 20_000)


@given(offsets, offsets)
def test_every_range_sees_the_one_chain_from_the_anchor(first: int, second: int) -> None:
    table = ForwardOnlyTable(uneven, anchor=NOON)
    after, until = NOON + min(first, second), NOON + max(first, second)
    expected = [slot for slot in chain_from(NOON, 20_000) if after < slot <= until]

    assert list(table.slots(after, until)) == expected
    assert list(table.slots(after, until, newest_first=True)) == expected[::-1]
    assert table.count(after, until) == len(expected)


@given(st.lists(offsets, min_size=1, max_size=10))
def test_the_order_of_questions_changes_no_answer(questions: list[int]) -> None:
    table = ForwardOnlyTable(uneven, anchor=NOON)
    slots = chain_from(NOON, 20_000)

    for question in questions:
        instant = NOON + question
        before = [slot for slot in slots if slot < instant]
        assert table.next_after(instant) == next(slot for slot in slots if slot > instant)
        if before:
            assert table.previous_before(instant) == before[-1]


@given(offsets, offsets)
def test_a_slot_is_as_good_an_anchor_for_all_that_follows(moved: int, length: int) -> None:
    table = ForwardOnlyTable(uneven, anchor=NOON)
    slot = table.next_after(NOON + moved)
    assert slot is not None

    later = ForwardOnlyTable(uneven, anchor=slot)

    assert list(later.slots(slot, slot + length)) == list(table.slots(slot, slot + length))


@given(st.integers(-50, 50), st.integers(0, 50), st.integers(0, 50))
def test_a_memoryless_schedule_has_the_same_slots_on_both_sides_of_the_anchor(
    begin: int, first: int, second: int
) -> None:
    table = ForwardOnlyTable(hourly, anchor=NOON)
    after, middle, until = (
        NOON + minutes * 900_000 for minutes in (begin, begin + first, begin + first + second)
    )
    expected = list(range(hourly(after), until + 1, 3_600_000))

    assert list(table.slots(after, until)) == expected
    assert [*table.slots(after, middle), *table.slots(middle, until)] == expected
    assert table.next_after(after) == hourly(after)
    assert table.previous_before(after) == (after - 1) // 3_600_000 * 3_600_000


def test_the_anchor_is_no_slot_of_its_chain() -> None:
    table = ForwardOnlyTable(lambda last: last + 10, anchor=NOON)

    assert list(table.slots(NOON, NOON + 30)) == [NOON + 10, NOON + 20, NOON + 30]


def test_slots_are_lazy() -> None:
    step = Counted(uneven)
    table = ForwardOnlyTable(step, anchor=NOON)

    slots = table.slots(NOON, LAST_INSTANT)

    assert step.taken == 0
    assert len(list(islice(slots, 5))) == 5
    assert step.taken == 5


def test_two_walks_at_once_do_not_disturb_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward_only, "_SPACING", 4)
    table = ForwardOnlyTable(uneven, anchor=NOON)

    walks = [table.slots(NOON, LAST_INSTANT) for _ in range(3)]
    seen = [[next(walk) for _ in range(length)] for walk, length in zip(walks, (50, 3, 30), strict=True)]
    seen[1] += [next(walks[1]) for _ in range(47)]

    assert seen[0] == seen[1] == chain_from(NOON, 50)
    assert seen[2] == chain_from(NOON, 30)


def test_asking_again_near_the_end_costs_nothing() -> None:
    step = Counted(lambda last: last + 1000)
    table = ForwardOnlyTable(step, anchor=NOON)
    end = NOON + 50_000_000
    assert table.count(NOON, end) == 50_000

    step.taken = 0
    assert table.previous_before(end) == end - 1000
    assert len(list(table.slots(end - 500_000, end))) == 500

    assert step.taken == 0


def test_asking_far_back_costs_few_steps() -> None:
    step = Counted(lambda last: last + 1000)
    table = ForwardOnlyTable(step, anchor=NOON)
    table.count(NOON, NOON + 50_000_000)

    step.taken = 0
    assert table.next_after(NOON + 10_000_500) == NOON + 10_001_000

    assert step.taken <= 1024


def test_what_is_remembered_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward_only, "_SPACING", 8)
    monkeypatch.setattr(forward_only, "_MOST_POINTS", 8)
    table = ForwardOnlyTable(uneven, anchor=NOON)
    slots = chain_from(NOON, 3_000)

    assert table.count(NOON, slots[-1]) == 3_000

    assert len(table._points) <= 8
    assert all(table.next_after(slot - 1) == slot for slot in slots[::37])


def test_a_chain_may_end() -> None:
    step = Counted(lambda last: last + 10 if last < NOON + 30 else None)
    table = ForwardOnlyTable(step, anchor=NOON)

    assert list(table.slots(NOON, LAST_INSTANT)) == [NOON + 10, NOON + 20, NOON + 30]
    assert table.next_after(NOON + 30) is None
    assert table.previous_before(NOON + 10**9) == NOON + 30
    assert step.taken == 4


def test_a_slot_beyond_the_year_9999_is_none() -> None:
    table = ForwardOnlyTable(lambda last: last + 2 * 10**14, anchor=NOON)

    assert table.next_after(NOON) == NOON + 2 * 10**14
    assert table.next_after(NOON + 2 * 10**14) is None


def test_a_schedule_without_a_past_has_no_previous_slot() -> None:
    only = NOON + 5
    table = ForwardOnlyTable(lambda last: only if last < only else None, anchor=only + 1)

    assert table.previous_before(only) is None
    assert table.previous_before(only + 1) == only
    assert table.previous_before(only + 1000) == only


def test_the_previous_slot_of_a_rare_schedule_is_found_far_before_the_anchor() -> None:
    year = 365 * 86_400_000
    step = Counted(lambda last: (last // year + 1) * year)
    table = ForwardOnlyTable(step, anchor=NOON // year * year - 1000)

    assert table.previous_before(NOON // year * year) == (NOON // year - 1) * year
    assert step.taken < 100


@pytest.mark.parametrize("back", [0, 1, 86_400_000])
def test_a_step_that_does_not_advance_is_an_error_with_the_name(back: int) -> None:
    table = ForwardOnlyTable(lambda last: last - back, anchor=NOON, name="nightly")

    with pytest.raises(ScheduleError, match=r"^nightly: the slot after 2026-02-02T02:40:00Z .*must increase"):
        table.next_after(NOON)


@pytest.mark.parametrize(
    "ask",
    [
        lambda table: table.next_after(NOON + 2000),
        lambda table: table.previous_before(NOON + 2000),
        lambda table: table.count(NOON, NOON + 2000),
        lambda table: list(table.slots(NOON, NOON + 2000, newest_first=True)),
    ],
    ids=["next", "previous", "count", "newest first"],
)
def test_too_many_steps_are_an_error_and_no_hang(ask: Callable[[ForwardOnlyTable], object]) -> None:
    table = ForwardOnlyTable(lambda last: last + 1, anchor=NOON, name="busy", budget=1000)

    with pytest.raises(ScheduleError, match=r"^busy: more than 1000 slots up to 2026-02-02"):
        ask(table)


def test_a_walk_in_order_is_limited_by_its_reader_only() -> None:
    table = ForwardOnlyTable(lambda last: last + 1, anchor=NOON, budget=10)

    assert sum(1 for _ in table.slots(NOON, NOON + 1000)) == 1000


def test_the_minimum_distance_is_that_of_the_next_hundred() -> None:
    table = ForwardOnlyTable(uneven, anchor=NOON)
    slots = chain_from(NOON, 100)

    assert table.minimum_distance() == min(later - earlier for earlier, later in pairwise(slots))


def test_a_schedule_of_one_slot_has_no_distance() -> None:
    table = ForwardOnlyTable(lambda last: NOON if last < NOON else None, anchor=NOON - 5)

    assert table.minimum_distance() is None


def test_a_forward_only_table_is_a_timetable() -> None:
    assert isinstance(ForwardOnlyTable(hourly, anchor=NOON), Timetable)
