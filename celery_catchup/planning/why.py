"""Why a slot ran, waits or was skipped, and why a time is not a slot: the rule with its values.

Pure: it gets the entry, its state and what was recorded. What will happen, and what would have happened under
another policy, is what the planner says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum

from celery_catchup.config.durations import format_duration
from celery_catchup.config.policy import Keep, OnResume, Policy, Select
from celery_catchup.config.policy_choice import PolicyChoice
from celery_catchup.error_text import counted
from celery_catchup.model import (
    Instant,
    Plan,
    PlannedRun,
    RunState,
    Skip,
    SkipReason,
    Slot,
    Trigger,
    to_datetime,
    to_rfc3339,
)
from celery_catchup.planning.entry import Entry, EntryState, Role
from celery_catchup.planning.planner import most_unfinished, plan
from celery_catchup.planning.recorded_catchup import RecordedCatchup, outcome, reason_of
from celery_catchup.planning.scope import replay
from celery_catchup.timetables.cron_table import CronTable
from celery_catchup.timetables.zones import DAY, offset_period_at

_YEAR = 366 * DAY


class NoSlotReason(StrEnum):
    """Why an entry has no slot at a time."""

    NO_MATCH = "no_match"
    EXCLUDED = "excluded"
    CLOCK_CHANGE = "clock_change"
    BEFORE_START_DATE = "before_start_date"
    AFTER_END_DATE = "after_end_date"


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule that decided, its values, and both as a sentence."""

    rule: str
    sentence: str
    values: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NoSlot:
    """Why a time is not a slot, and the nearest slots before and after it that can run."""

    reason: NoSlotReason
    sentence: str
    before: Instant | None
    after: Instant | None


@dataclass(frozen=True, slots=True)
class Alternative:
    """The decision under a condition that does not hold: another policy, or a run that is still active.
    ``reason`` is why the slot would be skipped, None if it would run."""

    condition: str
    reason: SkipReason | None


# -- times that are no slots ---------------------------------------------------------------------


def slots_at(entry: Entry, at: Instant) -> list[Slot]:
    """Return the slots of the entry at an instant, one for each schedule that has one; without those that
    only stop runs."""
    return [
        slot
        for index, schedule in enumerate(entry.schedules)
        if schedule.role is not Role.STOP and entry.has_slot(slot := Slot(at, index))
    ]


def explain_no_slot(entry: Entry, at: Instant) -> NoSlot:
    """Explain why an entry has no slot at an instant."""
    reason, sentence = _why_no_slot(entry, at)
    starting = [index for index, one in enumerate(entry.schedules) if one.role is not Role.STOP]
    before = (_run_before(entry, index, at) for index in starting)
    after = (entry.next_run_after(index, at) for index in starting)
    return NoSlot(
        reason,
        sentence,
        max((slot for slot in before if slot is not None), default=None),
        min((slot for slot in after if slot is not None), default=None),
    )


def _why_no_slot(entry: Entry, at: Instant) -> tuple[NoSlotReason, str]:
    for index, schedule in enumerate(entry.schedules):
        table, bounds = schedule.timetable, entry.bounds[index]
        if schedule.role is Role.STOP:
            continue
        if table.next_after(at - 1) == at:
            if bounds.after is not None and at <= bounds.after:
                first = to_rfc3339(bounds.after + 1)
                return NoSlotReason.BEFORE_START_DATE, f"the schedule matches, but start_date is {first}"
            if bounds.until is not None and at > bounds.until:
                last = to_rfc3339(bounds.until)
                return NoSlotReason.AFTER_END_DATE, f"the schedule matches, but end_date is {last}"
            low, high = _exclusion_of(entry, at) or (at - 1, at)
            return (
                NoSlotReason.EXCLUDED,
                f"the schedule matches, but exclude covers {to_rfc3339(low + 1)} to {to_rfc3339(high)}",
            )
        if isinstance(table, CronTable) and _is_moved(table, at):
            return (
                NoSlotReason.CLOCK_CHANGE,
                f"the schedule names this time, but the clock of {table.zone} changes there: a time that "
                "does not exist runs when the gap ends, and one that occurs twice runs the first time",
            )
    return NoSlotReason.NO_MATCH, "the schedule does not match this time"


