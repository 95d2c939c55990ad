"""What happened, as values. Logs, metrics and pages subscribe; nobody else is told.

::

    Leading            this beat leads from now on
    StandingBy         another beat leads
    CatchupStarted     slots were missed
    CatchupPlanned     of one entry: how many candidates
    RunDispatched      a run is durable: its message is on the way, or it waits its turn
    RunSkipped         slots that will not run, as a span
    CatchupCompleted   every missed slot is decided
    EntryFailed        an entry could not be dispatched; it is tried again
    StateSuspect       something stored cannot be right; what is done instead
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from celery_catchup.model import Instant, PlannedRun, Skip


@dataclass(frozen=True, slots=True)
class Leading:
    epoch: int


@dataclass(frozen=True, slots=True)
class StandingBy:
    leader: str


@dataclass(frozen=True, slots=True)
class CatchupStarted:
    entries: int
    candidates: int
    window_start: Instant
    window_end: Instant


@dataclass(frozen=True, slots=True)
class CatchupPlanned:
    entry: str
    overlap_policy: str
    candidates: int
    window: str


@dataclass(frozen=True, slots=True)
class RunDispatched:
    entry: str
    run: PlannedRun
    run_id: str


@dataclass(frozen=True, slots=True)
class RunSkipped:
    entry: str
    skip: Skip


@dataclass(frozen=True, slots=True)
class CatchupCompleted:
    dispatched: int
    skipped: int
    seconds: float


@dataclass(frozen=True, slots=True)
class EntryFailed:
    entry: str
    reason: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class StateSuspect:
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
    | StateSuspect
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
