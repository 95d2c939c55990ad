"""Cron strings give the slots of Debian's cron, in every zone and across every jump of its clock.

``CATCHUP_DIFFERENTIAL`` sets how many random cases are compared (default 2,000).
"""

from __future__ import annotations

import os
import random
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from zoneinfo import ZoneInfo, available_timezones

import pytest

from celery_catchup.cron_dialects import parse_cron
from celery_catchup.model import to_datetime, to_rfc3339
from celery_catchup.timetables import Timetable
from tests.property.expressions import DAY_MS, YEARS, ZONES, expression, moment, show, transitions
from tests.property.oracle_debian import MINUTE_MS, Job, debian_fires

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

    def disagree(self, what: str, ours: list[int], theirs: list[int]) -> str:
        only_ours, only_theirs = Counter(ours) - Counter(theirs), Counter(theirs) - Counter(ours)
        return (
            f"{what} of {self.text!r} in {self.zone.key}, window ({self.after}, {self.until}],"
            f" seed {self.seed!r}\n"
            f"  from   {show([self.after], self.zone)} until {show([self.until], self.zone)}\n"
            f"  only ours   {show(sorted(only_ours.elements()), self.zone)}\n"
            f"  only theirs {show(sorted(only_theirs.elements()), self.zone)}"
        )


def check(case: Case) -> None:
    table = parse_cron(case.text, zone=case.zone)
    theirs = case.theirs

    ours = list(table.slots(case.after, case.until))
    assert ours == theirs, case.disagree("slots", ours, theirs)
    backwards = list(table.slots(case.after, case.until, newest_first=True))
    assert backwards == theirs[::-1], case.disagree("slots, newest first,", backwards, theirs[::-1])
    count = table.count(case.after, case.until)
    assert count == len(theirs), case.disagree(f"count {count} instead of {len(theirs)}", ours, theirs)
    check_neighbours(case, table)


def check_neighbours(case: Case, table: Timetable) -> None:
    """From anywhere in the window the neighbouring slots are found, and none outside is drawn in."""
    for instant in _probes(case):
        left, right = bisect_left(case.theirs, instant), bisect_right(case.theirs, instant)
        at = f"({to_rfc3339(instant)} = {instant})"
        following = table.next_after(instant)
        if right < len(case.theirs):
            told = case.disagree(f"next_after {at}", _known(following), [case.theirs[right]])
            assert following == case.theirs[right], told
        else:
            told = case.disagree(f"next_after {at}", _known(following), [])
            assert following is None or following > case.until, told
        preceding = table.previous_before(instant)
        if left > 0:
            told = case.disagree(f"previous_before {at}", _known(preceding), [case.theirs[left - 1]])
            assert preceding == case.theirs[left - 1], told
        else:
            told = case.disagree(f"previous_before {at}", _known(preceding), [])
            assert preceding is None or preceding <= case.after, told


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


def _probes(case: Case) -> Iterator[int]:
    """Both ends, slots and their surroundings, random instants, and the hours around each jump."""
    rng = random.Random(case.seed)
    yield from (case.after, case.until)
    for slot in rng.sample(case.theirs, min(len(case.theirs), 10)):
        yield from (instant for instant in (slot - 1, slot, slot + 1) if case.after <= instant <= case.until)
    yield from (rng.randint(case.after, case.until) for _ in range(5))
    years = range(to_datetime(case.after).year, to_datetime(case.until).year + 1)
    for change in (change for year in years for change in transitions(case.zone, year)):
        near = [change, *(change + rng.randrange(-150, 150) * MINUTE_MS for _ in range(10))]
        yield from (instant for instant in near if case.after <= instant <= case.until)


def _known(slot: int | None) -> list[int]:
    return [] if slot is None else [slot]


def _yearly(rng: random.Random, zone: ZoneInfo, change: int) -> Case:
    """A job on the date of a jump, over some years that end on the day after."""
    shown = datetime.fromtimestamp(change / 1000 + rng.randrange(-90, 30) * 60, zone)
    text = f"{rng.choice(('*/10', shown.minute))} {rng.choice(('*', shown.hour))} {shown.day} {shown.month} *"
    after, until = max(change - rng.choice((1, 2, 3, 12)) * 366 * DAY_MS, 0), change + DAY_MS
    return Case(f"yearly {change}", text, zone, after, until, debian_fires(text, zone, after, until))
