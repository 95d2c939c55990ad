"""Zones of other libraries become zones that can be hashed and that know their offsets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
import pytz
from dateutil import tz

from celery_catchup.config.configuration import Declaration, load
from celery_catchup.config.fields import to_utc
from celery_catchup.config.times import parse_time
from celery_catchup.timetables.zones import usable_zone

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YEAR = datetime(2026, 1, 1)


@pytest.mark.parametrize(
    ("zone", "usable"),
    [
        (pytz.timezone("Europe/Berlin"), BERLIN),
        (pytz.utc, ZoneInfo("UTC")),
        (tz.gettz("Europe/Berlin"), BERLIN),
        (tz.tzutc(), ZoneInfo("UTC")),
        (BERLIN, BERLIN),
        (UTC, UTC),
    ],
    ids=repr,
)
def test_a_zone_with_a_name_becomes_the_zone_of_that_name(zone: tzinfo, usable: tzinfo) -> None:
    assert usable_zone(zone) == usable


@pytest.mark.parametrize(
    "zone",
    [
        tz.tzoffset("x", 5400),
        tz.tzstr("EST5EDT"),
        tz.tzlocal(),
        pytz.FixedOffset(90),
        timezone(timedelta(hours=2)),
    ],
    ids=repr,
)
def test_a_zone_without_a_name_keeps_its_offsets_and_can_be_hashed(zone: tzinfo) -> None:
    usable = usable_zone(zone)

    assert hash(usable) == hash(usable)
    assert repr(usable) == repr(zone)
    for month in range(1, 13):
        moment = datetime(2026, month, 7, 12, tzinfo=UTC)
        assert moment.astimezone(usable).replace(tzinfo=None) == moment.astimezone(zone).replace(tzinfo=None)
        wall = NEW_YEAR.replace(month=month)
        assert wall.replace(tzinfo=usable).utcoffset() == wall.replace(tzinfo=zone).utcoffset()
        assert wall.replace(tzinfo=usable).dst() == wall.replace(tzinfo=zone).dst()
        assert wall.replace(tzinfo=usable).tzname() == wall.replace(tzinfo=zone).tzname()


@pytest.mark.parametrize(
    "zone", [pytz.timezone("Europe/Berlin"), tz.gettz("Europe/Berlin"), BERLIN], ids=repr
)
def test_a_date_without_an_offset_is_placed_to_the_minute_in_any_zone(zone: tzinfo) -> None:
    midnight = datetime(2025, 12, 31, 23, tzinfo=UTC)

    assert to_utc(NEW_YEAR, zone=zone) == midnight
    assert parse_time("2026-01-01", now=midnight, zone=zone) == midnight
    raw = {"catchup_entries": {"report": {"window": "1d", "start_date": "2026-01-01"}}}
    policy = load(raw, declared={"report": Declaration("0 8 * * *")}, timezone=zone).policies["report"]
    assert policy is not None
    assert policy.start_date == midnight


def test_a_zone_object_stands_for_its_name() -> None:
    raw = {"catchup_entries": {"report": {"window": "1d", "timezone": BERLIN}}}

    policy = load(raw, declared={"report": Declaration("0 8 * * *")}, timezone=UTC).policies["report"]

    assert policy is not None
    assert policy.timezone == "Europe/Berlin"
