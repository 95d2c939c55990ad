"""Events: what happened in a beat or a worker, as frozen values, and how to subscribe to them.

Logs, metrics, signals and your own code subscribe. Instants are milliseconds since 1970 UTC. May import
planning, config, timetables and the model. The events are in this file; a log line is one row of
`log_lines.py`.
"""

from __future__ import annotations

import logging
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from celery_catchup.model import Instant, PlannedRun, RunState, Skip, Trigger, to_datetime

logger = logging.getLogger(__name__)

# -- events of a beat -------------------------------------------------------------------------


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
class EntryHeld:
    """A catch-up has more runs than ``hold_above``: it waits for `approve` or `discard`."""

    entry: str
    runs: int


@dataclass(frozen=True, slots=True)
class SlotOverdue:
    """A slot's run has not succeeded within `expect_within`; once for each slot. ``state`` is that of its
    run, the reason of its skip, or ``undecided``."""

    entry: str
    slot: Instant
    deadline: Instant
    run_id: str | None
    state: str


@dataclass(frozen=True, slots=True)
class SlotRecovered:
    """A run of a slot that was overdue has succeeded; ``noticed`` is when beat has seen it."""

    entry: str
    slot: Instant
    deadline: Instant
    run_id: str | None
    noticed: Instant


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
    | EntryHeld
    | SlotOverdue
    | SlotRecovered
    | RunResent
    | RunDied
    | RunUnreported
    | RunExpired
    | MixedFleet
    | EntryDrifted
    | StateSuspect
    | StateLost
)


# -- events of a worker -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A worker has claimed a run and starts to execute it."""

    entry: str
    run_id: str
    slot: Instant
    trigger: Trigger
    attempt: int
    started: Instant


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An execution has ended and its report is recorded. ``state`` is the run's new state: ``succeeded``,
    ``revoked`` or ``dead``, ``waiting`` for its next attempt, or ``queued`` by the task's own retry."""

    entry: str
    run_id: str
    state: RunState
    error: str


@dataclass(frozen=True, slots=True)
class RunRefused:
    """A message was not executed: its run has ended (``ended``), or it runs elsewhere or waits its turn
    (``held``)."""

    entry: str
    run_id: str
    task: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """Another worker has claimed a run that this worker still executes."""

    entry: str
    run_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class ReportRefused:
    """The store refused a worker's report, because another worker has claimed the run."""

    entry: str
    run_id: str
    state: RunState | None


WorkerEvent = RunStarted | AttemptEnded | RunRefused | LeaseLost | ReportRefused | RunDied

# -- subscribers of one beat or worker ---------------------------------------------------------

Event = BeatEvent | WorkerEvent
Subscriber = Callable[[Event], None]

CATALOGUE: tuple[type, ...] = typing.get_args(Event)
"""Every event class."""


class Events:
    """Calls its subscribers in the order in which they subscribed."""

    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscribers = list(subscribers)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call the subscriber with every later event."""
        self._subscribers.append(subscriber)

    def emit(self, event: Event) -> None:
        """Call every subscriber with the event."""
        for subscriber in self._subscribers:
            subscriber(event)


# -- subscribers of the process ---------------------------------------------------------------

_subscriptions: tuple[tuple[Callable[..., object], tuple[type, ...]], ...] = ()
_failed: set[int] = set()


def subscribe(callback: Callable[..., object], *kinds: type) -> Callable[[], None]:
    """Call ``callback(event)`` for every event in this process, beat or worker, or only for these classes.

    The call happens where the event does: in beat between two decisions, in a worker beside the
    task, so it should be quick. An exception from it is logged once and goes no further. Returns a
    function that ends the subscription.
    """
    global _subscriptions
    unknown = [kind for kind in kinds if kind not in CATALOGUE]
    if unknown:
        raise TypeError(f"{unknown[0]!r} is not an event class; pass classes of celery_catchup.events")
    subscription = (callback, kinds)
    _subscriptions = (*_subscriptions, subscription)

    def end() -> None:
        global _subscriptions
        _subscriptions = tuple(one for one in _subscriptions if one is not subscription)

    return end


@contextmanager
def without_subscribers() -> Iterator[None]:
    """Call no subscriber of the process inside: the runs of a measurement are not the user's."""
    global _subscriptions
    kept, _subscriptions = _subscriptions, ()
    try:
        yield
    finally:
        _subscriptions = kept


def notify_subscribers(event: Event) -> None:
    """Call the process's subscribers with an event."""
    for callback, kinds in _subscriptions:
        if not kinds or type(event) in kinds:
            try:
                callback(event)
            except Exception:  # noqa: BLE001 - a subscriber must not stop beat
                _log_failure(callback, event)


def _log_failure(callback: Callable[..., object], event: Event) -> None:
    """Log the first failure of a callback as an error, later ones at DEBUG."""
    first = id(callback) not in _failed
    _failed.add(id(callback))
    level = logging.ERROR if first else logging.DEBUG
    name = getattr(callback, "__qualname__", repr(callback))
    logger.log(level, "subscriber %s failed on %s", name, type(event).__name__, exc_info=True)
