"""Preview: what a beat that begins to lead now would decide, without the commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from celery_catchup.config.settings import FirstStart, Settings
from celery_catchup.engine.catchup import Catchup, look_up
from celery_catchup.engine.failures import told
from celery_catchup.engine.takeover import read_tracked_entries
from celery_catchup.engine.tracked_entries import Declared, TrackedEntry
from celery_catchup.events import Events
from celery_catchup.model import Instant, Plan
from celery_catchup.planning.entry import EntryState
from celery_catchup.planning.planner import plan
from celery_catchup.store import States, Stored


@dataclass(frozen=True)
class Preview:
    """An entry, and what would be decided on it: nothing, as long as its schedule fails with ``error``."""

    line: TrackedEntry
    plan: Plan
    error: str | None = None


def preview(
    declared: Sequence[Declared],
    stored: Stored,
    *,
    states: States,
    settings: Settings,
    now: Instant,
    namespace: str,
) -> tuple[list[Preview], Mapping[str, str]]:
    """The plans of the next catch-up, entry by entry, caps over all entries included; and why entries that
    cannot be read have none.

    ``stored`` may be another state than the store's, to ask what would be.
    """
    match = settings.first_start is FirstStart.MATCH
    known = read_tracked_entries(declared, stored, now=now, match_first=match, events=Events())
    catchup = Catchup(states, Events(), _no_time_passes, settings.max_runs, None, namespace)
    due = known.tracked.due(now)
    catchup.open([line for line in due if line.has_missed(now)], watermark=known.watermark, now=now)
    scopes = {line.entry.name: line.scope(known.watermark, now) for line in due}
    ranges = {name: (scope.replay_from, scope.now) for name, scope in scopes.items()}
    look_up(due, states, ranges, namespace)
    catchup.share(known.watermark, now)
    plans = [_preview(line, catchup.state_of(line), known.watermark, now) for line in known.tracked]
    return plans, {name: told(error) for name, error in known.unread.items()}


def _preview(line: TrackedEntry, state: EntryState, watermark: Instant, now: Instant) -> Preview:
    try:
        return Preview(line, plan(line.entry, state, line.scope(watermark, now)))
    except Exception as error:  # noqa: BLE001 - a schedule of the user's own may raise anything
        return Preview(line, nothing_planned(line.entry.name, now), told(error))


def nothing_planned(entry: str, now: Instant) -> Plan:
    """The plan of an entry whose slots nobody can tell."""
    return Plan(entry, now, (), (), now, None)


def _no_time_passes() -> float:
    return 0.0
