"""What happened, as values. Logs, metrics and pages subscribe; nobody else is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from celery_catchup.model import Instant, PlannedRun, Skip


@dataclass(frozen=True, slots=True)
class Leading:
    """This beat leads from now on."""

    epoch: int


@dataclass(frozen=True, slots=True)
class StandingBy:
    """Another beat leads."""

    leader: str


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


@dataclass(frozen=True, slots=True)
class RunSkipped:
    """``listed`` has the slots of the span when they are few, else it is empty."""

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
    """A run was given up and is a dead letter now."""

    entry: str
    run_id: str
    slot: Instant
    reason: str


@dataclass(frozen=True, slots=True)
class RunUnreported:
    """A run was sent and nobody claims runs: it is taken to be executed, and its chain goes on."""

    entry: str
    run_id: str
    slot: Instant
    reason: str


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


Event = (
    Leading
    | StandingBy
    | CatchupStarted
    | CatchupPlanned
    | RunDispatched
    | RunSkipped
    | CatchupCompleted
    | EntryFailed
    | RunResent
    | RunDied
    | RunUnreported
    | EntryDrifted
    | StateSuspect
    | StateLost
)
Subscriber = Callable[[Event], None]


class Events:
    """Tells every subscriber, in the order they came."""

    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscribers = list(subscribers)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Be told of everything from now on."""
        self._subscribers.append(subscriber)

    def emit(self, event: Event) -> None:
        """Tell them."""
        for subscriber in self._subscribers:
            subscriber(event)
