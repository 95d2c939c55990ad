"""Events of a worker."""

from __future__ import annotations

from dataclasses import dataclass

from celery_catchup.events.beat import RunDied
from celery_catchup.model import Instant, RunState, Trigger


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
