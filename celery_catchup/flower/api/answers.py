"""Answers that have several of something; the commands' ``-j`` has the same form."""

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
class Previews:
    """What the next catch-up would do, entry by entry."""

    previews: list[Preview]


@dataclass(frozen=True, slots=True)
class PausedEntries:
    """What became of each entry."""

    entries: list[Paused]


@dataclass(frozen=True, slots=True)
class SkippedSlots:
    """Slots that were decided not to run, as spans, the newest first."""

    skipped: list[Skipped]


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Dead letters, those that died last first."""

    dead_letters: list[DeadLetter]


@dataclass(frozen=True, slots=True)
class HandledRuns:
    """What became of each run, the oldest slot first."""

    runs: list[HandledRun]


@dataclass(frozen=True, slots=True)
class Backfills:
    """Backfills, the newest first."""

    backfills: list[BackfillView]


@dataclass(frozen=True, slots=True)
class Timelines:
    """What became of each slot, by entry."""

    entries: dict[str, list[TimelineSlots]]


@dataclass(frozen=True, slots=True)
class Outages:
    """Times in which no beat led, the oldest first."""

    outages: list[Outage]
