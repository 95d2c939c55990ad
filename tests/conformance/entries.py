"""From the words of a case to the package's own entries, states and plans."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import tzinfo
from typing import Any

from celery_catchup.config.policy import Policy, SchedulePolicy
from celery_catchup.model import Instant, Plan, RunState, Skip, Slot
from celery_catchup.planning.entry import Entry, EntryState, Schedule
from celery_catchup.timetables.cron_dialects import parse_cron
from celery_catchup.timetables.zones import zone_named
from tests.conformance.fields import Fields, instant

LONG_AGO: Instant = 0


def entry_of(case: Fields, *, name: str = "entry", **shared: Any) -> Entry:
    """The entry that a case describes: its schedules, and every field that a policy has."""
    zone = zone_named(case.take("timezone", "UTC"))
    crons = case.take("cron")
    own = case.take("schedules", None)
    if own is None:
        schedules = tuple(Schedule(parse_cron(cron, zone=zone)) for cron in crons)
    else:
        assert [raw["cron"] for raw in own] == crons
        schedules = tuple(_schedule(raw, zone) for raw in own)
    policy = {**shared, **policy_fields(case)}
    return Entry(name, schedules, Policy.from_raw(policy, where="case"))


def policy_fields(case: Fields) -> dict[str, Any]:
    """What the case says in the policy's own words."""
    given = {field: case.take(field, None) for field in Policy.model_fields}
    return {field: value for field, value in given.items() if value is not None}


def _schedule(raw: dict[str, Any], zone: tzinfo) -> Schedule:
    overrides = {key: value for key, value in raw.items() if key != "cron"}
    return Schedule(parse_cron(raw["cron"], zone=zone), SchedulePolicy.model_validate(overrides))


def state_of(case: Fields, entry: Entry) -> EntryState:
    """What is known of the entry when the case begins."""
    running = bool(case.take("running", False))
    latest_start, trigger = case.time("latest_run_start", None), case.take("latest_run_trigger", None)
    paused_at, resumed = case.time("paused_at", None), case.take("trigger", "restart") == "resume"
    paused = bool(case.take("paused", False))
    assert resumed or paused or paused_at is None, "a pause is either going on or being resumed"
    return EntryState(
        first_seen_at=case.time("first_seen_at", None) or LONG_AGO,
        decided=case.time("last_dispatched_slot", None),
        manual_start=latest_start if trigger == "manual" else None,
        paused=paused,
        paused_at=paused_at,
        active=1 if running else 0,
        existing=existing_of(case.take("existing_runs", []), entry),
    )


def existing_of(raw: Iterable[dict[str, Any]], entry: Entry) -> dict[Slot, RunState]:
    """The runs in the ledger: each belongs to the schedules that have its slot."""
    runs = {}
    for run in raw:
        assert set(run) <= {"slot", "state", "trigger"}, run
        at = instant(run["slot"])
        for index, schedule in enumerate(entry.schedules):
            if schedule.timetable.next_after(at - 1) == at:
                runs[Slot(at, index)] = RunState(run.get("state", "queued"))
    return runs


def watermark_of(value: Any) -> Instant | None:
    """A watermark that is missing or cannot be read is no watermark."""
    return None if value in (None, "corrupt") else instant(value)


def listed(entry: Entry, skips: Iterable[Skip]) -> list[tuple[Instant, str]]:
    """Every skipped slot with its reason, in slot order."""
    return sorted(
        (at, str(skip.reason))
        for skip in skips
        for at in entry.schedules[skip.schedule].timetable.slots(skip.first - 1, skip.last)
    )


def started(plan: Plan) -> list[Instant]:
    return [run.slot.at for run in plan.runs]
