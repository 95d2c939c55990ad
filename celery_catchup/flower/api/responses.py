"""The shapes of responses: one for lists, one for something that was created, outcomes of bulk changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

from celery_catchup.flower.api.requests import PageRequest
from celery_catchup.operations.dead_letters import Outcome
from celery_catchup.operations.previews import Preview
from celery_catchup.operations.timeline import TimelineSlots

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class ResultPage(Generic[Item]):
    """A part of a list. ``next`` is the cursor of the next page, null on the last one. ``total`` is how
    many items there are in all; null where counting them would take long."""

    items: Sequence[Item]
    next: str | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Created(Generic[Item]):
    """Something new, and its path; without one nothing was created, because the request was a dry run or
    repeated an earlier one."""

    value: Item
    path: str | None


class EntryResult(StrEnum):
    """The result for an entry of a bulk request."""

    PAUSED = "paused"
    RESUMED = "resumed"
    UNCHANGED = "unchanged"
    UNKNOWN = "unknown"
    REFUSED = "refused"
    WOULD = "dry run"


@dataclass(frozen=True, slots=True)
class EntryOutcome:
    """The result for one entry of a bulk request, and the reason if it was refused or is unknown."""

    entry: str
    outcome: EntryResult
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The result for one run of a bulk request, and the reason if it was refused or is unknown."""

    run_id: str
    outcome: Outcome
    reason: str | None = None
    entry: str | None = None
    scheduled_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Resumed:
    """Whether an entry was paused, and what its catch-up does; ``preview`` is null if it was not paused, or
    if it has too many slots to list them."""

    entry: str
    changed: bool
    preview: Preview | None


@dataclass(frozen=True, slots=True)
class EntryTimeline:
    """The outcome of each slot of an entry."""

    entry: str
    slots: list[TimelineSlots]


def page_of(rows: Sequence[Item], request: PageRequest) -> ResultPage[Item]:
    """Cut the requested page out of a list that is known as a whole."""
    begin, end = request.offset, request.offset + request.limit
    return ResultPage(rows[begin:end], f"{end}" if end < len(rows) else None, len(rows))
