"""Moments as people write them."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from celery_catchup.config.times import parse_time

NOW = datetime(2026, 2, 7, 12, 2, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, *, whole_day: bool = False) -> str:
    return parse_time(text, now=NOW, zone=BERLIN, whole_day=whole_day).isoformat()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", "2026-02-07T12:02:00+00:00"),
        ("6h ago", "2026-02-07T06:02:00+00:00"),
        ("1d30m ago", "2026-02-06T11:32:00+00:00"),
        (" 90s ago ", "2026-02-07T12:00:30+00:00"),
        ("2026-02-07T10:00:00Z", "2026-02-07T10:00:00+00:00"),
        ("2026-02-07T10:00Z", "2026-02-07T10:00:00+00:00"),
        ("2026-02-07T10:00+05:00", "2026-02-07T05:00:00+00:00"),
        ("2026-02-07 10:00", "2026-02-07T09:00:00+00:00"),
        ("2026-02-07", "2026-02-06T23:00:00+00:00"),
        ("today", "2026-02-06T23:00:00+00:00"),
        ("yesterday", "2026-02-05T23:00:00+00:00"),
        ("2026-03-29", "2026-03-28T23:00:00+00:00"),
    ],
)
def test_a_time_is_read(text: str, moment: str) -> None:
    assert at(text) == moment


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-02-07", "2026-02-07T22:59:59.999000+00:00"),
        ("yesterday", "2026-02-06T22:59:59.999000+00:00"),
        ("2026-03-29", "2026-03-29T21:59:59.999000+00:00"),  # a day of 23 hours
        ("2026-02-07T10:00Z", "2026-02-07T10:00:00+00:00"),
        ("now", "2026-02-07T12:02:00+00:00"),
    ],
)
def test_as_the_end_of_a_range_a_date_is_its_last_moment(text: str, moment: str) -> None:
    assert at(text, whole_day=True) == moment


@pytest.mark.parametrize(
    "text",
    ["", "soon", "6h", "6x ago", "ago", "-6h ago", "2026-13-01", "07.02.2026", "1500000000", "99999d ago"],
)
def test_what_is_no_time_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(ValueError, match="expected a time|is longer than"):
        at(text)


def test_the_last_day_of_all_is_no_overflow() -> None:
    assert parse_time("9999-12-31", now=NOW, zone=UTC, whole_day=True).year == 9999


def test_since_takes_a_bare_duration_too() -> None:
    assert parse_time("6h", now=NOW, zone=UTC, since=True).hour == 6
    assert parse_time("6h ago", now=NOW, zone=UTC, since=True).hour == 6
    assert parse_time("2026-02-07", now=NOW, zone=UTC, since=True).hour == 0
    with pytest.raises(ValueError, match="expected a time"):
        parse_time("6", now=NOW, zone=UTC, since=True)
