"""Slots: enumerating them against croniter, finding the next one, and planning millions of them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from zoneinfo import ZoneInfo

from croniter import croniter

from benchmarks.measuring import Findings, Row, Table, best_of, memory_of
from benchmarks.stage import Stage
from celery_catchup.config.policy import Policy
from celery_catchup.model import Instant, to_datetime, to_instant
from celery_catchup.planning.entry import Entry, EntryState, Schedule
from celery_catchup.planning.planner import plan
from celery_catchup.planning.scope import replay
from celery_catchup.timetables.cron_dialects import parse_cron

START = datetime(2026, 1, 1, tzinfo=UTC)
ZONES = ("UTC", "Europe/Berlin", "America/New_York")
CRONITER_SLOTS = 20_000
DAY = timedelta(days=1)

ENTRIES = 10_000
MIXED = (
    "* * * * *",
    "*/5 * * * *",
    "{m} * * * *",
    "{m} {h} * * *",
    "{m} {h} * * 1-5",
    "{m} {h} 1 * *",
    "0 0 29 2 *",
)

OUTAGE = 1826 * DAY  # five years of minutes: 2.6 million slots
POLICIES: dict[str, dict[str, object]] = {
    "select: latest": {"select": "latest"},
    "overlap_policy: skip": {"overlap_policy": "skip"},
    "overlap_policy: all, max_runs: 20": {"overlap_policy": "all", "max_runs": 20},
}


def measure(stage: Stage) -> Findings:
    """Listing, finding and planning; a short run lists fewer days."""
    part = stage.scale.part
    rows = [
        *(against_croniter("* * * * *", name, days=365 // part, bar=100) for name in ZONES),
        *(against_croniter("0 9 * * 1-5", name, days=3652 // part, bar=40) for name in ZONES),
        next_slot_row(ENTRIES // part),
        *planning_rows(),
    ]
    note = (
        f"croniter is timed on at most {CRONITER_SLOTS:,} slots and compared per slot; each is at its best of"
        " some runs. The bare walk is a Python loop over the sets of days, hours and minutes that adds up"
        " integers: it knows no daylight saving."
    )
    headers = ("slots", "", "wanted", "verdict")
    shown = [(row.what, row.figures, row.bar, row.verdict) for row in rows]
    return Findings([Table("Slots", headers, shown, note)])  # with bars of its own


def against_croniter(text: str, name: str, *, days: int, bar: float) -> Row:
    """How many of our slots are listed in the time of one of croniter's; parsing counts on both sides."""
    zone = ZoneInfo(name)
    after, until = to_instant(START), to_instant(START + days * DAY)

    def ours() -> list[Instant]:
        return list(parse_cron(text, zone=zone).slots(after, until))

    def theirs() -> list[float]:
        dates = croniter(text, START.astimezone(zone))
        return [dates.get_next(float) for _ in range(part)]

    def bare() -> list[int]:
        return walk(text, after // 60_000, until // 60_000)

    count = len(ours())  # this also reads the zone's changes, as the first tick of a beat does
    part = min(count, CRONITER_SLOTS)
    our_time, their_time = best_of(ours) / count, best_of(theirs, repeats=3) / part
    limit = best_of(bare) / count
    ratio = their_time / our_time
    figures = (
        f"{ratio:,.0f} × croniter ({our_time * 1e9:,.0f} ns, croniter {their_time * 1e6:,.1f} µs,"
        f" bare walk {limit * 1e9:,.0f} ns a slot)"
    )
    return Row.at_least(
        f"{text}, {days} days, {name}: {count:,} slots", ratio, bar, unit="×", figures=figures
    )


def walk(text: str, first: int, last: int) -> list[int]:
    """The minutes of a plain expression in ``(first, last]``, in UTC: the least that a walk has to do."""
    minutes, hours = (range(60), range(24)) if text.startswith("*") else ((0,), (9,))
    days = range(7) if text.startswith("*") else range(1, 6)
    found = []
    for day in range(first // 1440, last // 1440 + 1):
        if (day + 4) % 7 in days:  # the epoch began on a Thursday
            found += [day * 1440 + hour * 60 + minute for hour in hours for minute in minutes]
    return [minute for minute in found if first < minute <= last]


def next_slot_row(count: int) -> Row:
    """One pass over all entries, an hour before the clocks go back: the slowest time of the year."""
    rng = random.Random(20)
    zone = ZoneInfo("America/New_York")
    texts = (form.format(m=rng.randrange(60), h=rng.randrange(24)) for form in islice(cycle(MIXED), count))
    tables = [parse_cron(text, zone=zone) for text in texts]
    now = to_instant(datetime(2026, 11, 1, 5, tzinfo=UTC))

    seconds = best_of(lambda: [table.next_after(now) for table in tables])
    figures = f"{seconds:.3f} s, {seconds / count * 1e6:.1f} µs each"
    return Row.at_most(
        f"{count:,} mixed entries, America/New_York",
        seconds,
        0.2 * count / ENTRIES,
        unit="s",
        figures=figures,
    )


def planning_rows() -> list[Row]:
    return [row for title, policy in POLICIES.items() for row in plan_rows(title, policy)]


def plan_rows(title: str, raw: dict[str, object]) -> list[Row]:
    """Time and memory of one plan over all missed slots."""
    policy = Policy.from_raw({"window": OUTAGE, **raw}, where="bench")
    table = parse_cron("* * * * *", zone=ZoneInfo("Europe/Berlin"))
    entry = Entry("bench", (Schedule(table),), policy)
    now, down = to_instant(START), to_instant(START - OUTAGE)
    state = EntryState(first_seen_at=down)

    def planned() -> object:
        return plan(entry, state, replay(entry, state, scheduler_watermark=down, now=now))

    made = plan(entry, state, replay(entry, state, scheduler_watermark=down, now=now))
    last = f"last {to_datetime(made.runs[-1].slot.at):%Y-%m-%d}" if made.runs else "none"
    what = f"{title}: {len(made.runs)} runs ({last}), {made.skipped:,} skipped"
    seconds, extra = best_of(planned), memory_of(planned) / 2**20
    return [
        Row.at_most(what, seconds, 0.5, unit="s"),
        Row.at_most("… additional memory", extra, 20, unit="MiB"),
    ]
