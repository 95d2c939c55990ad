"""The engine's collaborators: the parts of the store, and the side that builds and publishes messages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from celery_catchup.clock import Clock
from celery_catchup.engine.reaper import Reaper
from celery_catchup.engine.tracked_entries import Declared
from celery_catchup.errors import CatchupError
from celery_catchup.events import Events
from celery_catchup.model import Instant, PlannedRun
from celery_catchup.store import (
    ActiveLimit,
    Backfills,
    DeadlineRecords,
    Leadership,
    Ledger,
    OutboxRun,
    Retention,
    States,
    Template,
)


class DispatchFailedError(CatchupError):
    """A message could not be built or published; the run stays undecided or unpublished."""

    @property
    def temporary(self) -> bool:
        """Whether the broker is at fault, so that waiting helps; else it is the entry."""
        return True

    @property
    def guarded(self) -> bool:
        """Whether the task's own guard held it back, because a run is queued or running already."""
        return False

    @property
    def unfollowed(self) -> bool:
        """Whether it was sent, but not as one message that can be followed."""
        return False


class Sent(NamedTuple):
    """A run that was published, or the error because of which the broker does not have it, or may not."""

    run: OutboxRun
    error: DispatchFailedError | None


class Dispatch(Protocol):
    """Builds and publishes messages."""

    def template(
        self, entry: str, run: PlannedRun, run_id: str, *, options: Mapping[str, Any], spans: bool
    ) -> Template:
        """Return the message of a run, with placeholders where two runs of the entry differ; ``options``
        replace those of the entry. With ``spans`` it has a header for the number of slots."""

    def publish(
        self, windows: Iterable[Sequence[OutboxRun]], *, now: Instant, enough: Callable[[], bool]
    ) -> Iterator[list[Sent]]:
        """Publish runs of the outbox; yield, for each window, which of its runs the broker has.

        The next window is asked for while the broker confirms the last one. A broker that takes messages one
        by one is slow: then ``enough`` is called after each, and when it returns True, the rest is left out.
        """

    def end(self, task_ids: list[str], *, terminate: bool) -> bool:
        """Ask the workers to end these tasks; return False when the broker does not accept it."""

    def depth(self, queue: str, routing_key: str, priority: int = 0) -> int | None:
        """Count the messages of a queue, unacknowledged ones too; None when the broker cannot. With a
        priority, count those of that priority if the broker keeps them apart."""


@dataclass(frozen=True)
class StoredChanges:
    """Changes of the stored entries: those to use, those that are gone, and those that cannot be used, with
    the reasons; and the longest window of those to use."""

    declared: Sequence[Declared] = ()
    gone: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    longest_window: timedelta = timedelta()


class StoredEntrySource(Protocol):
    """The entries that are created at run time."""

    revision: int
    """The latest one that was read; -1 before the first."""

    def read_changes(self, revision: int, *, reload: bool) -> StoredChanges:
        """Read what has changed up to this revision; with ``reload``, read everything again."""

    def delete_finished(self, names: Iterable[str], *, before: Instant) -> None:
        """Delete those of these entries whose only slot was earlier."""


class NoStoredEntries:
    """A source without entries."""

    revision = 0

    def read_changes(self, revision: int, *, reload: bool) -> StoredChanges:
        """Return no changes."""
        self.revision = revision
        return StoredChanges()

    def delete_finished(self, names: Iterable[str], *, before: Instant) -> None:
        """Do nothing."""


class Missed(NamedTuple):
    """Slots of an entry that were missed: the first of them, and up to when."""

    entry: str
    first: Instant
    until: Instant


@dataclass(frozen=True)
class Services:
    """The engine's collaborators."""

    leadership: Leadership
    states: States
    ledger: Ledger
    dispatch: Dispatch
    clock: Clock
    events: Events
    reaper: Reaper
    backfills: Backfills
    retention: Retention
    active_limit: ActiveLimit
    deadlines: DeadlineRecords
    schedule: Collection[str] = ()
    """Names of all entries, including those without a policy."""
    stored_entries: StoredEntrySource = field(default_factory=NoStoredEntries)
    """The entries that are created at run time."""
    note_missed: Callable[[Sequence[Missed]], None] = lambda _: None
    """Called when slots were missed, before any of them is decided."""
    read_watermark_file: Callable[[], dict[str, Instant] | None] = lambda: None
    """Returns up to where each entry was decided; None without a file."""
