"""The run that a task executes: `RunContext`, which `current_run` returns inside of a task.

The worker sets it before the task and removes it afterwards; outside of a run there is none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from celery_catchup.clock import Clock
from celery_catchup.errors import LeaseLostError
from celery_catchup.model import Instant, Trigger, attempt_id, to_datetime, to_rfc3339

if TYPE_CHECKING:  # tasks import this module in every process; it needs no Redis for that
    from celery_catchup.store import Notes


class DataInterval(NamedTuple):
    """The time ``(start, end]`` that a run covers; no start when there is no slot before."""

    start: datetime | None
    end: datetime


class LeaseWatch:
    """Tell whether this process may still act for a run, without asking the store.

    A lease is lost when another worker has taken the run. It is also lost, for the time being, when this
    process has not renewed it for its length: a renewal that succeeds later shows that no other worker has
    taken the run.
    """

    def __init__(self, clock: Clock, *, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        self._until = clock.monotonic() + seconds
        self.taken = False

    def renewed(self, *, begun: float) -> None:
        """Note a renewal that was sent at ``begun`` and succeeded."""
        self._until = max(self._until, begun + self._seconds)

    @property
    def lost(self) -> bool:
        """Whether another worker has the run, or may have it."""
        return self.taken or self._clock.monotonic() > self._until


class Notebook:
    """Read and write what one execution of a run notes in the store; it is read once."""

    def __init__(self, notes: Notes, run_id: str, *, owner: str) -> None:
        self._notes, self._run_id, self._owner = notes, run_id, owner
        self._known: dict[str, dict[str, Any]] | None = None

    def read(self) -> Mapping[str, Mapping[str, Any]]:
        """Return all notes: by kind, then by name."""
        if self._known is None:
            self._known = self._notes.read(self._run_id)
        return self._known

    def write(self, kind: str, name: str, value: Any, *, once: bool = False) -> Any:
        """Note a value and return what is kept: with ``once`` that is the first one."""
        kept = self._notes.write(self._run_id, kind, name, value, owner=self._owner, once=once)
        if self._known is not None:
            self._known.setdefault(kind, {})[name] = kept
        return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The run that a task executes, and its current attempt."""

    entry: str
    run_id: str
    trigger: Trigger
    attempt: int
    slot: Instant
    previous: Instant | None = None
    slots: int = 1
    """How many missed slots the run stands for (`select: span`)."""
    started: Instant
    _lane: str = field(default="", repr=False, compare=False)
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
        """Read the ledger's record of a claimed run."""
        return cls(
            entry=record["entry"],
            run_id=run_id,
            trigger=Trigger(record["trigger"]),
            attempt=int(record["attempt"]),
            slot=int(record["slot"]),
            previous=record.get("previous"),
            slots=int(record.get("slots", 1)),
            started=int(record["attempt_started"]),
            _lane=record.get("lane", ""),
            lease=lease,
            notebook=notebook,
        )

    @property
    def scheduled_time(self) -> datetime:
        """The slot: when the run was due."""
        return to_datetime(self.slot)

    @property
    def is_catchup(self) -> bool:
        """Whether the run catches up a missed slot."""
        return self.trigger.is_catchup

    @property
    def attempt_id(self) -> str:
        """The id of this execution; the next attempt has another one."""
        return attempt_id(self.run_id, self.attempt)

    @property
    def data_interval(self) -> DataInterval:
        """The time from the slot before (exclusive) to this one (inclusive)."""
        start = None if self.previous is None else to_datetime(self.previous)
        return DataInterval(start, self.scheduled_time)

    @property
    def lag(self) -> timedelta:
        """How long after its slot this attempt started."""
        return timedelta(milliseconds=self.started - self.slot)

    @property
    def lost(self) -> bool:
        """Whether another worker has this run, or may have it."""
        return self.lease is not None and self.lease.lost

    def check(self) -> None:
        """Raise `LeaseLostError` unless the run is still this worker's.

        Call it before anything that must not happen twice.
        """
        if self.lost:
            raise LeaseLostError(
                f"run {self.run_id} of {self.entry!r} is no longer this worker's; "
                "stop here: what is reported from now on is refused"
            )

    # -- notes ---------------------------------------------------------------------------------

    @property
    def checkpoints(self) -> Mapping[str, Any]:
        """The checkpoints of this and earlier attempts, by name."""
        return {} if self.notebook is None else self.notebook.read().get("checkpoints", {})

    def checkpoint(self, name: str, value: Any) -> None:
        """Note how far the run is, for the next attempt; a JSON value of at most 64 KB."""
        self._write("checkpoints", name, value)

    def snapshot(self, name: str, loader: Callable[[], Any]) -> Any:
        """Return what ``loader`` returned in the first attempt; later attempts and replays get the same."""
        if self.notebook is None:
            return loader()
        known = self.notebook.read().get("snapshots", {})
        return known[name] if name in known else self._write("snapshots", name, loader(), once=True)

    def output(self, name: str, pointer: Any) -> None:
        """Note a result of the run and where it is; shown with the run."""
        self._write("outputs", name, pointer)

    def progress(self, done: float, total: float | None = None) -> None:
        """Note how much of the work is done; shown with the run."""
        self._write("progress", "work", [done, total])

    def _write(self, kind: str, name: str, value: Any, *, once: bool = False) -> Any:
        if self.notebook is None:
            return value
        return self.notebook.write(kind, name, value, once=once)

    def environ(self) -> dict[str, str]:
        """Return the run as environment variables, for subprocesses."""
        variables = {
            "CATCHUP_ENTRY": self.entry,
            "CATCHUP_RUN_ID": self.run_id,
            "CATCHUP_ATTEMPT": str(self.attempt),
            "CATCHUP_TRIGGER": str(self.trigger),
            "CATCHUP_SCHEDULED_TIME": to_rfc3339(self.slot),
            "CATCHUP_IS_CATCHUP": "true" if self.is_catchup else "false",
            "CATCHUP_LAG_SECONDS": str(int(self.lag.total_seconds())),
            "CATCHUP_DATA_INTERVAL_END": to_rfc3339(self.slot),
            "CATCHUP_SLOTS": str(self.slots),
        }
        if self.previous is not None:
            variables["CATCHUP_DATA_INTERVAL_START"] = to_rfc3339(self.previous)
        return variables


_current: ContextVar[RunContext | None] = ContextVar("celery_catchup_run", default=None)


def current_run() -> RunContext | None:
    """Return the run that is executed here; None outside of one.

    A thread that a task starts is outside, unless it is started in a copy of the task's
    context (`contextvars.copy_context`).
    """
    return _current.get()


def enter_run(run: RunContext) -> None:
    """Make this the current run, and put it on the current span of OpenTelemetry."""
    _current.set(run)
    trace = sys.modules.get("opentelemetry.trace")  # only where it was imported already
    span = None if trace is None else trace.get_current_span()
    if span is not None and span.is_recording():
        span.set_attributes(span_attributes(run))


def leave_run() -> None:
    """Leave the current run."""
    _current.set(None)


def span_attributes(run: RunContext) -> dict[str, str | bool | int | float]:
    """Return the attributes of a run's span."""
    return {
        "catchup.entry": run.entry,
        "catchup.run_id": run.run_id,
        "catchup.attempt": run.attempt,
        "catchup.trigger": str(run.trigger),
        "catchup.is_catchup": run.is_catchup,
        "catchup.scheduled_time": to_rfc3339(run.slot),
        "catchup.lag_seconds": run.lag.total_seconds(),
    }
