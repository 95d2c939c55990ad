"""The domain as frozen values: instants, triggers, run states, skip reasons, plans, and run ids.

Everything that depends on a trigger, a state or a reason is in its row here, and nowhere else.

Inside the package an instant is an integer: milliseconds since 1970 UTC. Millions of
slots are counted and compared before a few of them are dispatched, and only those few
become datetimes.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property, lru_cache
from hashlib import sha1
from typing import TypeAlias, assert_never

Instant: TypeAlias = int
"""Milliseconds since 1970-01-01T00:00:00Z."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def to_instant(moment: datetime) -> Instant:
    """Convert an aware datetime to an instant, rounded down to a millisecond."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone; make it aware")
    return (moment - _EPOCH) // _MILLISECOND


def to_datetime(instant: Instant) -> datetime:
    """Convert an instant to an aware UTC datetime."""
    return _EPOCH + timedelta(milliseconds=instant)


@lru_cache(maxsize=4096)  # a tick has few slots, and formats each many times
def to_rfc3339(instant: Instant) -> str:
    """Format an instant as ``2026-02-07T10:00:00Z``; with milliseconds only when there are any."""
    spec = "milliseconds" if instant % 1000 else "seconds"
    return to_datetime(instant).isoformat(timespec=spec).replace("+00:00", "Z")


def to_milliseconds(duration: timedelta) -> int:
    """Convert a duration to whole milliseconds, rounded down."""
    return duration // _MILLISECOND


class SlotMark(StrEnum):
    """The outcome of a slot, as timelines and heat maps show it."""

    ON_TIME = "on_time"
    CAUGHT_UP = "caught_up"
    FAILED = "failed"
    SKIPPED = "skipped"
    MISSED = "missed"
    DUE = "due"
    PAUSED = "paused"
    IN_FLIGHT = "in_flight"
    UPCOMING = "upcoming"


class Trigger(StrEnum):
    """Why a run exists."""

    SCHEDULER = "scheduler"
    CATCHUP = "catchup"
    BACKFILL = "backfill"
    MANUAL = "manual"

    @property
    def label(self) -> str:
        """The trigger in tables and on pages."""
        match self:
            case Trigger.SCHEDULER:
                return "Scheduled"
            case Trigger.CATCHUP:
                return "Catch-up"
            case Trigger.BACKFILL:
                return "Backfill"
            case Trigger.MANUAL:
                return "Manual"
            case _:
                assert_never(self)

    @property
    def mark(self) -> SlotMark:
        """The mark of a run that succeeded: in time, or made up for later."""
        match self:
            case Trigger.SCHEDULER | Trigger.MANUAL:
                return SlotMark.ON_TIME
            case Trigger.CATCHUP | Trigger.BACKFILL:
                return SlotMark.CAUGHT_UP
            case _:
                assert_never(self)

    @property
    def takes_lane(self) -> bool:
        """Whether the run goes to the queue and priority of catch-up runs, out of the way of live ones."""
        return self in (Trigger.CATCHUP, Trigger.BACKFILL)

    @property
    def is_catchup(self) -> bool:
        """Whether the run makes up for a slot that was missed; tasks get it as ``is_catchup``."""
        return self is Trigger.CATCHUP


class RunState(StrEnum):
    """The state of a run: ``waiting → queued → running → succeeded | failed | revoked``, and
    ``failed → dead`` when its attempts are used up."""

    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REVOKED = "revoked"
    DEAD = "dead"

    @property
    def mark(self) -> SlotMark | None:
        """The mark of a run in this state; None for a success, whose trigger has the mark."""
        match self:
            case RunState.WAITING | RunState.QUEUED | RunState.RUNNING:
                return SlotMark.IN_FLIGHT
            case RunState.FAILED | RunState.REVOKED | RunState.DEAD:
                return SlotMark.FAILED
            case RunState.SUCCEEDED:
                return None
            case _:
                assert_never(self)

    @property
    def in_flight(self) -> bool:
        """Whether the run has still to end."""
        return self.mark is SlotMark.IN_FLIGHT

    @property
    def failed(self) -> bool:
        """Whether the run ended without success, so that its error is of interest."""
        return self.mark is SlotMark.FAILED


class Severity(StrEnum):
    """The meaning of a skipped slot to the owner of its entry."""

    LOST = "not recovered"
    BY_POLICY = "skipped by policy"
    NONE = "nothing was lost"


@dataclass(frozen=True, slots=True)
class SkipRule:
    """Everything that depends on a skip reason.

    severity  what it means to the owner: pages and ``status`` add these up
    missed    whether beat was late for the slot, so that it counts as missed
    mark      what timelines show; None when the slot's run is shown instead
    meaning   for the reference page
    """

    severity: Severity
    missed: bool
    mark: SlotMark | None
    meaning: str


class SkipReason(StrEnum):
    """The reason why a slot did not run; logs, ledger and pages share these words."""

    ALREADY_EXISTS = "already_exists"
    GUARD_BLOCKED = "guard_blocked"
    CAP_EXCEEDED = "cap_exceeded"
    SUPERSEDED = "superseded"
    PAUSED = "paused"
    EXPIRED = "expired"
    CATCHUP_OFF = "catchup_off"
    REMOVED = "removed"
    IN_FLIGHT = "in_flight"
    NOT_FOLLOWED = "not_followed"
    MANUAL_RUN = "manual_run"
    EXCLUDED = "excluded"
    DISCARDED = "discarded"
    COVERED = "covered"

    @cached_property
    def rule(self) -> SkipRule:  # noqa: C901 - one row for each reason
        """The row of this reason; the type checker refuses a reason without one."""
        lost, by_policy, nothing = Severity.LOST, Severity.BY_POLICY, Severity.NONE
        match self:
            case SkipReason.ALREADY_EXISTS:
                return SkipRule(nothing, False, None, "the slot has its run already")
            case SkipReason.GUARD_BLOCKED:
                return SkipRule(by_policy, True, SlotMark.SKIPPED, _GUARD_BLOCKED)
            case SkipReason.CAP_EXCEEDED:
                return SkipRule(lost, True, SlotMark.MISSED, "`max_runs` or `catchup_max_runs` was used up")
            case SkipReason.SUPERSEDED:
                return SkipRule(by_policy, True, SlotMark.SKIPPED, _SUPERSEDED)
            case SkipReason.PAUSED:
                return SkipRule(
                    by_policy, False, SlotMark.PAUSED, "the entry was paused, and its slots discarded"
                )
            case SkipReason.EXPIRED:
                return SkipRule(lost, True, SlotMark.MISSED, "the slot was older than the window")
            case SkipReason.CATCHUP_OFF:
                return SkipRule(lost, True, SlotMark.MISSED, "`select` is `False`: missed slots do not run")
            case SkipReason.REMOVED:
                return SkipRule(lost, False, SlotMark.MISSED, "the entry was not declared at that time")
            case SkipReason.IN_FLIGHT:
                return SkipRule(nothing, False, None, "a backfill found a run that has not ended yet")
            case SkipReason.NOT_FOLLOWED:
                return SkipRule(nothing, True, SlotMark.SKIPPED, _NOT_FOLLOWED)
            case SkipReason.MANUAL_RUN:
                return SkipRule(by_policy, True, SlotMark.SKIPPED, _MANUAL_RUN)
            case SkipReason.EXCLUDED:
                return SkipRule(nothing, False, SlotMark.SKIPPED, "`exclude` covers the slot")
            case SkipReason.DISCARDED:
                return SkipRule(by_policy, True, SlotMark.SKIPPED, "its catch-up was held, and discarded")
            case SkipReason.COVERED:
                return SkipRule(nothing, True, SlotMark.CAUGHT_UP, _COVERED)
            case _:
                assert_never(self)

    @property
    def has_run(self) -> bool:
        """Whether the slot has a run, which is shown instead of the skip."""
        return self.rule.mark is None

    @property
    def recoverable(self) -> bool:
        """Whether log lines name the command that runs the slot after all; it was not sent before."""
        return self.rule.severity is not Severity.NONE

    @property
    def breaks_deadline(self) -> bool:
        """Whether success was still expected of the slot, so that it is overdue (`expect_within`):
        neither a person nor the policy decided that it should not run."""
        return self.rule.severity is Severity.LOST and self.rule.missed

    @classmethod
    def of(cls, severity: Severity) -> tuple[SkipReason, ...]:
        """All reasons of a severity."""
        return tuple(reason for reason in cls if reason.rule.severity is severity)


_GUARD_BLOCKED = (
    "the overlap policy or the task's own guard kept it back, or a manual run had succeeded "
    "(`skip_if_successful`)"
)
_SUPERSEDED = "a newer slot ran instead: `select: latest`, or an overlap policy that replaces"
_COVERED = "a later run stands for it: `select: span`, or a backfill with `--span`"
_MANUAL_RUN = "a manual run was started later, without `--keep-missed`: the slot counts as done by it"
_NOT_FOLLOWED = "the task's own `apply_async` sent it, but not as one message that can be followed"


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """One instant of one of an entry's schedules; ordered by time, ties by declaration."""

    at: Instant
    schedule: int = 0


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A decision to run: the slot, why, and when it may be sent (later than the slot under
    jitter); ``ends_active`` for a restart, which ends the entry's active runs first. A run that stands for
    a span of ``slots`` has the ``first`` of them."""

    slot: Slot
    trigger: Trigger
    send_at: Instant
    ends_active: bool = False
    first: Instant | None = None
    slots: int = 1


@dataclass(frozen=True, slots=True)
class Skip:
    """The ``count`` neighbouring slots of one schedule from ``first`` to ``last`` that will not run.

    A million skipped slots are one value; the timetable can list them again. ``run_id`` is the run that
    the slots were skipped for, if there is one.
    """

    schedule: int
    first: Instant
    last: Instant
    count: int
    reason: SkipReason
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The decision about every slot of an entry in ``(replay_from, watermark]``.

    Each slot is in ``runs`` or inside one of ``skips``. ``stops`` are slots that end the
    active runs. ``complete`` is false when a limit stopped the plan early: plan again
    from ``watermark`` for the rest. A plan made newest first goes downwards, and its
    ``watermark`` is the instant down to which everything is decided. ``catches_up``: slots
    were missed, so caps apply to this plan and to those that continue it. ``held`` is the
    number of runs when they are more than ``hold_above``: a person has to approve them first.
    ``decided`` is the instant up to which everything was decided before, which may be older than the window.
    """

    replay_from: Instant
    runs: tuple[PlannedRun, ...]
    skips: tuple[Skip, ...]
    watermark: Instant
    wake_at: Instant | None
    stops: tuple[Slot, ...] = ()
    complete: bool = True
    catches_up: bool = False
    held: int = 0
    decided: Instant = 0

    @property
    def skipped(self) -> int:
        """The number of slots that will not run, except those outside the window."""
        return sum(skip.count for skip in self.skips if skip.reason is not SkipReason.EXPIRED)

    @property
    def expired(self) -> int:
        """The number of slots outside the window."""
        return sum(skip.count for skip in self.skips if skip.reason is SkipReason.EXPIRED)

    @property
    def candidates(self) -> int:
        """The number of slots that were decided, except those outside the window."""
        return len(self.runs) + self.skipped


