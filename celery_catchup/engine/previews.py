"""Preview: what a beat that begins to lead now would decide, without the commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from celery_catchup.engine.catchup import Catchup
from celery_catchup.engine.office import read_roster
from celery_catchup.engine.roster import Declared, Line
from celery_catchup.events import Events
from celery_catchup.model import Instant, Plan
from celery_catchup.planner import plan
from celery_catchup.settings import FirstStart, Settings
from celery_catchup.store import States, Stored


@dataclass(frozen=True)
class Preview:
    """An entry, and what would be decided on it."""

    line: Line
    plan: Plan


def preview(
    declared: Sequence[Declared], stored: Stored, *, states: States, settings: Settings, now: Instant
) -> list[Preview]:
    """The plans of the next catch-up, entry by entry, caps over all entries included.

    ``stored`` may be another state than the store's, to ask what would be.
    """
    match = settings.first_start is FirstStart.MATCH
    known = read_roster(declared, stored, now=now, match_first=match, events=Events())
    catchup = Catchup(states, Events(), _no_time_passes, settings.max_runs, pause=None)
    due = known.roster.due(now)
    catchup.open([line for line in due if has_missed(line, now)], watermark=known.watermark, now=now)
    for line in due:
        _look_up(line, states, known.watermark, now)
    return [
        Preview(line, plan(line.entry, catchup.state_of(line), line.scope(known.watermark, now)))
        for line in known.roster
    ]


def has_missed(line: Line, now: Instant) -> bool:
    """Whether the entry is late enough, or long enough paused, to be caught up."""
    wake = line.wake_at
    late = wake is not None and now - wake > line.entry.misfire_threshold
    return line.session is None and (late or line.state.paused_at is not None)


def _look_up(line: Line, states: States, watermark: Instant, now: Instant) -> None:
    """What the store knows of an entry that is due: who is busy, and which slots have their run."""
    scope = line.scope(watermark, now)
    look_up([line], states, {line.entry.name: (scope.replay_from, scope.now)})


def look_up(lines: Sequence[Line], states: States, ranges: Mapping[str, tuple[Instant, Instant]]) -> None:
    """Learn who is busy, and which slots of the ranges ``(after, until]`` have their run."""
    busy = states.busy(ranges)
    existing = states.existing_of(ranges)
    for line in lines:
        name = line.entry.name
        line.state.active, line.state.waiting = busy[name].active, busy[name].waiting
        if line.session is None:
            line.state.existing = existing[name]
        else:
            line.session.existing = existing[name]


def _no_time_passes() -> float:
    return 0.0
