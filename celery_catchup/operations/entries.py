"""Entries: what is declared, and what is known of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from celery_catchup.declarations import CatchupEntry, WrittenSchedule
from celery_catchup.durations import format_duration
from celery_catchup.engine.roster import Line
from celery_catchup.entries import Role
from celery_catchup.model import Instant, to_datetime
from celery_catchup.operations.desk import Desk
from celery_catchup.operations.lines import lines_of
from celery_catchup.policy import Policy, Select
from celery_catchup.schedules import describe
from celery_catchup.store import Stored
from celery_catchup.store.states import Busy


@dataclass(frozen=True, slots=True)
class Pause:
    """Since when an entry is paused and why; ``paused`` is false while a resume is still to be decided."""

    paused: bool
    at: datetime | None
    reason: str


@dataclass(frozen=True, slots=True)
class EntryView:
    """One line of the beat schedule. ``catchup`` is ``all``, ``latest`` or ``off``; without a policy
    the entry runs as under Celery's own scheduler, and that and the fields of a policy are null.
    ``stopped_by`` are the runs for which its chain waits (`on_failure: stop`)."""

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


def list_entries(desk: Desk, names: Sequence[str] | None = None) -> list[EntryView]:
    """Every declared entry in the order of declaration, or these; no more is computed than is asked for."""
    wanted = tuple(desk.schedule) if names is None else desk.in_schedule(names)
    stored, now = desk.look(None if names is None else wanted), desk.now()
    lines = lines_of(desk, stored, now, set(wanted))
    busy = desk.states.busy(wanted)
    return [_view(desk, name, lines.get(name), stored, busy[name], now) for name in wanted]


def _view(desk: Desk, name: str, line: Line | None, stored: Stored, busy: Busy, now: Instant) -> EntryView:
    policy = desk.configuration.policies.get(name) if name in desk.declared else None
    pause = _pause(stored.paused.get(name, "{}"))
    declared = desk.schedule[name]
    return EntryView(
        name=name,
        task=str(declared.task),
        schedule=in_words(declared),
        **_policy(policy),
        paused=pause.paused,
        paused_at=pause.at if pause.paused else None,
        pause_reason=pause.reason or None,
        next=next(iter(next_slots(line, now, count=1)), None),
        watermark=_moment(stored.decided.get(name)),
        first_seen_at=_moment(stored.first_seen.get(name)),
        active=busy.active,
        waiting=busy.waiting,
        stopped_by=tuple(stored.stopped.get(name, "").split()),
    )


def next_slots(line: Line | None, now: Instant, *, count: int) -> list[datetime]:
    """The next slots that start a run; of some schedules nobody knows."""
    schedules = () if line is None else line.entry.schedules
    found: list[Instant] = []
    for schedule in schedules:
        at: Instant | None = now
        for _ in range(0 if schedule.role is Role.STOP else count):
            at = None if at is None else schedule.timetable.next_after(at)
            found += [] if at is None else [at]
    return [to_datetime(at) for at in sorted(found)[:count]]


def pauses(stored: Stored) -> dict[str, Pause]:
    """What is stored about pauses, by entry."""
    return {name: _pause(text) for name, text in stored.paused.items()}


def in_words(entry: CatchupEntry) -> str:
    """An entry's schedule in a few words: the cron expression, or the interval."""
    schedule = entry.schedule
    return _written(schedule.written) if isinstance(schedule, WrittenSchedule) else describe(schedule)


def _written(written: object) -> str:
    if isinstance(written, Mapping):
        if "cron" in written:
            return str(written["cron"])
        return "; ".join(f"{role}: {_written(part)}" for role, part in written.items())
    if isinstance(written, list | tuple):
        return ", ".join(_written(part) for part in written)
    return written if isinstance(written, str) else describe(written)


def _policy(policy: Policy | None) -> dict[str, Any]:
    if policy is None:
        return {"catchup": None, "overlap_policy": None, "window": None}
    return {
        "catchup": "off" if policy.select is Select.OFF else str(policy.select),
        "overlap_policy": str(policy.overlap_policy),
        "window": None if policy.window is None else format_duration(policy.window),
    }


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
