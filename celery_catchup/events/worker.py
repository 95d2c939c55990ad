"""What happens in a worker."""

from __future__ import annotations

from dataclasses import dataclass

from celery_catchup.events.beat import RunDied
from celery_catchup.model import Instant, RunState, Trigger


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A worker has claimed a run and executes it now."""

    entry: str
    run_id: str
    slot: Instant
    trigger: Trigger
    attempt: int
    started: Instant


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An execution is over and its report recorded. ``state`` is what the run is now: ``succeeded``,
    ``revoked`` or ``dead``, ``waiting`` for its next attempt, or ``queued`` by the task's own retry."""

    entry: str
    run_id: str
    state: RunState
    error: str


@dataclass(frozen=True, slots=True)
class RunRefused:
    """A message was not executed: its run has ended (``ended``), or is executed elsewhere or waits its
    turn (``held``)."""

    entry: str
    run_id: str
    task: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """Another worker has taken a run that this one still executes."""

    entry: str
    run_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class ReportRefused:
    """What a worker reported does not count, because another has the run by now."""

    entry: str
    run_id: str
    state: RunState | None


WorkerEvent = RunStarted | AttemptEnded | RunRefused | LeaseLost | ReportRefused | RunDied
