"""``exclude`` and ``catchup_calendars``: what is accepted, what it means, and how mistakes read."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery.schedules import crontab

from celery_catchup.config.configuration import Declaration, load
from celery_catchup.config.exclusions import calendars, compile_exclusions, exclusions
from celery_catchup.errors import ConfigurationError
from celery_catchup.model import to_instant

BERLIN = ZoneInfo("Europe/Berlin")
ICS = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//tests//EN
BEGIN:VEVENT
UID:1
SUMMARY:Inventory
DTSTART;VALUE=DATE:20260105
DTEND;VALUE=DATE:20260107
RRULE:FREQ=YEARLY
END:VEVENT
BEGIN:VEVENT
UID:2
SUMMARY:Maintenance
DTSTART:20260210T220000Z
DTEND:20260211T040000Z
END:VEVENT
END:VCALENDAR
""".replace("\n", "\r\n")


def excluded(items: object, moment: str, *, named: dict[str, Any] | None = None) -> bool:
    compiled = compile_exclusions(exclusions(items), BERLIN, tuple(calendars(named or {}).items()))
    return compiled.contains(to_instant(datetime.fromisoformat(moment).replace(tzinfo=BERLIN)))


@pytest.mark.parametrize(
    ("items", "inside", "outside"),
    [
        ("2026-12-25", ["2026-12-25T00:00", "2026-12-25T23:59"], ["2026-12-24T23:59", "2026-12-26T00:00"]),
        (date(2026, 12, 25), ["2026-12-25T12:00"], ["2026-12-26T00:00"]),
        ("2026-12-24..2026-12-31", ["2026-12-24T00:00", "2026-12-31T23:59"], ["2027-01-01T00:00"]),
        (
            "2026-12-24T18:00..2026-12-27T06:00",
            ["2026-12-24T18:00", "2026-12-27T06:00"],
            ["2026-12-24T17:59", "2026-12-27T06:01"],
        ),
        ("2026-12-24T18:00Z..2026-12-25", ["2026-12-24T19:00"], ["2026-12-24T18:59"]),
        ("* 2-4 * * *", ["2026-02-07T02:00", "2026-02-07T04:59"], ["2026-02-07T05:00"]),
        ("* * * * sat,sun", ["2026-02-07T12:00", "2026-02-08T23:59"], ["2026-02-09T00:00"]),
        (["2026-01-01", "2026-05-01"], ["2026-01-01T08:00", "2026-05-01T08:00"], ["2026-01-02T08:00"]),
    ],
)
def test_what_is_excluded_is_in_the_zone_of_the_entry(
    items: object, inside: list[str], outside: list[str]
) -> None:
    assert [excluded(items, one) for one in inside] == [True] * len(inside)
    assert [excluded(items, one) for one in outside] == [False] * len(outside)


def test_a_repeated_hour_is_excluded_in_both_passes() -> None:
    compiled = compile_exclusions(("30 2 * * *",), BERLIN, ())

    both = [datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1)]

    assert [compiled.contains(to_instant(one)) for one in both] == [True, True]


def test_a_calendar_is_a_list_a_country_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "plant.ics").write_bytes(ICS.encode())
    named = {
        "freeze": ["2026-11-20..2026-11-30"],
        "berlin": {"country": "DE", "subdivision": "BE"},
        "plant": str(tmp_path / "plant.ics"),
    }

    assert excluded("calendar:freeze", "2026-11-30T12:00", named=named)
    assert excluded("calendar:berlin", "2026-03-08T12:00", named=named), "women's day, in Berlin only"
    assert excluded("calendar:plant", "2028-01-06T12:00", named=named), "it recurs every year"
    assert excluded("calendar:plant", "2026-02-11T04:59", named=named), "04:00 UTC is its end"
    assert not excluded("calendar:plant", "2026-02-11T05:00", named=named)
    assert not excluded(["calendar:freeze", "calendar:berlin"], "2026-06-15T12:00", named=named)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (["2026-02-30"], "expected a date such as '2026-12-25'"),
        (["2026-12-31..2026-12-24"], "ends before it starts; swap the two"),
        ([42], "got 42"),
        (["* 25 * * *"], "25"),
        (["*/2 * * * *"], "excludes 720 separate times a day"),
        (["2026-12-25", "soon", "never"], "[2]: expected a date"),
    ],
)
def test_a_wrong_exclusion_says_what_to_write(value: object, problem: str) -> None:
    with pytest.raises(ValueError, match=".*") as caught:
        exclusions(value)

    assert problem in str(caught.value)


def test_every_wrong_calendar_is_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "broken.ics").write_text("BEGIN:VCALENDAR\r\nno property here\r\n")
    raw = {
        "a": {"country": "Atlantis"},
        "b": {"country": "DE", "subdivision": "XX"},
        "c": str(tmp_path / "missing.ics"),
        "d": str(tmp_path / "broken.ics"),
        "e": ["calendar:a"],
        "f": 7,
    }

    with pytest.raises(ValueError, match=".*") as caught:
        calendars(raw)

    text = str(caught.value)
    for part in (
        "['a']: unknown country 'Atlantis'",
        "['b']: DE has no subdivision 'XX'; use one of: BB",
        "['c']: cannot read",
        "['d']: ",
        "['e']: a calendar cannot contain another",
        "['f']: expected a list of dates",
    ):
        assert part in text


def test_an_unknown_calendar_and_a_foreign_dialect_are_mistakes_of_the_entry() -> None:
    raw = {
        "catchup_cron_dialect": "posix",
        "catchup_calendars": {"holidays": ["2026-12-25"]},
        "catchup_entries": {"etl": {"window": "6h", "exclude": ["calendar:holiday", "* */4 * * *"]}},
    }

    with pytest.raises(ConfigurationError) as caught:
        load(raw, declared={"etl": Declaration(crontab(minute=0))}, timezone=UTC)

    first, second = (str(mistake) for mistake in caught.value.mistakes)
    assert first == "catchup_entries.etl.exclude: unknown calendar 'holiday'; did you mean 'holidays'?"
    assert "*/4" in second
