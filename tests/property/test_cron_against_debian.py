"""Cron strings give the slots of Debian's cron, in every zone and across every jump of its clock.

``CATCHUP_DIFFERENTIAL`` sets how many random cases are compared (default 2,000).
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest

from celery_catchup.timetables.cron_dialects import parse_cron
from tests.property.expressions import DAY_MS, YEARS, ZONES, expression, moment, show, transitions
from tests.property.neighbours import check_neighbours
from tests.property.oracle_debian import Job, debian_fires

CASES = int(os.environ.get("CATCHUP_DIFFERENTIAL", "2000"))
SOAK_CASES = 20_000


@dataclass(frozen=True)
class Case:
    """One expression in one zone over one window, the slots it should give, and the seed that drew it."""

    seed: str
    text: str
    zone: ZoneInfo
    after: int
    until: int
    theirs: list[int]

    @classmethod
    def draw(cls, seed: str, zone: ZoneInfo) -> Case:
        rng = random.Random(seed)
        text = expression(rng)
        after = moment(rng, zone)
        until = after + _window(rng, text)
        theirs = debian_fires(text, zone, after, until)
        if theirs and rng.random() < 0.4:  # a beginning that is a slot is out, an end that is a slot is in
            after, until = theirs[0], theirs[-1]
            del theirs[0]
        return cls(seed, text, zone, after, until, theirs)

    def __str__(self) -> str:
        ends = f"from {show([self.after], self.zone)} until {show([self.until], self.zone)}"
        return f"{self.text!r} in {self.zone.key}, ({self.after}, {self.until}], {ends}, seed {self.seed!r}"


def check(case: Case) -> None:
    table = parse_cron(case.text, zone=case.zone)

    ours = list(table.slots(case.after, case.until))
    assert ours == case.theirs, f"slots of {case}\n{_difference(ours, case)}"
    backwards = list(table.slots(case.after, case.until, newest_first=True))
    assert backwards == ours[::-1], f"slots, newest first, of {case}\n{_difference(backwards, case)}"
    assert table.count(case.after, case.until) == len(ours), f"count of {case}"
    check_neighbours(table, ours, zone=case.zone, after=case.after, until=case.until, told=str(case))


@pytest.mark.parametrize("name", ZONES)
def test_slots_are_those_of_debians_cron(name: str) -> None:
    zone = ZoneInfo(name)
    for number in range(CASES // len(ZONES)):
        check(Case.draw(f"{name} {number}", zone))


@pytest.mark.parametrize("name", ZONES)
def test_yearly_slots_are_found_over_decades_and_on_the_very_day_of_a_jump(name: str) -> None:
    zone = ZoneInfo(name)
    rng = random.Random(name)
    changes = [change for year in YEARS for change in transitions(zone, year)]
    anywhere = [rng.randrange(3 * 366 * DAY_MS, 80 * 365 * DAY_MS) for _ in range(4)]
    for moment_of_interest in rng.sample(changes, min(len(changes), 8)) + anywhere:
        check(_yearly(rng, zone, moment_of_interest))


@pytest.mark.parametrize("name", ZONES)
def test_no_two_slots_are_closer_than_the_minimum_distance(name: str) -> None:
    rng = random.Random(name)
    zone = ZoneInfo(name)
    for text in (expression(rng) for _ in range(10)):
        table = parse_cron(text, zone=zone)
        slots = list(table.slots(after := moment(rng, zone), after + 2 * 366 * DAY_MS))

        nearest = min((later - earlier for earlier, later in pairwise(slots)), default=None)

        least = table.minimum_distance()
        assert nearest is None or (least is not None and least <= nearest), f"{text!r} in {name} from {after}"


@pytest.mark.soak
@pytest.mark.parametrize("part", range(20))
def test_slots_are_those_of_debians_cron_in_all_zones(part: int) -> None:
    names = sorted(available_timezones())
    for number in range(part, SOAK_CASES, 20):
        name = random.Random(number).choice(names)
        check(Case.draw(f"soak {number}", ZoneInfo(name)))


def _window(rng: random.Random, text: str) -> int:
    """A span that the oracle walks in milliseconds: short for daily jobs, a year for rare ones."""
    job = Job.read(text)
    first = date(2024, 1, 1).toordinal()
    days = sum(map(job.runs_on, range(first, first + 366)))
    longest = min(400, 1 + 2 * 366 // max(days, 1))
    return rng.randint(DAY_MS // 4, longest * DAY_MS)


def _difference(ours: list[int], case: Case) -> str:
    only_ours, only_theirs = Counter(ours) - Counter(case.theirs), Counter(case.theirs) - Counter(ours)
    return (
        f"  only ours   {show(sorted(only_ours.elements()), case.zone)}\n"
        f"  only theirs {show(sorted(only_theirs.elements()), case.zone)}"
    )


def _yearly(rng: random.Random, zone: ZoneInfo, change: int) -> Case:
    """A job on the date of a jump, over some years that end on the day after."""
    shown = datetime.fromtimestamp(change / 1000 + rng.randrange(-90, 30) * 60, zone)
    text = f"{rng.choice(('*/10', shown.minute))} {rng.choice(('*', shown.hour))} {shown.day} {shown.month} *"
    after, until = max(change - rng.choice((1, 2, 3, 12)) * 366 * DAY_MS, 0), change + DAY_MS
    return Case(f"yearly {change}", text, zone, after, until, debian_fires(text, zone, after, until))
