"""Exclusions: which instants are excluded, whatever the source."""

from __future__ import annotations

from datetime import UTC, date, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from celery_catchup.model import to_instant
from celery_catchup.timetables.cron_dialects import parse_cron
from celery_catchup.timetables.exclusions import (
    Exclusions,
    FixedRanges,
    MatchingMinutes,
    YearlyDates,
    days_range,
)

BERLIN = ZoneInfo("Europe/Berlin")
DAY = 86_400_000


def at(*moment: int, zone: ZoneInfo | None = None) -> int:
    return to_instant(datetime(*moment, tzinfo=zone or UTC))  # type: ignore[misc]


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 900)), max_size=6),
    st.integers(0, 3000),
    st.integers(0, 3000),
)
def test_the_ranges_cover_exactly_the_excluded_days(
    ranges: list[tuple[int, int]], after: int, length: int
) -> None:
    fixed = tuple((low * DAY, (low + size) * DAY) for low, size in ranges)
    exclusions = Exclusions([FixedRanges(fixed)])

    found = exclusions.between(after * DAY, (after + length) * DAY)

    days = range(after + 1, after + length + 1)
    expected = {d for d in days if any(low < d * DAY <= high for low, high in fixed)}
    assert {d for d in days if any(low < d * DAY <= high for low, high in found)} == expected
    assert all(a[1] < b[0] for a, b in pairwise(found)), "they are apart and ascending"
    assert {d for d in days if exclusions.contains(d * DAY)} == expected


def test_a_day_is_a_day_of_the_zone_also_when_the_clocks_change() -> None:
    low, high = days_range(date(2026, 3, 29), date(2026, 3, 29), BERLIN)

    assert (low + 1, high + 1) == (at(2026, 3, 29, zone=BERLIN), at(2026, 3, 30, zone=BERLIN))
    assert high - low == 23 * DAY // 24


def test_a_cron_string_excludes_whole_minutes() -> None:
    exclusions = Exclusions([MatchingMinutes(parse_cron("0-29 2 * * *"))])

    assert exclusions.between(at(2026, 2, 7), at(2026, 2, 8)) == [
        (at(2026, 2, 7, 2) - 1, at(2026, 2, 7, 2, 30) - 1)
    ]
    assert exclusions.contains(at(2026, 2, 7, 2, 29, 59))
    assert not exclusions.contains(at(2026, 2, 7, 2, 30))


def test_dates_of_a_year_are_found_at_its_ends() -> None:
    exclusions = Exclusions([YearlyDates(lambda year: [date(year, 1, 1), date(year, 12, 31)], BERLIN)])

    assert exclusions.contains(at(2025, 12, 31, 23, 30)), "New Year in Berlin"
    assert exclusions.contains(at(2026, 12, 31, 12))
    assert not exclusions.contains(at(2027, 1, 1, 23, 30))


def test_the_next_allowed_instant_is_the_first_outside_of_every_range() -> None:
    day = (at(2026, 2, 7) - 1, at(2026, 2, 8) - 1)
    exclusions = Exclusions([FixedRanges((day, (at(2026, 2, 7, 12), at(2026, 2, 9) - 1)))])

    assert exclusions.next_allowed(at(2026, 2, 7, 3)) == at(2026, 2, 9)
    assert exclusions.next_allowed(at(2026, 2, 6, 3)) == at(2026, 2, 6, 3)
    assert Exclusions().next_allowed(5) == 5
