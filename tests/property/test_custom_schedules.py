"""Classes of the user's own: caught up when they follow from time alone, plain with a warning when not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Celery
from celery.schedules import BaseSchedule, crontab, schedule
from hypothesis import given, settings
from hypothesis import strategies as st

from celery_catchup.beat.catchup_entry import CatchupEntry
from celery_catchup.beat.celery_schedules import timetable_of
from celery_catchup.beat.resolved_entries import ResolvedEntries, resolve_entries
from celery_catchup.config.configuration import load
from celery_catchup.model import to_datetime, to_instant

START = datetime(2026, 2, 7, 9, 5, 13, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def following(last: datetime, every: timedelta, shift: timedelta) -> datetime:
    """The next multiple of ``every`` since 1970, plus ``shift``."""
    return EPOCH + ((last - EPOCH - shift) // every + 1) * every + shift


class Grid(BaseSchedule):
    """Runs on a grid of its own."""

    def __init__(self, every: timedelta, shift: timedelta, **options: Any) -> None:
        super().__init__(**options)
        self.every, self.shift = every, shift


class Estimating(Grid):
    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        return following(last_run_at, self.every, self.shift) - self.now()


class Asked(Grid):
    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        rest = (following(last_run_at, self.every, self.shift) - self.now()).total_seconds()
        return (True, self.every.total_seconds()) if rest <= 0 else (False, rest)


class Polling(Grid):
    """Never looks further ahead than a minute."""

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        rest = (following(last_run_at, self.every, self.shift) - self.now()).total_seconds()
        return (True, 60.0) if rest <= 0 else (False, min(rest, 60.0))


class Both(Estimating):
    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        return super().remaining_estimate(last_run_at)

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        rest = self.remaining_estimate(last_run_at).total_seconds()
        return (True, 60.0) if rest <= 0 else (False, rest)


class Gated(Both):
    """Is due by its estimate only while a gate is open, which has nothing to do with time."""

    gate_is_open = False

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        return super().is_due(last_run_at) if self.gate_is_open else (False, 60.0)

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        return super().remaining_estimate(last_run_at)


class Never(schedule):  # type: ignore[misc]
    """An interval whose is_due waits for something else, and seldom looks."""

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        self.now()
        return False, 86_400.0 * 3650


periods = st.integers(2, 4000).map(lambda n: timedelta(minutes=n))
shifts = st.integers(0, 90_000).map(lambda n: timedelta(seconds=n))
kinds = st.sampled_from([Estimating, Asked, Polling, Both])


def resolve(*schedules: object) -> ResolvedEntries:
    app = Celery("proj", set_as_current=False)
    entries = {
        f"e{place}": CatchupEntry(name=f"e{place}", task="t", schedule=one, app=app)
        for place, one in enumerate(schedules)
    }
    declared = {name: entry.declaration() for name, entry in entries.items()}
    configuration = load({"catchup_entries": {"*": "1d"}}, declared=declared, timezone=UTC)
    return resolve_entries(entries, configuration, timezone=UTC)


@settings(max_examples=50)
@given(kinds, periods, shifts, st.integers(1, 6))
def test_a_class_that_follows_from_time_has_the_slots_that_it_describes(
    kind: Callable[..., Grid], every: timedelta, shift: timedelta, count: int
) -> None:
    expected = [START]
    for _ in range(count):
        expected.append(following(expected[-1], every, shift))

    table = timetable_of(kind(every, shift), zone=UTC, anchor=to_instant(START), name="e")

    found = table.slots(to_instant(START), to_instant(expected[-1]))
    assert [to_datetime(slot) for slot in found] == expected[1:]
    assert table.count(to_instant(START), to_instant(expected[-1])) == count
    assert table.previous_before(to_instant(expected[-1]) + 1) == to_instant(expected[-1])


@settings(max_examples=25)
@given(kinds, st.integers(2, 90).map(lambda n: timedelta(minutes=n)), shifts)
def test_a_class_that_waits_for_something_else_is_plain_and_costs_the_others_nothing(
    kind: Callable[..., Grid], every: timedelta, shift: timedelta
) -> None:
    resolved = resolve(kind(every, shift), Gated(every, shift), crontab(minute=0))

    assert resolved.unmanaged == ("e1",)
    assert [one.name for one in resolved.declared] == ["e0", "e2"]
    (warning,) = resolved.not_replayable
    assert "its own next time" in warning


@settings(max_examples=15)
@given(periods, shifts)
def test_an_open_gate_makes_no_difference(every: timedelta, shift: timedelta) -> None:
    gated = Gated(every, shift)
    gated.gate_is_open = True

    assert resolve(gated).unmanaged == ()


def test_a_class_that_is_due_at_no_time_at_all_has_no_slots_and_stops_nobody() -> None:
    resolved = resolve(Never(60), crontab(minute=0))

    assert [one.name for one in resolved.declared][-1] == "e1"
