"""What a task can ask about the run that it executes.

The worker sets the run around the task; outside of a run there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

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


class Notebook(Protocol):
    """Where a run keeps what it wants to find again; the worker gives it one."""

    def read(self) -> Mapping[str, Mapping[str, Any]]:
        """Everything kept so far: by kind, then by name."""

    def write(self, kind: str, name: str, value: Any, *, once: bool = False) -> Any:
        """Keep a value, and return what is kept: with ``once`` that is the first one."""


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
    notebook: Notebook | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        run_id: str,
        record: Mapping[str, Any],
        *,
        lease: LeaseWatch | None,
        notebook: Notebook | None = None,
    ) -> RunContext:
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
            notebook=notebook,
        )

    @property
    def scheduled_time(self) -> datetime:
        """The slot: for when the run was due."""
        return to_datetime(self.slot)

    @property
    def is_catchup(self) -> bool:
        """Whether the slot was missed and is being made up for."""
        return self.trigger.is_catchup

    @property
    def attempt_id(self) -> str:
        """The identity of this execution; the next attempt has another."""
        return attempt_id(self.run_id, self.attempt)

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

    # -- what is kept --------------------------------------------------------------------------

    @property
    def checkpoints(self) -> Mapping[str, Any]:
        """What this and earlier attempts have noted."""
        return {} if self.notebook is None else self.notebook.read().get("checkpoints", {})

    def checkpoint(self, name: str, value: Any) -> None:
        """Note how far the run is, for the next attempt; a JSON value of at most 64 KB."""
        self._write("checkpoints", name, value)

    def snapshot(self, name: str, loader: Callable[[], Any]) -> Any:
        """The value that ``loader`` gave the first attempt; later ones, replays too, get the same."""
        if self.notebook is None:
            return loader()
        known = self.notebook.read().get("snapshots", {})
        return known[name] if name in known else self._write("snapshots", name, loader(), once=True)

    def output(self, name: str, pointer: Any) -> None:
        """Note what the run made and where it is; shown with the run."""
        self._write("outputs", name, pointer)

    def progress(self, done: float, total: float | None = None) -> None:
        """Note how much of the work is done; shown with the run."""
        self._write("progress", "work", [done, total])

    def _write(self, kind: str, name: str, value: Any, *, once: bool = False) -> Any:
        if self.notebook is None:
            return value
        return self.notebook.write(kind, name, value, once=once)

    def environ(self) -> dict[str, str]:
        """The run as environment variables, for subprocesses."""
        variables = {
            "CATCHUP_ENTRY": self.entry,
            "CATCHUP_RUN_ID": self.run_id,
            "CATCHUP_ATTEMPT": str(self.attempt),
            "CATCHUP_TRIGGER": str(self.trigger),
            "CATCHUP_SCHEDULED_TIME": to_rfc3339(self.slot),
            "CATCHUP_IS_CATCHUP": "true" if self.is_catchup else "false",
            "CATCHUP_LAG_SECONDS": str(int(self.lag.total_seconds())),
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
