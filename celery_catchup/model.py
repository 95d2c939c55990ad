"""The words of the domain as frozen values: instants, runs, skips, plans, and run ids.

Inside the package an instant is an integer: milliseconds since 1970 UTC. Millions of
slots are counted and compared before a few of them are dispatched, and only those few
become datetimes.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from hashlib import sha1
from typing import TypeAlias

Instant: TypeAlias = int
"""Milliseconds since 1970-01-01T00:00:00Z."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def to_instant(moment: datetime) -> Instant:
    """The instant of an aware datetime, whatever its zone; rounded down to a millisecond."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone; make it aware")
    return (moment - _EPOCH) // _MILLISECOND


def to_datetime(instant: Instant) -> datetime:
    """The instant as an aware UTC datetime."""
    return _EPOCH + timedelta(milliseconds=instant)


@lru_cache(maxsize=4096)  # the slots of a tick are few, and each is told many times
def to_rfc3339(instant: Instant) -> str:
    """``2026-02-07T10:00:00Z``; milliseconds only when there are any."""
    spec = "milliseconds" if instant % 1000 else "seconds"
    return to_datetime(instant).isoformat(timespec=spec).replace("+00:00", "Z")


def to_milliseconds(duration: timedelta) -> int:
    """A duration as whole milliseconds, rounded down."""
    return duration // _MILLISECOND


class Trigger(StrEnum):
    """Why a run exists."""

    SCHEDULER = "scheduler"
    CATCHUP = "catchup"
    BACKFILL = "backfill"
    MANUAL = "manual"


class RunState(StrEnum):
    """Where a run is in its life: ``waiting → queued → running → succeeded | failed | revoked``,
    and ``failed → dead`` when its attempts are used up."""

    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REVOKED = "revoked"
    DEAD = "dead"

    @property
    def in_flight(self) -> bool:
        """Whether the run has still to end."""
        return self in (RunState.WAITING, RunState.QUEUED, RunState.RUNNING)


class SkipReason(StrEnum):
    """Why a slot did not run, in the words that logs, ledger and pages share."""

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
    """It was sent, by a task with its own ``apply_async``, but not as one message that can be followed."""


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """One instant of one of an entry's schedules; ordered by time, ties by declaration."""

    at: Instant
    schedule: int = 0


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A decision to run: the slot, why, and when it may be sent (later than the slot under
    jitter); ``ends_active`` for a restart, which ends the entry's active runs first."""

    slot: Slot
    trigger: Trigger
    send_at: Instant
    ends_active: bool = False


@dataclass(frozen=True, slots=True)
class Skip:
    """The ``count`` neighbouring slots of one schedule from ``first`` to ``last`` that will not run.

    A million skipped slots are one value, and its timetable can list them again.
    """

    schedule: int
    first: Instant
    last: Instant
    count: int
    reason: SkipReason


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with every slot of an entry in ``(replay_from, watermark]``.

    Each slot is in ``runs`` or inside one of ``skips``. ``stops`` are slots that end the
    active runs. ``complete`` is false when a limit stopped the plan early: plan again
    from ``watermark`` for the rest. A plan made newest first goes downwards, and its
    ``watermark`` is the instant down to which everything is decided. ``catches_up`` tells
    that slots were missed, so that caps apply, also to the batches that follow.
    """

    entry: str
    replay_from: Instant
    runs: tuple[PlannedRun, ...]
    skips: tuple[Skip, ...]
    watermark: Instant
    wake_at: Instant | None
    stops: tuple[Slot, ...] = ()
    complete: bool = True
    catches_up: bool = False

    @property
    def skipped(self) -> int:
        """How many slots will not run, those that fell out of the window apart."""
        return sum(skip.count for skip in self.skips if skip.reason is not SkipReason.EXPIRED)

    @property
    def expired(self) -> int:
        """How many slots fell out of the window."""
        return sum(skip.count for skip in self.skips if skip.reason is SkipReason.EXPIRED)

    @property
    def candidates(self) -> int:
        """How many slots were decided on; what fell out of the window is not among them."""
        return len(self.runs) + self.skipped


def run_id(namespace: str, entry: str, slot: Slot, *, tenant: str = "", logic_version: str = "") -> uuid.UUID:
    """The identity of a run: same slot, same run, on every machine, whatever triggered it.

    It depends on the instant and not on how its zone spells it.
    """
    return uuid.UUID(identity(namespace, entry, slot, tenant=tenant, logic_version=logic_version))


def identity(
    namespace: str,
    entry: str,
    slot: Slot,
    *,
    schedule: str | None = None,
    tenant: str = "",
    logic_version: str = "",
) -> str:
    """The run's id as text: a version 5 UUID, made without the detour over an object of each.

    ``schedule`` is the id of the slot's schedule; without one its position counts.
    """
    # JSON-like quoting keeps ("a", "b:c") and ("a:b", "c") apart, whatever names contain.
    schedule, at = str(slot.schedule) if schedule is None else schedule, str(slot.at)
    name = (
        f"{len(namespace)}:{namespace}\x1f{len(entry)}:{entry}\x1f{len(schedule)}:{schedule}"
        f"\x1f{len(at)}:{at}\x1f{len(tenant)}:{tenant}\x1f{len(logic_version)}:{logic_version}"
    )
    hexes = sha1(_RUNS + name.encode(), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(hexes[16], 16) & 3]
    return f"{hexes[:8]}-{hexes[8:12]}-5{hexes[13:16]}-{variant}{hexes[17:20]}-{hexes[20:32]}"


def attempt_id(run: uuid.UUID, attempt: int) -> uuid.UUID:
    """The identity of one execution of a run; a replay has a new one."""
    return uuid.uuid5(run, f"attempt:{attempt}")


_RUNS = uuid.UUID("6b1c9a52-3f0e-5d0c-9a6f-2f6a3f1b7c11").bytes
