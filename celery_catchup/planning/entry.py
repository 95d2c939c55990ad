"""Entries as the planner sees them: their schedules, their policy and their state."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import cached_property
from heapq import merge
from types import MappingProxyType
from typing import Any, NamedTuple
from zlib import crc32

from celery_catchup.config.durations import format_duration
from celery_catchup.config.policy import Policy, SchedulePolicy, Select
from celery_catchup.model import Instant, RunState, Slot, run_id, to_instant, to_milliseconds
from celery_catchup.timetables.cron_table import CronTable
from celery_catchup.timetables.exclusions import Exclusions
from celery_catchup.timetables.timetable import IntervalTable, Timetable

_MINUTE = 60_000
_LONGEST_EXCLUDED = 2 * 366 * 24 * 60 * _MINUTE
NO_EXCLUSIONS = Exclusions()


class Role(StrEnum):
    """The effect of a slot: it starts a run, ends the active ones, or both."""

    START = "start"
    STOP = "stop"
    RESTART = "restart"


@dataclass(frozen=True)
class Schedule:
    """One schedule of an entry, with the fields that override the entry's policy.

    ``id`` replaces the schedule's position in the identity of its runs, so that it survives a change of
    the list.
    """

    timetable: Timetable
    overrides: SchedulePolicy | None = None
    role: Role = Role.START
    id: str | None = None


@dataclass(frozen=True)
class Entry:
    """One line of the beat schedule that has a policy. ``own_tenant`` is that of an entry which shares the
    policy with others (``for_each``)."""

    name: str
    schedules: tuple[Schedule, ...]
    policy: Policy
    exclusions: Exclusions = NO_EXCLUSIONS
    own_tenant: str = ""

    @property
    def tenant(self) -> str:
        """The tenant in the identity of its runs."""
        return self.own_tenant or self.policy.tenant

    def renamed(self, name: str, tenant: str = "") -> Entry:
        """Return the same entry with another name and tenant. It shares all computed properties, none of
        which depends on the name: a tenth of the time to start with many entries."""
        for one in _COMPUTED:
            getattr(self, one)
        other = object.__new__(Entry)
        vars(other).update(vars(self), name=name, own_tenant=tenant)
        if tenant != self.own_tenant:
            vars(other).pop("version_fields", None)
        return other

    @cached_property
    def _misfire_threshold(self) -> int:
        return to_milliseconds(self.policy.misfire_threshold)

    def missed_until(self, now: Instant) -> Instant:
        """Return the last instant whose slot counts as missed when it is handled now; later ones are live."""
        return now - self._misfire_threshold - 1

    @cached_property
    def jitter(self) -> int:
        """The longest delay of a live run, in milliseconds."""
        return 0 if self.policy.jitter is None else to_milliseconds(self.policy.jitter)

    @cached_property
    def max_span(self) -> int | None:
        """The longest time that one run of a span stands for, in milliseconds."""
        return None if self.policy.max_span is None else to_milliseconds(self.policy.max_span)

    @cached_property
    def is_simple(self) -> bool:
        """Whether it has one schedule, which starts runs without delay."""
        return len(self.schedules) == 1 and self.schedules[0].role is Role.START and not self.jitter

    @cached_property
    def shape(self) -> Hashable:
        """Everything but the name and the tenant. Tables of one crontab, and a policy for many entries, are
        one object."""
        schedules = (
            (
                one.timetable if isinstance(one.timetable, IntervalTable) else id(one.timetable),
                id(one.overrides),
                one.role,
            )
            for one in self.schedules
        )
        return id(self.policy), id(self.exclusions), *schedules

    @cached_property
    def policy_digest(self) -> str:
        """A short text that changes with the policy, or with a schedule's part in it."""
        text = repr((self.policy, *(one.overrides for one in self.schedules)))
        return f"{crc32(text.encode()):08x}"

    @cached_property
    def bounds(self) -> tuple[Bounds, ...]:
        """The window and the dates of each schedule."""
        return tuple(self._bounds_of(schedule.overrides) for schedule in self.schedules)

    @cached_property
    def selects(self) -> tuple[Select, ...]:
        """The effective ``select`` of each schedule that starts runs."""
        starting = (i for i, schedule in enumerate(self.schedules) if schedule.role is Role.START)
        return tuple(self.select_of(index) or self.policy.select for index in starting)

    def select_of(self, schedule: int) -> Select | None:
        """Return the schedule's own ``select``; None when that of the entry applies."""
        overrides = self.schedules[schedule].overrides
        return None if overrides is None else overrides.select

    def has_slot(self, slot: Slot) -> bool:
        """Tell whether the schedule has this slot: on its timetable, between its dates, not excluded."""
        if self.exclusions.contains(slot.at):
            return False
        bounds = self.bounds[slot.schedule]
        if bounds.after is not None and slot.at <= bounds.after:
            return False
        if bounds.until is not None and slot.at > bounds.until:
            return False
        return self.schedules[slot.schedule].timetable.next_after(slot.at - 1) == slot.at

    def next_after(self, schedule: int, instant: Instant) -> Instant | None:
        """Return the schedule's first slot after the instant, between its dates; it may be excluded."""
        bounds = self.bounds[schedule]
        at = self.schedules[schedule].timetable.next_after(max(instant, bounds.after or 0))
        return None if at is None or (bounds.until is not None and at > bounds.until) else at

    def next_run_after(self, schedule: int, instant: Instant) -> Instant | None:
        """Return the schedule's first slot after the instant that is not excluded; None if all slots of two
        years are excluded, because a search to the end of time would take hours."""
        at = self.next_after(schedule, instant)
        limit = (at or 0) + _LONGEST_EXCLUDED
        while at is not None and (allowed := self.exclusions.next_allowed(at, limit=limit)) != at:
            at = self.next_after(schedule, allowed - 1) if allowed <= limit else None
        return at

    def slots_after(self, instant: Instant, *, stops: bool = True) -> Iterator[Slot]:
        """Yield the slots after the instant that are not excluded, in order of time; with ``stops``, those
        that only stop runs, too."""

        def of(schedule: int) -> Iterator[Slot]:
            at = self.next_run_after(schedule, instant)
            while at is not None:
                yield Slot(at, schedule)
                at = self.next_run_after(schedule, at)

        wanted = (index for index, one in enumerate(self.schedules) if stops or one.role is not Role.STOP)
        return merge(*map(of, wanted))

    @cached_property
    def version_fields(self) -> dict[str, str]:
        """The policy's part in the identity of a run, as its record has it; without empty texts."""
        policy = self.policy
        fields = {"tenant": self.tenant, "logic_version": policy.logic_version}
        return {name: value for name, value in fields.items() if value}

    def run_id(self, namespace: str, slot: Slot, *, first: Instant | None = None) -> str:
        """Return the id of the slot's run, or of the run of the span from ``first`` to the slot."""
        policy = self.policy
        return run_id(
            namespace,
            self.name,
            slot,
            schedule=self.schedules[slot.schedule].id,
            tenant=self.tenant,
            logic_version=policy.logic_version,
            first=first,
        )

    def slots_of(self, namespace: str, runs: Iterable[RecordedRun]) -> dict[Slot, RunState]:
        """Return the slots whose run is among ``runs``, found by its id; also those that a run stands for. A
        slot that has failed, and that another run stands for, has the state of that."""
        own, covered = dict[Slot, RunState](), dict[Slot, RunState]()
        for run in runs:
            for index in range(len(self.schedules)):
                if self.run_id(namespace, slot := Slot(run.at, index), first=run.first) == run.id:
                    own[slot] = run.state
                    covered |= dict.fromkeys(self._covered(run.covers), run.state)
        return own | {
            slot: state
            for slot, state in covered.items()
            if slot not in own or (own[slot].failed and not state.failed)
        }

    def _covered(self, stretches: Iterable[tuple[int, Instant, Instant]]) -> Iterator[Slot]:
        for schedule, first, last in stretches:
            if schedule < len(self.schedules):
                for at in self.schedules[schedule].timetable.slots(first - 1, last):
                    yield Slot(at, schedule)

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


