"""Responses that list something. The commands' ``-j`` has the same form."""

from __future__ import annotations

from dataclasses import dataclass

from celery_catchup.operations.backfills import BackfillView
from celery_catchup.operations.dead_letters import DeadLetter, HandledRun
from celery_catchup.operations.pauses import Paused
from celery_catchup.operations.previews import Preview
from celery_catchup.operations.runs import Skipped
from celery_catchup.operations.status import Outage
from celery_catchup.operations.timeline import TimelineSlots


@dataclass(frozen=True, slots=True)
class PreviewList:
    """Previews of the next catch-up, by entry."""

    previews: list[Preview]


@dataclass(frozen=True, slots=True)
class PausedList:
    """The result for each entry."""

    entries: list[Paused]


@dataclass(frozen=True, slots=True)
class SkippedList:
    """Spans of skipped slots, newest first."""

    skipped: list[Skipped]


@dataclass(frozen=True, slots=True)
class DeadLetterList:
    """Dead letters, the latest first."""

    dead_letters: list[DeadLetter]


@dataclass(frozen=True, slots=True)
class HandledList:
    """The result for each run, oldest slot first."""

    runs: list[HandledRun]


@dataclass(frozen=True, slots=True)
class BackfillList:
    """Backfills, newest first."""

    backfills: list[BackfillView]


@dataclass(frozen=True, slots=True)
class Timelines:
    """The outcome of each slot, by entry."""

    entries: dict[str, list[TimelineSlots]]


@dataclass(frozen=True, slots=True)
class OutageList:
    """Times without a leading beat, oldest first."""

    outages: list[Outage]
