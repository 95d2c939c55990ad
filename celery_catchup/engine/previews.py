"""Preview what a beat that starts to lead now would decide, without the commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from celery_catchup.config.settings import FirstStart, Settings
from celery_catchup.engine.catchup import Catchup, find_held, look_up
from celery_catchup.engine.failures import describe
from celery_catchup.engine.takeover import load_entries
from celery_catchup.engine.tracked_entries import Declared, TrackedEntry
from celery_catchup.errors import TooManySlotsError
from celery_catchup.events import Events
from celery_catchup.model import Instant, Plan
from celery_catchup.planning.planner import plan, survey
from celery_catchup.store import States, StoredState


@dataclass(frozen=True)
class EntryPreview:
    """An entry and its plan; an empty plan while its schedule fails with ``error``. ``held`` runs would wait
    for an approval first."""

    tracked: TrackedEntry
    plan: Plan
    error: str | None = None
    held: int = 0


def preview(
    declared: Sequence[Declared],
    stored: StoredState,
    *,
    states: States,
    settings: Settings,
    now: Instant,
    namespace: str,
    most: int | None = None,
) -> tuple[list[EntryPreview], Mapping[str, str]]:
    """Plan the next catch-up of each entry, with the caps over all entries; return also why entries that
    cannot be read have no plan.

    ``stored`` may differ from the store, to ask what would happen with another state. If there are more than
    ``most`` slots over all entries, it raises `TooManySlotsError` before it lists them.
    """
    match = settings.first_start is FirstStart.MATCH
    loaded = load_entries(declared, stored, now=now, match_first=match, events=Events())
    entries, watermark = loaded.entries, loaded.watermark
    if most is not None:
        _check_number(entries, watermark, now, most)
    catchup = Catchup(states, Events(), lambda: 0.0, settings.max_runs, None, namespace)
    due = entries.take_due(now)
    late = [tracked for tracked in due if tracked.has_missed(now)]
    held = find_held(late, states, namespace, watermark=watermark, now=now)
    catchup.start(late, watermark=watermark, now=now)
    look_up(due, states, namespace, watermark=watermark, now=now)
    catchup.share(watermark, now)
    plans = [
        replace(_preview(tracked, watermark, now), held=held.get(tracked.entry.name, 0))
        for tracked in entries
    ]
    return plans, {name: describe(error) for name, error in loaded.unreadable.items()}


def _preview(tracked: TrackedEntry, watermark: Instant, now: Instant) -> EntryPreview:
    try:
        scope = tracked.scope(watermark, now)
        return EntryPreview(tracked, plan(tracked.entry, tracked.state, scope))
    except Exception as error:  # noqa: BLE001 - a custom schedule may raise anything
        return EntryPreview(tracked, empty_plan(now), describe(error))


def _check_number(entries: Iterable[TrackedEntry], watermark: Instant, now: Instant, most: int) -> None:
    total = 0
    for tracked in entries:
        with suppress(Exception):  # a custom schedule may raise anything; its preview says so
            total += survey(tracked.entry, tracked.scope(watermark, now))
    if total > most:
        raise TooManySlotsError(
            f"these entries have {total:,} slots in that time, and a preview may have {most:,}; name fewer "
            "entries, or a shorter window"
        )


def empty_plan(now: Instant) -> Plan:
    """Return the plan of an entry whose slots cannot be computed."""
    return Plan(now, (), (), now, None)
