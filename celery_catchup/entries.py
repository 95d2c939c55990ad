"""Entries as the planner sees them: their schedules, their policy, and what is known of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType

from celery_catchup.cron import CronTable
from celery_catchup.durations import format_duration
from celery_catchup.model import Instant, RunState, Slot, to_instant, to_milliseconds
from celery_catchup.policy import Policy, SchedulePolicy, Select
from celery_catchup.timetables import Timetable

_MINUTE = 60_000


class Role(StrEnum):
    """What a slot of a schedule does: starts a run, ends the active ones, or both."""

    START = "start"
    STOP = "stop"
    RESTART = "restart"


@dataclass(frozen=True)
class Schedule:
    """One schedule of an entry, with what it sets for itself over the entry's policy.

    ``id`` stands for its position in what has to survive a change of the list; None when it has none.
    """

    timetable: Timetable
    overrides: SchedulePolicy | None = None
    role: Role = Role.START
    id: str | None = None


@dataclass(frozen=True)
class Entry:
    """One line of the beat schedule that has a policy."""

    name: str
    schedules: tuple[Schedule, ...]
    policy: Policy

    @cached_property
    def misfire_threshold(self) -> int:
        """A slot handled more than this many milliseconds late was missed."""
        return to_milliseconds(self.policy.misfire_threshold)

    @cached_property
    def jitter(self) -> int:
        """The most milliseconds by which a live run may be sent later."""
        return 0 if self.policy.jitter is None else to_milliseconds(self.policy.jitter)

    @cached_property
    def is_simple(self) -> bool:
        """Whether it has one schedule, which starts runs, and sends them without delay."""
        return len(self.schedules) == 1 and self.schedules[0].role is Role.START and not self.jitter

    @cached_property
    def bounds(self) -> tuple[Bounds, ...]:
        """Of each schedule: how far back it is caught up, and between which dates it runs."""
        return tuple(self._bounds_of(schedule.overrides) for schedule in self.schedules)

    def select_of(self, schedule: int) -> Select | None:
        """What the schedule selects for itself; None when the entry's own choice holds."""
        overrides = self.schedules[schedule].overrides
        return None if overrides is None else overrides.select

    def _bounds_of(self, overrides: SchedulePolicy | None) -> Bounds:
        def chosen(name: str) -> object:
            own = None if overrides is None else getattr(overrides, name)
            return getattr(self.policy, name) if own is None else own

        window, start, end = chosen("window"), chosen("start_date"), chosen("end_date")
        return Bounds(
            window=None if window is None else to_milliseconds(window),  # type: ignore[arg-type]
            # A slot at start_date itself runs, and ranges leave out their lower end.
            after=None if start is None else to_instant(start) - 1,  # type: ignore[arg-type]
            until=None if end is None else to_instant(end),  # type: ignore[arg-type]
        )


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one schedule: its window in milliseconds, and the dates as ``(after, until]``."""

    window: int | None
    after: Instant | None
    until: Instant | None


NOTHING: Mapping[Slot, RunState] = MappingProxyType({})
"""No run in the ledger."""


@dataclass(slots=True)
class EntryState:
    """What is known of an entry when it is planned. The leader keeps one of each entry, up to date.

    decided         everything up to here has been dispatched or skipped
    manual_start    start of the latest manual run
    manual_success  start of the latest manual run that succeeded
    paused          nothing is planned; ``paused_at`` stays set until the resume is planned
    discards        what was missed while paused is not caught up, whatever the policy says
    changed_at      when a changed schedule was first seen, if the time before is not to be replayed
    active, waiting runs of the entry that have still to end, and those of them in the chain
    existing        runs in the ledger, for the range that is planned
    used            runs dispatched so far in this catch-up, counted against ``max_runs``; None outside of one
    allowance       what is left to this entry of ``catchup_max_runs``
    """

    first_seen_at: Instant
    decided: Instant | None = None
    manual_start: Instant | None = None
    manual_success: Instant | None = None
    paused: bool = False
    paused_at: Instant | None = None
    discards: bool = False
    changed_at: Instant | None = None
    active: int = 0
    waiting: int = 0
    existing: Mapping[Slot, RunState] = field(default_factory=lambda: NOTHING)
    used: int | None = None
    allowance: int | None = None


def first_sight(now: Instant, *, match: bool) -> Instant:
    """``first_seen_at`` of an entry never seen before: it has no past.

    With ``match`` a slot of the current minute still runs, as under schedulers that
    compare each minute with the expression.
    """
    return now - now % _MINUTE - 1 if match else now


def forgotten(removed_at: Instant, *, now: Instant, ttl: int) -> bool:
    """Whether an entry that comes back starts anew: its state outlives it as long as the ledger."""
    return now - removed_at > ttl


def too_frequent(timetable: Timetable, *, poll_interval: timedelta) -> str | None:
    """What is wrong with a schedule whose slots lie closer together than beat looks; else None."""
    if isinstance(timetable, CronTable) and to_milliseconds(poll_interval) <= _MINUTE:
        return None  # its slots are whole minutes, so they need not be compared
    shortest = timetable.minimum_distance()
    if shortest is None or shortest >= to_milliseconds(poll_interval):
        return None
    return (
        f"its slots are {format_duration(timedelta(milliseconds=shortest))} apart at the closest, but "
        f"catchup_poll_interval is {format_duration(poll_interval)}; lower that, or space the slots"
    )
