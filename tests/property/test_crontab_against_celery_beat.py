"""A ``crontab()`` has the slots at which the installed Celery's beat fires it, wherever the clock jumps.

Celery may change its rule for daylight saving; then these tests say so.
"""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from celery.schedules import crontab

from celery_catchup.beat.celery_schedules import timetable_of
from celery_catchup.model import to_datetime, to_instant
from tests.property.expressions import (
    DAY_OF_MONTH,
    DAY_OF_WEEK,
    HOUR,
    HOUR_MS,
    MINUTE,
    MONTH,
    YEARS,
    Kind,
    expression,
    show,
    transitions,
)
from tests.property.neighbours import check_neighbours
from tests.property.simulated_beat import fires

ZONES = (
    "America/New_York",
    "Europe/London",
    "Europe/Dublin",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Africa/Casablanca",
    "Antarctica/Troll",
    "Pacific/Chatham",
)
WINDOWS = int(os.environ.get("CATCHUP_BEAT_WINDOWS", "320"))
SOAK_WINDOWS = 2000

# Sparse minutes, because beat is slow; Celery's days (no 7), rarely restricted, so that something runs.
FIELDS = (
    Kind(MINUTE.low, MINUTE.high, stars=2),
    HOUR,
    Kind(DAY_OF_MONTH.low, DAY_OF_MONTH.high, stars=80),
    Kind(MONTH.low, MONTH.high, stars=85, names=MONTH.names),
    Kind(0, 6, stars=80, names=DAY_OF_WEEK.names),
)


def check(seed: str, name: str) -> int:
    """Compare one window; the number of fires tells how much was compared."""
    rng = random.Random(seed)
    zone = ZoneInfo(name)
    schedule, text = _crontab(rng)
    change = rng.choice([change for year in YEARS for change in transitions(zone, year)])
    # Never from within the repeated hour: there the stock beat can fire without end. Nor from
    # right after a gap: a beat that was not there before it does not know what the gap shifted.
    start = change - rng.randrange(4 * HOUR_MS, 30 * HOUR_MS)
    stop = change + rng.randrange(3 * HOUR_MS, 40 * HOUR_MS)

    theirs = [
        to_instant(fired.replace(second=0, microsecond=0))
        for fired in fires(schedule, name, to_datetime(start), to_datetime(stop))
    ]
    table = timetable_of(crontab(*_arguments(text)), zone=zone, anchor=start, name="entry")
    ours = list(table.slots(start, stop))

    told = f"{text!r} (a crontab) in {name}, ({start}, {stop}], jump at {show([change], zone)}, seed {seed!r}"
    assert ours == theirs, (
        f"{told}\n"
        f"  only ours {show([slot for slot in ours if slot not in theirs], zone)}\n"
        f"  only beat {show([slot for slot in theirs if slot not in ours], zone)}"
    )
    assert list(table.slots(start, stop, newest_first=True)) == theirs[::-1], told
    assert table.count(start, stop) == len(theirs), told
    check_neighbours(table, theirs, zone=zone, after=start, until=stop, told=told)
    return len(theirs)


@pytest.mark.parametrize("name", ZONES)
def test_slots_are_the_times_at_which_beat_fires(name: str) -> None:
    fired = sum(check(f"{name} {number}", name) for number in range(WINDOWS // len(ZONES)))

    assert fired > WINDOWS // len(ZONES), "too few slots to say anything"


@pytest.mark.soak
@pytest.mark.parametrize("name", ZONES)
def test_slots_are_the_times_at_which_beat_fires_in_many_windows(name: str) -> None:
    for number in range(SOAK_WINDOWS // len(ZONES)):
        check(f"soak {name} {number}", name)


def test_a_crontab_is_read_in_the_zone_of_its_app() -> None:
    start = datetime(2026, 6, 1, tzinfo=UTC)
    schedule = crontab(minute=30, hour=1)

    theirs = fires(schedule, "Asia/Kolkata", start, start + timedelta(days=1))
    ours = timetable_of(schedule, zone=UTC, anchor=0, name="entry").next_after(to_instant(start))

    assert [f"{fired:%H:%M}" for fired in theirs] == ["20:00"]
    assert ours == to_instant(theirs[0].replace(second=0, microsecond=0))


def _crontab(rng: random.Random) -> tuple[crontab, str]:
    """A random crontab, and its text; Celery refuses dates that never come."""
    while True:
        text = expression(rng, FIELDS).lower()
        try:
            return crontab(*_arguments(text)), text
        except ValueError:
            continue


def _arguments(text: str) -> tuple[str, ...]:
    """The fields in the order in which ``crontab()`` takes them: the day of week comes third."""
    minute, hour, day_of_month, month, day_of_week = text.split()
    return minute, hour, day_of_week, day_of_month, month