def _is_moved(table: CronTable, at: Instant) -> bool:
    """Whether a change of the clock keeps a matching time from being a slot: it does not exist that day, or
    is the second pass of a repeated hour."""
    period = offset_period_at(table.zone, at)
    if not period.shift or at >= period.begin + abs(period.shift):
        return False
    day, time = divmod(at + period.offset - max(period.shift, 0), DAY)
    hour, minute = divmod(time // 60_000, 60)
    return table.days.matches(day) and hour in table.hours and minute in table.minutes


def _run_before(entry: Entry, schedule: int, at: Instant) -> Instant | None:
    """Return the schedule's last slot before the instant that is not excluded, within its dates."""
    table, bounds = entry.schedules[schedule].timetable, entry.bounds[schedule]
    at = at if bounds.until is None else min(at, bounds.until + 1)
    found = table.previous_before(at)
    while found is not None and (excluded := _exclusion_of(entry, found)) is not None:
        found = table.previous_before(excluded[0] + 1)
    return None if found is None or (bounds.after is not None and found <= bounds.after) else found


def _exclusion_of(entry: Entry, at: Instant) -> tuple[Instant, Instant] | None:
    """Return the excluded range ``(after, until]`` around an instant, cut at a year's distance."""
    if not entry.exclusions.contains(at):
        return None
    near = entry.exclusions.between(at - _YEAR, at + _YEAR)
    return next((one for one in near if one[0] < at <= one[1]), None)


# -- recorded decisions --------------------------------------------------------------------------


def explain_skip(  # noqa: C901 - one case for each reason
    entry: Entry,
    at: Instant,
    reason: SkipReason | str,
    *,
    busy: int = 0,
    run_id: str | None = None,
    catchup: RecordedCatchup | None = None,
) -> Rule:
    """Explain a recorded skip: ``busy`` runs of the entry had not ended, ``run_id`` is the run that the slot
    was skipped for, and ``catchup`` decided it, None if it was live."""
    known = reason if isinstance(reason, SkipReason) else None
    policy = entry.policy
    match known:
        case SkipReason.EXPIRED if catchup is not None:
            return _expired(entry, at, catchup)
        case SkipReason.GUARD_BLOCKED:
            return _guarded(policy, busy, catchup)
        case SkipReason.CAP_EXCEEDED:
            return _capped(policy, catchup)
        case SkipReason.SUPERSEDED:
            return _superseded(policy)
        case SkipReason.PAUSED | SkipReason.DISCARDED:
            return _discarded(policy, at, known, catchup)
        case SkipReason.CATCHUP_OFF:
            return _not_caught_up(policy, at, catchup)
        case SkipReason.REMOVED | SkipReason.MANUAL_RUN:
            return _passed_over(known, run_id, catchup)
        case SkipReason.COVERED:
            return Rule(
                "select",
                "select is span: one run, of the newest slot, stands for the whole gap",
                _present({"select": "span", "run": run_id, "max_span": policy.max_span}),
            )
        case SkipReason.EXCLUDED:
            return Rule("exclude", "exclude covers the slot", {"exclude": ", ".join(policy.exclude)})
        case None:
            return Rule("unknown", f"skipped for the reason {reason}, which this version does not know")
        case _:
            return Rule(str(known), known.rule.meaning)


def _not_caught_up(policy: Policy, at: Instant, catchup: RecordedCatchup | None) -> Rule:
    threshold = format_duration(policy.misfire_threshold)
    late = None if catchup is None else timedelta(milliseconds=catchup.at - at)
    return Rule(
        "select",
        f"select is False: a slot that is handled more than {threshold} late does not run",
        _present({"select": False, "misfire_threshold": policy.misfire_threshold, "late_by": late}),
    )


def _passed_over(reason: SkipReason, run_id: str | None, catchup: RecordedCatchup | None) -> Rule:
    facts = {} if catchup is None else catchup.facts
    if reason is SkipReason.REMOVED:
        after, until = facts.get("removed") or (None, None)
        values = {"removed_at": _time(after), "declared_again_at": _time(until)}
        return Rule("removed", "the entry was not declared at that time", _present(values))
    return Rule(
        "manual_run",
        "a manual run was started later, before the slot was decided: the slot counts as done by it",
        _present({"manual_run": run_id, "started_at": _time(facts.get("manual_start"))}),
    )


def _expired(entry: Entry, at: Instant, catchup: RecordedCatchup) -> Rule:
    held = catchup.facts.get("held_at")
    seen = min(catchup.at, held or catchup.at)
    windows = {one.window for one in entry.bounds if one.window is not None}
    if not windows:
        return Rule("window", "the slot was older than the window at that time", {})
    window = max(windows)
    values = {
        "window": timedelta(milliseconds=window),
        "recovered_after": to_datetime(seen - window),
        "late_by": timedelta(milliseconds=seen - at),
    }
    length = format_duration(timedelta(milliseconds=window))
    return Rule(
        "window",
        f"when beat came back, the slot was older than the window of {length}: only slots after "
        f"{to_rfc3339(seen - window)} are recovered",
        values,
    )


def _guarded(policy: Policy, busy: int, catchup: RecordedCatchup | None) -> Rule:
    most, overlap = most_unfinished(policy), policy.overlap_policy
    values = {"overlap_policy": str(overlap), "unfinished_runs": busy, "most_unfinished": most}
    if policy.skip_if_successful and (most is None or busy < most) and catchup is None:
        return Rule(
            "skip_if_successful",
            "a run of the entry had succeeded since the slot before",
            {"skip_if_successful": True},
        )
    if most is not None and busy >= most:
        return Rule(
            "overlap_policy",
            f"overlap_policy is {overlap}: {counted(busy, 'run')} of the entry had not ended, and it may "
            f"have {most}",
            values,
        )
    if most is not None and catchup is not None:
        return Rule(
            "overlap_policy",
            f"overlap_policy is {overlap}: of the missed slots it runs {most - busy}, the oldest",
            values,
        )
    return Rule("guard", "the task's own guard kept it back, or the policy was another one then", values)


def _capped(policy: Policy, catchup: RecordedCatchup | None) -> Rule:
    share = None if catchup is None else catchup.facts.get("allowance")
    own = policy.max_runs
    if own is not None and (share is None or own <= share):
        kept = "newest" if policy.keep is Keep.NEWEST or policy.select is Select.LATEST else "oldest"
        return Rule(
            "max_runs",
            f"max_runs is {own}: a catch-up runs that many slots, the {kept} ones",
            {"max_runs": own, "keep": kept},
        )
    return Rule(
        "catchup_max_runs",
        "catchup_max_runs was used up by the older slots of all entries",
        _present({"share_of_the_entry": share}),
    )


def _superseded(policy: Policy) -> Rule:
    overlap = policy.overlap_policy
    if overlap.rule.replaces is not None:
        return Rule(
            "overlap_policy",
            f"overlap_policy is {overlap}: of several missed slots only the newest runs",
            {"overlap_policy": str(overlap)},
        )
    return Rule("select", "select is latest: a newer missed slot ran instead", {"select": "latest"})


def _discarded(policy: Policy, at: Instant, reason: SkipReason, catchup: RecordedCatchup | None) -> Rule:
    pause = None if catchup is None else catchup.pause_of(at)
    values: dict[str, object] = {}
    if pause is not None:
        until = None if pause.until is None else to_datetime(pause.until)
        values = _present({"since": to_datetime(pause.after), "until": until})
    if reason is SkipReason.DISCARDED:
        return Rule(
            "hold_above",
            "its catch-up had more runs than hold_above, was held for an approval, and was discarded",
            values | _present({"hold_above": policy.hold_above}),
        )
    if pause is not None and pause.discard:
        return Rule("resume", "the entry was paused, and resumed without a catch-up", values)
    return Rule(
        "on_resume",
        "the entry was paused, and on_resume is discard",
        values | {"on_resume": str(OnResume.DISCARD)},
    )


def explain_run(
    entry: Entry | None,
    at: Instant,
    trigger: Trigger,
    *,
    busy: int = 0,
    catchup: RecordedCatchup | None = None,
) -> Rule:
    """Explain why a slot has a run."""
    match trigger:
        case Trigger.BACKFILL:
            return Rule("backfill", "a person or program asked for it with a backfill")
        case Trigger.MANUAL:
            return Rule("manual", "a person or program started it by hand")
        case Trigger.SCHEDULER:
            values: dict[str, object] = {"unfinished_runs": busy} if busy else {}
            if entry is not None:
                values["misfire_threshold"] = entry.policy.misfire_threshold
            return Rule("schedule", "it was due, and beat handled it in time", values)
        case Trigger.CATCHUP:
            return _caught_up(entry, at, busy, catchup)


def _caught_up(entry: Entry | None, at: Instant, busy: int, catchup: RecordedCatchup | None) -> Rule:
    values: dict[str, object] = {"unfinished_runs": busy} if busy else {}
    if catchup is not None:
        values["late_by"] = timedelta(milliseconds=catchup.at - at)
    if entry is None:
        return Rule("window", "beat was late for it, and caught it up", values)
    policy = entry.policy
    values |= _present({"window": policy.window, "select": str(policy.select)})
    values["overlap_policy"] = str(policy.overlap_policy)
    words = "" if policy.window is None else f" within the window of {format_duration(policy.window)}"
    return Rule("window", f"beat was late for it, and caught it up{words}", values)


# -- what will happen, and what would have happened ----------------------------------------------


def plan_live(
    entry: Entry,
    at: Instant,
    *,
    busy: int = 0,
    manual_start: Instant | None = None,
    manual_success: Instant | None = None,
) -> Plan:
    """Plan a slot that beat handles in time, while ``busy`` runs of the entry have not ended."""
    state = EntryState(
        first_seen_at=at - 1,
        decided=at - 1,
        active=busy,
        manual_start=manual_start,
        manual_success=manual_success,
    )
    return plan(entry, state, replay(entry, state, scheduler_watermark=at - 1, now=at))


def plan_live_again(
    entry: Entry, at: Instant, reason: SkipReason | str | None, *, was_busy: int, busy: int
) -> Plan:
    """Plan a slot that was live again. Of a manual run before it only the consequence is recorded: the
    ``reason`` of the skip, which is not the overlap policy's if the entry was not busy."""
    succeeded = reason == SkipReason.GUARD_BLOCKED and not was_busy
    return plan_live(
        entry,
        at,
        busy=busy,
        manual_start=at if reason == SkipReason.MANUAL_RUN else None,
        manual_success=at - 1 if succeeded else None,
    )


def alternatives_of_upcoming(entry: Entry, slot: Slot) -> Iterator[Alternative]:
    """Yield what happens to a slot to come if a run of the entry has not ended by then."""
    most = most_unfinished(entry.policy)
    if most is not None:
        found = outcome(plan_live(entry, slot.at, busy=most), slot)
        condition = f"{counted(most, 'run')} of the entry {'has' if most == 1 else 'have'} not ended by then"
        yield Alternative(condition, reason_of(found))


def with_choice(entry: Entry, choice: PolicyChoice) -> Entry:
    """Return the entry under another policy; a schedule's own fields stay."""
    return replace(entry, policy=entry.policy.model_copy(update=dict(choice.fields)))


def alternatives_of_decision(
    entry: Entry,
    slot: Slot,
    reason: SkipReason | str | None,
    *,
    busy: int,
    catchup: RecordedCatchup | None,
    existing: Mapping[Slot, RunState],
) -> Iterator[Alternative]:
    """Yield what other policies would have decided about a slot, where that differs. ``reason`` is that of
    the recorded skip, None if there is a run."""

    def decide(entry: Entry) -> PlannedRun | Skip | None:
        if catchup is None:
            return outcome(plan_live_again(entry, slot.at, reason, was_busy=busy, busy=busy), slot)
        return outcome(catchup.plan(entry, existing=existing), slot)

    decided = decide(entry)
    for choice in PolicyChoice:
        other = with_choice(entry, choice)
        if other.policy.select is not Select.OFF and other.policy.window is None:
            continue
        found = decide(other)
        if found is not None and reason_of(found) != reason_of(decided):
            yield Alternative(f"policy {choice}", reason_of(found))


def _time(instant: Instant | None) -> object:
    return None if instant is None else to_datetime(instant)


def _present(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}