_COMPUTED = tuple(name for name, value in vars(Entry).items() if isinstance(value, cached_property))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one schedule: its window in milliseconds, and the dates as ``(after, until]``."""

    window: int | None
    after: Instant | None
    until: Instant | None


class RecordedRun(NamedTuple):
    """A run in the ledger: its id, its slot's time, its state. If it stands for several slots, ``first`` is
    the oldest of them, and ``covers`` has the others: each a schedule with a first and a last slot."""

    id: str
    at: Instant
    state: RunState
    first: Instant | None = None
    covers: tuple[tuple[int, Instant, Instant], ...] = ()


NOTHING: Mapping[Slot, RunState] = MappingProxyType({})
"""No run in the ledger."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of an entry: ``(after, until]``; without an end it lasts until now. ``discard``: its missed
    slots are skipped, regardless of the policy. ``held``: the leader made it, for a catch-up above
    ``hold_above``."""

    after: Instant
    until: Instant | None = None
    discard: bool = False
    held: bool = False


_FACTS = (
    "manual_start",
    "manual_run",
    "manual_success",
    "paused_at",
    "held_at",
    "removed",
    "allowance",
)
"""Fields of `EntryState` that a catch-up depends on, and most entries have not."""


@dataclass(slots=True)
class EntryState:
    """The state of an entry for the planner; the leader keeps it up to date.

    decided         everything up to here has been dispatched or skipped
    manual_start    start of the latest manual run that counts: slots before it are skipped
    manual_run      the id of that run
    manual_success  start of the latest manual run that succeeded
    paused          nothing is planned; ``paused_at`` stays set until the resume is planned
    paused_at       up to here everything was decided when the entry was paused
    pauses          the pauses whose resume is still to be planned; none: one since ``paused_at``
    pause_record    the stored record of these pauses, which is removed when their resume is decided
    held_at         when its catch-up was held, for its window; the wait for an approval expires no slot
    removed         ``(after, until]`` in which the entry was not declared, still to be recorded
    changed_at      when a changed schedule was first seen, if the time before is not to be replayed
    active, waiting runs of the entry that are queued or running, and those in the chain
    existing        runs in the ledger, for the range that is planned
    used            runs dispatched so far in this catch-up, counted against ``max_runs``; None outside of one
    room            what is left of the room that this catch-up began with; None as long as ``active`` and
                    ``waiting`` decide
    allowance       what is left to this entry of ``catchup_max_runs``
    """

    first_seen_at: Instant
    decided: Instant | None = None
    manual_start: Instant | None = None
    manual_run: str | None = None
    manual_success: Instant | None = None
    paused: bool = False
    paused_at: Instant | None = None
    pauses: tuple[Pause, ...] = ()
    pause_record: str = ""
    held_at: Instant | None = None
    removed: tuple[Instant, Instant] | None = None
    changed_at: Instant | None = None
    active: int = 0
    waiting: int = 0
    existing: Mapping[Slot, RunState] = field(default_factory=lambda: NOTHING)
    used: int | None = None
    room: int | None = None
    allowance: int | None = None

    @property
    def resumes(self) -> bool:
        """Whether a plan covers more than the time since the last tick: after a pause, or a removal."""
        return self.paused_at is not None or self.removed is not None

    @property
    def resumes_from(self) -> Instant | None:
        """Up to where everything was decided before the pause or removal whose end is still to be planned."""
        before = self.removed[0] if self.paused_at is None and self.removed is not None else self.paused_at
        return None if before is None else max(before, self.first_seen_at, self.decided or 0)

    @property
    def catchup_wanted(self) -> bool:
        """Whether a person has resumed the entry and wants what it missed: that is an approval. A resume that
        discards approves nothing of what is missed after it."""
        discards = bool(self.pauses) and self.pauses[-1].discard
        return self.paused_at is not None and not discards

    def end_pauses(self) -> None:
        """Forget pauses and a removal whose end is decided."""
        self.paused_at, self.pauses, self.pause_record, self.removed = None, (), "", None

    def facts(self) -> dict[str, object]:
        """Return what a catch-up depends on beside the time and the open runs, as values of JSON;
        `from_facts` reads it."""
        found = {name: getattr(self, name) for name in _FACTS}
        found["pauses"] = [(one.after, one.until, one.discard, one.held) for one in self.pauses] or None
        return {name: value for name, value in found.items() if value is not None}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], **more: Any) -> EntryState:
        """Return the state of a recorded catch-up; ``more`` has the facts that are recorded beside."""
        known = {name: facts.get(name) for name in _FACTS}
        pauses = tuple(Pause(*one) for one in facts.get("pauses") or ())
        removed = facts.get("removed")
        return cls(**known | {"pauses": pauses, "removed": removed and tuple(removed)} | more)


def first_sight(now: Instant, *, match: bool) -> Instant:
    """Return ``first_seen_at`` of a new entry: it has no past.

    With ``match`` a slot of the current minute still runs, as under schedulers that
    compare each minute with the expression.
    """
    return now - now % _MINUTE - 1 if match else now


def too_frequent(timetable: Timetable, *, poll_interval: timedelta) -> str | None:
    """Explain why the slots of a schedule are too close together for the poll interval; None if not."""
    if isinstance(timetable, CronTable) and to_milliseconds(poll_interval) <= _MINUTE:
        return None  # its slots are whole minutes, so they need not be compared
    shortest = timetable.minimum_distance()
    if shortest is None or shortest >= to_milliseconds(poll_interval):
        return None
    return (
        f"its slots are {format_duration(timedelta(milliseconds=shortest))} apart at the closest, but "
        f"catchup_poll_interval is {format_duration(poll_interval)}; lower that, or space the slots"
    )
