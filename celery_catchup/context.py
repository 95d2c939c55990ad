"""What a task can ask about the run that it executes.

The worker sets the run around the task; outside of a run there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from celery_catchup.clock import Clock
from celery_catchup.errors import LeaseLostError
from celery_catchup.model import Instant, Trigger, attempt_id, to_datetime, to_rfc3339


class DataInterval(NamedTuple):
    """What a run is about: the time in ``(start, end]``; no start when there is no slot before."""

    start: datetime | None
    end: datetime


class LeaseWatch:
    """Whether this process may still act for a run, as far as it can tell without asking.

    A lease is lost when somebody else has taken the run, and cannot be relied on when it has
    not been renewed for its length by this process's own clock. The latter passes when a
    renewal gets through: then nobody has taken the run meanwhile.
    """

    def __init__(self, clock: Clock, *, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        self._until = clock.monotonic() + seconds
        self.taken = False

    def renewed(self, *, begun: float) -> None:
        """A renewal that was sent at ``begun`` got through."""
        self._until = max(self._until, begun + self._seconds)

    @property
    def lost(self) -> bool:
        """Whether somebody else has the run, or may have it."""
        return self.taken or self._clock.monotonic() > self._until


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The run that is being executed, and its present attempt."""

    entry: str
    run_id: str
    trigger: Trigger
    attempt: int
    slot: Instant
    previous: Instant | None = None
    started: Instant
    lease: LeaseWatch | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, run_id: str, record: Mapping[str, Any], *, lease: LeaseWatch | None) -> RunContext:
        """From the ledger's record of a claimed run."""
        return cls(
            entry=record["entry"],
            run_id=run_id,
            trigger=Trigger(record["trigger"]),
            attempt=int(record["attempt"]),
            slot=int(record["slot"]),
            previous=record.get("previous"),
            started=int(record["attempt_started"]),
            lease=lease,
        )

    @property
    def scheduled_time(self) -> datetime:
        """The slot: for when the run was due."""
        return to_datetime(self.slot)

    @property
    def is_catchup(self) -> bool:
        """Whether the slot was missed and is being made up for."""
        return self.trigger is Trigger.CATCHUP

    @property
    def attempt_id(self) -> str:
        """The identity of this execution; the next attempt has another."""
        return str(attempt_id(UUID(self.run_id), self.attempt))

    @property
    def data_interval(self) -> DataInterval:
        """From the slot before to this one; the end belongs to it, the start does not."""
        start = None if self.previous is None else to_datetime(self.previous)
        return DataInterval(start, self.scheduled_time)

    @property
    def lag(self) -> timedelta:
        """How long after its slot this attempt started."""
        return timedelta(milliseconds=self.started - self.slot)

    @property
    def lost(self) -> bool:
        """Whether another worker has this run by now, or may have it."""
        return self.lease is not None and self.lease.lost

    def check(self) -> None:
        """Go on only while the run is this worker's; raises `LeaseLostError` otherwise.

        For the places before something that must not happen twice.
        """
        if self.lost:
            raise LeaseLostError(
                f"run {self.run_id} of {self.entry!r} is no longer this worker's; "
                "stop here: what is reported from now on is refused"
            )

    def environ(self) -> dict[str, str]:
        """The run as environment variables, for subprocesses."""
        variables = {
            "CATCHUP_ENTRY": self.entry,
            "CATCHUP_RUN_ID": self.run_id,
            "CATCHUP_ATTEMPT": str(self.attempt),
            "CATCHUP_TRIGGER": str(self.trigger),
            "CATCHUP_SCHEDULED_TIME": to_rfc3339(self.slot),
            "CATCHUP_IS_CATCHUP": "true" if self.is_catchup else "false",
            "CATCHUP_DATA_INTERVAL_END": to_rfc3339(self.slot),
        }
        if self.previous is not None:
            variables["CATCHUP_DATA_INTERVAL_START"] = to_rfc3339(self.previous)
        return variables


_current: ContextVar[RunContext | None] = ContextVar("celery_catchup_run", default=None)


def current_run() -> RunContext | None:
    """The run that is executed here and now; None outside of one.

    A thread that a task starts is outside, unless it is started in a copy of the task's
    context (`contextvars.copy_context`).
    """
    return _current.get()


def enter_run(run: RunContext) -> None:
    """For the worker: from now on this is the current run."""
    _current.set(run)


def leave_run() -> None:
    """For the worker: the run has ended here."""
    _current.set(None)
