"""Events of a beat."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from celery_catchup.model import Instant, PlannedRun, Skip, Trigger, to_datetime


@dataclass(frozen=True, slots=True)
class Leading:
    """This beat leads from now on."""

    epoch: int


@dataclass(frozen=True, slots=True)
class StandingBy:
    """Another beat leads."""

    leader: str


@dataclass(frozen=True, slots=True)
class Ticked:
    """A tick has ended; ``leading`` is true if this beat leads."""

    seconds: float
    leading: bool


@dataclass(frozen=True, slots=True)
class TickFailed:
    """A tick failed; nothing is lost, beat retries it. ``what`` is ``redis``, ``broker``, ``source`` (of
    entries) or ``inner``."""

    what: str
    reason: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class CatchupStarted:
    """Slots were missed; the catch-up covers ``(window_start, window_end]``."""

    entries: int
    candidates: int
    window_start: Instant
    window_end: Instant


@dataclass(frozen=True, slots=True)
class CatchupPlanned:
    """The catch-up of one entry is planned; ``candidates`` is its number of missed slots."""

    entry: str
    overlap_policy: str
    candidates: int
    window: str


@dataclass(frozen=True, slots=True)
class RunDispatched:
    """A run is durable: its message is sent, or it waits its turn in the chain."""

    entry: str
    run: PlannedRun
    run_id: str

    @property
    def scheduled_time(self) -> datetime:
        """The slot."""
        return to_datetime(self.run.slot.at)

    @property
    def trigger(self) -> Trigger:
        """The trigger of the run."""
        return self.run.trigger

    @property
    def is_catchup(self) -> bool:
        """True if the run recovers a missed slot."""
        return self.run.trigger.is_catchup


@dataclass(frozen=True, slots=True)
class RunSkipped:
    """Slots of an entry are skipped. ``listed`` has the slots of a short span, else nothing."""

    entry: str
    skip: Skip
    catches_up: bool
    listed: tuple[Instant, ...]


@dataclass(frozen=True, slots=True)
class CatchupCompleted:
    """Every missed slot is decided."""

    dispatched: int
    skipped: int
    seconds: float


@dataclass(frozen=True, slots=True)
class BackfillAdvanced:
    """A part of a backfill is decided."""

    backfill_id: str
    entry: str
    dispatched: int
    skipped: int
    complete: bool


@dataclass(frozen=True, slots=True)
class EntryFailed:
    """An entry could not be dispatched; beat retries it."""

    entry: str
    reason: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class _RunEvent:
    entry: str
    run_id: str
    slot: Instant
    reason: str


@dataclass(frozen=True, slots=True)
class RunResent(_RunEvent):
    """A run was sent again: its worker or message was lost, or its next attempt is due."""


@dataclass(frozen=True, slots=True)
class RunDied(_RunEvent):
    """A run was given up and is a dead letter now. Emitted by the worker that reports the last failure, or by
    beat if the run was lost too often."""


@dataclass(frozen=True, slots=True)
class RunUnreported(_RunEvent):
    """A run is assumed to have been executed without a report, and its chain goes on: no worker of its queue
    ever had the plugin, or a message with `run_headers` never arrived."""


@dataclass(frozen=True, slots=True)
class RunExpired(_RunEvent):
    """A run's message expired before a worker started it; its chain goes on."""


@dataclass(frozen=True, slots=True)
class MixedFleet:
    """Workers without the plugin consume the same queue as workers with it, so some runs are not claimed.
    Repeated every hour while it lasts."""

    queue: str
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EntryDrifted:
    """An entry is no longer declared, or its schedule has changed."""

    entry: str
    what: str
    loud: bool


@dataclass(frozen=True, slots=True)
class StateSuspect:
    """Stored state is inconsistent; ``what`` says how, and what beat does instead."""

    what: str


@dataclass(frozen=True, slots=True)
class StateLost:
    """The server has lost acknowledged writes; ``what`` says which, and what beat does now."""

    what: str


BeatEvent = (
    Leading
    | StandingBy
    | Ticked
    | TickFailed
    | CatchupStarted
    | CatchupPlanned
    | RunDispatched
    | RunSkipped
    | CatchupCompleted
    | BackfillAdvanced
    | EntryFailed
    | RunResent
    | RunDied
    | RunUnreported
    | RunExpired
    | MixedFleet
    | EntryDrifted
    | StateSuspect
    | StateLost
)
