"""Random cron expressions, time zones and windows for the differential tests; every draw is seeded."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

ZONES = (
    "UTC",
    "America/New_York",
    "Europe/London",
    "Europe/Dublin",  # its summer time is the standard, so its dst() is negative in winter
    "Australia/Lord_Howe",  # moves by half an hour
    "America/Santiago",  # its gap is at midnight
    "Africa/Casablanca",  # pauses summer time during Ramadan
    "Asia/Kolkata",  # half an hour off the whole hours, no changes
    "Antarctica/Troll",  # moves by two hours
    "Pacific/Chatham",  # 45 minutes off the whole hours, changes at 02:45
    "America/Caracas",  # moved by half an hour, years apart
    "Pacific/Apia",  # skipped a whole day in 2011
)
YEARS = range(1973, 2051)

_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_WEEKDAYS = "sun mon tue wed thu fri sat".split()


@dataclass(frozen=True)
class Kind:
    """A cron field: its bounds, how often (in %) it is a bare star, its names, and values of interest."""

    low: int
    high: int
    stars: int
    names: tuple[str, ...] = ()
    often: tuple[int, ...] = ()


MINUTE = Kind(0, 59, stars=15)
HOUR = Kind(0, 23, stars=25, often=(23, 0, 1, 2, 3))  # when wall clocks jump
DAY_OF_MONTH = Kind(1, 31, stars=55)
MONTH = Kind(1, 12, stars=65, names=tuple(_MONTHS))
DAY_OF_WEEK = Kind(0, 7, stars=55, names=tuple(_WEEKDAYS))
FIELDS = (MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK)


def expression(rng: random.Random, fields: tuple[Kind, ...] = FIELDS) -> str:
    """Five fields of plain cron: stars, numbers, names, ranges, steps and lists."""
    return " ".join(_field(rng, kind) for kind in fields)


def special_expression(rng: random.Random) -> str:
    """An expression with one or two fields in the forms that cron itself does not have."""
    fields = expression(rng).lower().split()
    for index in rng.sample(range(5), rng.randint(1, 2)):
        fields[index] = rng.choice(_special_forms(rng, index))
    if set(fields[2]) & set("LW") and set(fields[4]) & set("L#"):  # croniter makes a third thing of the two
        fields[4] = "*"
    return " ".join(fields)


def _special_forms(rng: random.Random, index: int) -> list[str]:
    kind = FIELDS[index]
    value, step = _value(rng, kind), _step(rng, kind)
    forms = [f"{value}/{step}", f"{kind.high - 1}-{kind.low + 1}", f"{_number(rng, kind)},{value}/{step}"]
    if kind is DAY_OF_MONTH:
        forms += ["?", "L", f"{rng.randint(1, 28)},L", f"{rng.randint(1, 31)}W"]
    if kind is DAY_OF_WEEK:
        first, second = rng.sample(range(7), 2)
        forms += ["?", f"L{first}", f"{first}#{rng.randint(1, 5)}", f"{first}#1,{second}#{rng.randint(1, 5)}"]
    return forms


def _field(rng: random.Random, kind: Kind) -> str:
    if rng.randrange(100) < kind.stars:
        return "*"
    shape = rng.randrange(100)
    if shape < 22:
        return f"*/{_step(rng, kind)}"
    if shape < 24:
        return ",".join(rng.sample(["*", _number(rng, kind)], 2))
    if shape < 55:
        return _number(rng, kind)
    parts = 1 if shape < 75 else rng.randint(2, 4)
    return ",".join(_range(rng, kind) if rng.random() < 0.5 else _number(rng, kind) for _ in range(parts))


def _range(rng: random.Random, kind: Kind) -> str:
    first, last = sorted((_value(rng, kind), _value(rng, kind)))
    step = f"/{_step(rng, kind)}" if rng.random() < 0.4 else ""
    return f"{_spell(rng, kind, first)}-{_spell(rng, kind, last)}{step}"


def _step(rng: random.Random, kind: Kind) -> int:
    return rng.choice((2, 3, 5, 7, 10, 15, 20, 30)) if kind.high > 23 else rng.randint(1, kind.high // 2)


def _number(rng: random.Random, kind: Kind) -> str:
    return _spell(rng, kind, _value(rng, kind))


def _value(rng: random.Random, kind: Kind) -> int:
    if kind.often and rng.random() < 0.5:
        return rng.choice(kind.often)
    return rng.randint(kind.low, kind.high)


def _spell(rng: random.Random, kind: Kind, value: int) -> str:
    if value - kind.low < len(kind.names) and rng.random() < 0.3:
        name = kind.names[value - kind.low]
        return rng.choice((name, name.upper(), name.capitalize()))
    return str(value)


def moment(rng: random.Random, zone: ZoneInfo) -> int:
    """An instant to start from: in 60 of 100 draws shortly before the zone changes its offset."""
    year = rng.choice(YEARS)
    if rng.randrange(100) < 60 and (nearby := transitions(zone, year)):
        return rng.choice(nearby) - rng.randrange(30 * HOUR_MS)
    return _instant(date(year, 1, 1)) + rng.randrange(365 * DAY_MS)


@cache
def transitions(zone: ZoneInfo, year: int) -> tuple[int, ...]:
    """The instants at which the zone's UTC offset changes, to the minute."""
    first, last = _instant(date(year, 1, 1)), _instant(date(year + 1, 1, 1))
    return tuple(
        _change(zone, day, day + DAY_MS)
        for day in range(first, last, DAY_MS)
        if _offset(zone, day) != _offset(zone, day + DAY_MS)
    )


def _change(zone: ZoneInfo, before: int, after: int) -> int:
    while after - before > 60_000:
        middle = (before + after) // 2 // 60_000 * 60_000
        if _offset(zone, middle) == _offset(zone, before):
            before = middle
        else:
            after = middle
    return after


def _offset(zone: ZoneInfo, instant: int) -> timedelta | None:
    return datetime.fromtimestamp(instant / 1000, zone).utcoffset()


def _instant(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1000


def show(instants: list[int], zone: ZoneInfo, limit: int = 6) -> str:
    """Instants for a failure message: UTC and the wall clock, the first few of them."""
    shown = [
        f"{datetime.fromtimestamp(instant / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
        f" ({datetime.fromtimestamp(instant / 1000, zone):%a %H:%M %Z})"
        for instant in instants[:limit]
    ]
    rest = [f"… {len(instants)} in all"] if len(instants) > limit else []
    return ", ".join(shown + rest) or "none"