def run_id(
    namespace: str,
    entry: str,
    slot: Slot,
    *,
    schedule: str | None = None,
    tenant: str = "",
    logic_version: str = "",
    first: Instant | None = None,
) -> str:
    """Return the identity of a run: the same slot is the same run on every machine, whatever triggered it.

    It is a version 5 UUID, computed without creating `UUID` objects. ``schedule`` is the id of the slot's
    schedule; without one its position counts. A run that stands for several slots has the ``first`` of them.
    """
    # Each part has its length in front, which keeps ("a", "b:c") and ("a:b", "c") apart.
    schedule, at = str(slot.schedule) if schedule is None else schedule, str(slot.at)
    if first is not None:
        at = f"{first}..{at}"
    name = (
        f"{len(namespace)}:{namespace}\x1f{len(entry)}:{entry}\x1f{len(schedule)}:{schedule}"
        f"\x1f{len(at)}:{at}\x1f{len(tenant)}:{tenant}\x1f{len(logic_version)}:{logic_version}"
    )
    hexes = sha1(_RUNS + name.encode(), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(hexes[16], 16) & 3]
    return f"{hexes[:8]}-{hexes[8:12]}-5{hexes[13:16]}-{variant}{hexes[17:20]}-{hexes[20:32]}"


def task_id(run_id: str, attempt: int) -> str:
    """Return the task id of an attempt: the run's own for the first; later ones get new ids, because
    a revoked id stays revoked."""
    return f"{run_id}-{attempt}" if attempt > 1 else run_id


def attempt_id(run_id: str, attempt: int) -> str:
    """Return the identity of one execution of a run; a replay has a new one."""
    return str(uuid.uuid5(uuid.UUID(run_id), f"attempt:{attempt}"))


_RUNS = uuid.UUID("6b1c9a52-3f0e-5d0c-9a6f-2f6a3f1b7c11").bytes
