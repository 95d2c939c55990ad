"""Entries: what is declared, and what is known of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from celery_catchup.beat.celery_schedules import describe
from celery_catchup.beat.declared_entries import CatchupEntry, ConfiguredSchedule
from celery_catchup.config.durations import format_duration
from celery_catchup.config.policy import Policy, Select
from celery_catchup.engine.tracked_entries import TrackedEntry
from celery_catchup.model import Instant, to_datetime
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.tracked_entries import lines_of
from celery_catchup.planning.entry import Entry, Role
from celery_catchup.store import Backfill, Stored
from celery_catchup.store.records import read_json
from celery_catchup.store.states import Busy

_LANE = Backfill.lane_of("")


@dataclass(frozen=True, slots=True)
class Pause:
    """Since when an entry is paused and why; ``paused`` is false while a resume is still to be decided."""

    paused: bool
    at: datetime | None
    reason: str


@dataclass(frozen=True, slots=True)
class Failing:
    """An entry, or one of its backfills, that fails at present: why, since when, how often, and when it is
    tried again."""

    entry: str
    reason: str
    since: datetime
    times: int
    next_try: datetime
    backfill: str | None


@dataclass(frozen=True, slots=True)
class EntryView:
    """One line of the beat schedule. ``catchup`` is ``all``, ``latest`` or ``off``, and ``window`` how far
    back; where schedules of a list differ, each of them in their order. Without a policy the entry runs as
    under Celery's own scheduler, and that and the fields of a policy are null. ``stopped_by`` are the runs
    for which its chain waits (`on_failure: stop`). ``failing`` is why its slots cannot be decided at
    present, ``failing_since`` since when."""

    name: str
    task: str
    schedule: str
    catchup: str | None
    overlap_policy: str | None
    window: str | None
    paused: bool
    paused_at: datetime | None
    pause_reason: str | None
    next: datetime | None
    watermark: datetime | None
    first_seen_at: datetime | None
    active: int
    waiting: int
    stopped_by: tuple[str, ...]
    failing: str | None = None
    failing_since: datetime | None = None


def list_entries(operator: Operator, names: Sequence[str] | None = None) -> list[EntryView]:
    """Every declared entry in the order of declaration, or these; no more is computed than is asked for."""
    wanted = tuple(operator.schedule) if names is None else operator.in_schedule(names)
    stored, now = operator.look(None if names is None else wanted), operator.now()
    lines = lines_of(operator, stored, now, set(wanted))
    busy = operator.states.busy(wanted)
    troubles = {one.entry: one for one in failing(operator) if one.backfill is None}
    return [
        _view(operator, name, lines.get(name), stored, busy[name], troubles.get(name), now) for name in wanted
    ]


def failing(operator: Operator) -> list[Failing]:
    """What fails at present, as the leading beat reported it."""
    reported = operator.states.failing()
    return [one for key, text in sorted(reported.items()) if (one := _failing(key, text)) is not None]


def _failing(key: str, text: str) -> Failing | None:
    found = read_json(text) or {}
    try:
        return Failing(
            entry=str(found["entry"]),
            reason=str(found["reason"]),
            since=to_datetime(int(found["since"])),
            times=int(found["times"]),
            next_try=to_datetime(int(found["retry_at"])),
            backfill=key.removeprefix(_LANE) if key.startswith(_LANE) else None,
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _view(
    operator: Operator,
    name: str,
    line: TrackedEntry | None,
    stored: Stored,
    busy: Busy,
    trouble: Failing | None,
    now: Instant,
) -> EntryView:
    policy = operator.configuration.policies.get(name) if name in operator.declared else None
    pause = _pause(stored.paused.get(name, "{}"))
    declared = operator.schedule[name]
    return EntryView(
        name=name,
        task=str(declared.task),
        schedule=in_words(declared),
        **_policy(policy, line),
        paused=pause.paused,
        paused_at=pause.at if pause.paused else None,
        pause_reason=pause.reason or None,
        next=next(iter(next_slots(line, now, count=1)), None),
        watermark=_moment(stored.decided.get(name)),
        first_seen_at=_moment(stored.first_seen.get(name)),
        active=busy.active,
        waiting=busy.waiting,
        stopped_by=tuple(stored.stopped.get(name, "").split()),
        failing=None if trouble is None else trouble.reason,
        failing_since=None if trouble is None else trouble.since,
    )


def next_slots(line: TrackedEntry | None, now: Instant, *, count: int) -> list[datetime]:
    """The next slots that start a run, between the entry's dates; a paused entry has none, and of some
    schedules nobody knows."""
    if line is None or line.state.paused:
        return []
    found: list[Instant] = []
    for index, schedule in enumerate(line.entry.schedules):
        at: Instant | None = now
        for _ in range(0 if schedule.role is Role.STOP else count):
            at = None if at is None else slot_after(line.entry, index, at)
            found += [] if at is None else [at]
    return [to_datetime(at) for at in sorted(found)[:count]]


def slot_after(entry: Entry, schedule: int, at: Instant) -> Instant | None:
    """The schedule's next slot, between its dates; None too when the schedule fails."""
    try:
        return entry.next_after(schedule, at)
    except Exception:  # noqa: BLE001 - a schedule of the user's own may raise anything; beat reports it
        return None


def pauses(stored: Stored) -> dict[str, Pause]:
    """What is stored about pauses, by entry."""
    return {name: _pause(text) for name, text in stored.paused.items()}


def in_words(entry: CatchupEntry) -> str:
    """An entry's schedule in a few words: the cron expression, or the interval."""
    schedule = entry.schedule
    return _written(schedule.written) if isinstance(schedule, ConfiguredSchedule) else describe(schedule)


def _written(written: object) -> str:
    if isinstance(written, Mapping):
        if "cron" in written:
            return str(written["cron"])
        return "; ".join(f"{role}: {_written(part)}" for role, part in written.items())
    if isinstance(written, list | tuple):
        return ", ".join(_written(part) for part in written)
    return written if isinstance(written, str) else describe(written)


def _policy(policy: Policy | None, line: TrackedEntry | None) -> dict[str, Any]:
    if policy is None:
        return {"catchup": None, "overlap_policy": None, "window": None}
    selects = (line.entry.selects if line is not None else ()) or (policy.select,)
    return {
        "catchup": ", ".join(_each("off" if one is Select.OFF else str(one) for one in selects)),
        "overlap_policy": str(policy.overlap_policy),
        "window": windows_of(policy, line),
    }


def windows_of(policy: Policy, line: TrackedEntry | None) -> str | None:
    """How far back the entry is caught up; where its schedules differ, each of them."""
    if line is None or not line.entry.selects:
        return None if policy.window is None else format_duration(policy.window)
    starting = (
        b for s, b in zip(line.entry.schedules, line.entry.bounds, strict=True) if s.role is Role.START
    )
    windows = [None if one.window is None else timedelta(milliseconds=one.window) for one in starting]
    known = _each("none" if one is None else format_duration(one) for one in windows)
    return None if known == ["none"] else ", ".join(known)


def _each(words: Iterable[str]) -> list[str]:
    """The words in their order; once when all are the same."""
    found = list(words)
    return found[:1] if len(set(found)) == 1 else found


def _pause(text: str) -> Pause:
    try:
        found = json.loads(text)
    except ValueError:
        found = {}
    at = found.get("at")
    moment = None if at is None else to_datetime(int(at))
    return Pause(bool(found.get("paused")), moment, str(found.get("reason", "")))


def _moment(text: str | None) -> datetime | None:
    return to_datetime(int(text)) if text is not None and text.isdecimal() else None
