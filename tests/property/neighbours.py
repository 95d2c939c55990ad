"""``next_after`` and ``previous_before`` against the known slots of a window."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from zoneinfo import ZoneInfo

from celery_catchup.model import to_datetime
from celery_catchup.timetables.timetable import Timetable
from tests.property.expressions import show, transitions

MINUTE_MS = 60_000


def check_neighbours(
    table: Timetable, slots: list[int], *, zone: ZoneInfo, after: int, until: int, told: str
) -> None:
    """From anywhere in ``[after, until]`` the neighbouring slots are found, and none outside is drawn in."""
    for instant in _probes(slots, zone, after, until):
        left, right = bisect_left(slots, instant), bisect_right(slots, instant)
        following, preceding = table.next_after(instant), table.previous_before(instant)
        if right < len(slots):
            right_one, expected = following == slots[right], show(slots[right : right + 1], zone)
        else:
            right_one, expected = following is None or following > until, "none in the window"
        assert right_one, _told(told, "next_after", instant, following, expected, zone)
        if left > 0:
            right_one, expected = preceding == slots[left - 1], show(slots[left - 1 : left], zone)
        else:
            right_one, expected = preceding is None or preceding <= after, "none in the window"
        assert right_one, _told(told, "previous_before", instant, preceding, expected, zone)


def _probes(slots: list[int], zone: ZoneInfo, after: int, until: int) -> Iterator[int]:
    """Both ends, slots and their surroundings, random instants, and the hours around each jump."""
    rng = random.Random(after)
    instants = [after, until, *(rng.randint(after, until) for _ in range(5))]
    for slot in rng.sample(slots, min(len(slots), 10)):
        instants += [slot - 1, slot, slot + 1]
    for year in range(to_datetime(after).year, to_datetime(until).year + 1):
        for change in transitions(zone, year):
            instants += [change, *(change + rng.randrange(-150, 150) * MINUTE_MS for _ in range(10))]
    return (instant for instant in instants if after <= instant <= until)


def _told(told: str, what: str, instant: int, found: int | None, expected: str, zone: ZoneInfo) -> str:
    ours = "none" if found is None else show([found], zone)
    return f"{told}\n  {what} {show([instant], zone)} ({instant})\n  ours   {ours}\n  theirs {expected}"
