"""Random entries, states and outages, for the properties of the planner."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from celery_catchup.config.policy import Policy, SchedulePolicy
from celery_catchup.model import Instant, RunState, Slot, to_instant
from celery_catchup.planning.entry import Entry, EntryState, Pause, Schedule
from celery_catchup.timetables.cron_dialects import parse_cron
from celery_catchup.timetables.exclusions import Exclusions, FixedRanges

NOON: Instant = to_instant(datetime(2026, 3, 29, 12, tzinfo=UTC))  # hours after Europe's change of clocks
MINUTE = 60_000
ZONES = [ZoneInfo("UTC"), ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")]
CRONS = [
    "* * * * *",
    "*/7 * * * *",
    "0 * * * *",
    "30 2 * * *",
    "0,30 1-3 * * *",
    "0 0 * * 0",
    "15 9 * * 1-5",
    "0 0 30 2 *",
]

crons = st.builds(
    lambda text, zone: parse_cron(text, zone=zone), st.sampled_from(CRONS), st.sampled_from(ZONES)
)
minutes = st.integers(0, 36 * 60)
durations = st.integers(1, 36 * 60).map(lambda n: timedelta(minutes=n))
instants = st.integers(-36 * 60, 30).map(lambda n: NOON + n * MINUTE)

excluded = st.lists(
    st.tuples(instants, st.integers(1, 300)).map(lambda one: (one[0], one[0] + one[1] * MINUTE)), max_size=3
).map(lambda ranges: Exclusions([FixedRanges(tuple(ranges))] if ranges else []))
pauses = st.builds(Pause, instants, st.none() | instants, st.booleans())


@st.composite
def overrides(draw: st.DrawFn) -> SchedulePolicy | None:
    if draw(st.booleans()):
        return None
    return SchedulePolicy(select=draw(st.sampled_from(["all", "latest", False])), window=draw(durations))


schedules = st.builds(Schedule, crons, overrides())


@st.composite
def entries(draw: st.DrawFn, **fixed: Any) -> Entry:
    """An entry of one to three schedules under any policy; ``fixed`` fields are as given."""
    overlap = draw(st.sampled_from(["skip", "all", "allow", "buffer_one", "cancel_other", "terminate_other"]))
    policy: dict[str, Any] = {
        "window": draw(durations),
        "select": draw(st.sampled_from(["all", "latest", "span", False])),
        "overlap_policy": overlap,
        "max_runs": draw(st.none() | st.integers(1, 30)),
        "keep": draw(st.sampled_from(["oldest", "newest"])),
        "on_resume": draw(st.sampled_from(["catchup", "discard"])),
        "skip_if_successful": draw(st.booleans()),
        "misfire_threshold": draw(
            st.sampled_from([timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=2)])
        ),
        "jitter": draw(st.none() | st.just(timedelta(minutes=5))),
    } | fixed
    if policy["overlap_policy"] == "all":
        policy["max_pending"] = draw(st.none() | st.integers(1, 5)) if "max_pending" not in fixed else None
    if policy["select"] == "span":
        policy["max_span"] = draw(st.none() | durations)
    if draw(st.booleans()):
        policy["start_date"] = datetime(2026, 3, 28, 9, tzinfo=UTC)
    declared = draw(st.lists(schedules, min_size=1, max_size=3))
    if policy["select"] == "span":  # of the whole entry, or of none of its schedules
        windows = (one.overrides and SchedulePolicy(window=one.overrides.window) for one in declared)
        declared = [replace(one, overrides=own) for one, own in zip(declared, windows, strict=True)]
    kept = {key: value for key, value in policy.items() if value is not None}
    return Entry(
        "etl",
        tuple(declared),
        Policy.from_raw(kept, where="etl"),
        draw(excluded),
    )


@st.composite
def states(draw: st.DrawFn, entry: Entry) -> EntryState:
    """What may be known of an entry, with some of its slots in the ledger already."""
    existing = {}
    for index, schedule in enumerate(entry.schedules):
        for at in draw(st.lists(instants, max_size=3)):
            following = schedule.timetable.next_after(at)
            if following is not None:
                existing[Slot(following, index)] = draw(st.sampled_from(RunState))
    return EntryState(
        first_seen_at=draw(instants),
        decided=draw(st.none() | instants),
        manual_start=draw(st.none() | instants),
        manual_success=draw(st.none() | instants),
        paused_at=draw(st.none() | instants),
        pauses=tuple(draw(st.lists(pauses, max_size=2))),
        removed=draw(st.none() | st.tuples(instants, instants).map(lambda ends: (min(ends), max(ends)))),
        active=draw(st.integers(0, 2)),
        waiting=draw(st.integers(0, 2)),
        existing=existing,
    )
