"""What happens in a beat."""

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
    """A tick is over; ``leading`` tells whether this beat leads."""

    seconds: float
    leading: bool


@dataclass(frozen=True, slots=True)
class TickFailed:
    """A tick could not do its work; nothing is lost, it is tried again. ``what`` is ``redis``, ``broker``,
    ``source`` (of entries) or ``inner``."""

    what: str
    reason: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class CatchupStarted:
    """Slots were missed; ``(window_start, window_end]`` is looked at."""

    entries: int
    candidates: int
    window_start: Instant
    window_end: Instant


@dataclass(frozen=True, slots=True)
class CatchupPlanned:
    """How many slots of an entry are to be decided."""

    entry: str
    overlap_policy: str
    candidates: int
    window: str


@dataclass(frozen=True, slots=True)
class RunDispatched:
    """A run is durable: its message is on the way, or it waits its turn."""

    entry: str
    run: PlannedRun
    run_id: str

    @property
    def scheduled_time(self) -> datetime:
        """The slot."""
        return to_datetime(self.run.slot.at)

    @property
    def trigger(self) -> Trigger:
        """Why the run exists."""
        return self.run.trigger

    @property
    def is_catchup(self) -> bool:
        """Whether the slot was missed and is being made up for."""
        return self.run.trigger is Trigger.CATCHUP


@dataclass(frozen=True, slots=True)
class RunSkipped:
    """Slots of an entry will not run. ``listed`` has the slots of the span when they are few, else it is
    empty."""

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
    """An entry could not be dispatched; it is tried again."""

    entry: str
    reason: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class RunResent:
    """A run was sent again: its worker or message was lost, or its next attempt is due."""

    entry: str
    run_id: str
    slot: Instant
    reason: str


@dataclass(frozen=True, slots=True)
class RunDied:
    """A run was given up and is a dead letter now. Whoever notices tells it: a worker whose report was the
    last straw, or beat when the run was lost too often."""

    entry: str
    run_id: str
    slot: Instant
    reason: str


@dataclass(frozen=True, slots=True)
class RunUnreported:
    """A run is taken to have been executed without a report, and its chain goes on: no worker of its queue
    ever had the plugin, or a message with `run_headers` never came."""

    entry: str
    run_id: str
    slot: Instant
    reason: str


@dataclass(frozen=True, slots=True)
class RunExpired:
    """A run's message expired before a worker started it; its chain goes on."""

    entry: str
    run_id: str
    slot: Instant
    reason: str


@dataclass(frozen=True, slots=True)
class MixedFleet:
    """Workers without the plugin consume a queue of workers with it: their runs are not claimed. Repeated
    every hour while it lasts."""

    queue: str
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EntryDrifted:
    """An entry is not declared any more, or its schedule is another than it was."""

    entry: str
    what: str
    loud: bool


@dataclass(frozen=True, slots=True)
class StateSuspect:
    """Something stored cannot be right, and what is done instead."""

    what: str


@dataclass(frozen=True, slots=True)
class StateLost:
    """The server has forgotten what it had acknowledged, and what is done now."""

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
