"""Run backfills part by part, beside the live slots."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from math import inf

from celery_catchup.engine.failures import Failures, describe
from celery_catchup.engine.prepared_plan import OversizeError, PreparedPlan, prepare
from celery_catchup.engine.services import Services
from celery_catchup.engine.tracked_entries import TrackedEntry
from celery_catchup.events import BackfillAdvanced, RunDispatched
from celery_catchup.model import Instant, PlannedRun, Slot, Trigger
from celery_catchup.planning.candidates import Candidates, Stretch
from celery_catchup.planning.entry import Role
from celery_catchup.planning.planner import plan
from celery_catchup.planning.scope import Reprocess, part_of_backfill
from celery_catchup.store import Backfill, FencedError
from celery_catchup.store.backfills import BackfillPart
from celery_catchup.store.batches import MOST_BYTES
from celery_catchup.store.error_advice import STORE_FAILS, is_damage

_AT_ONCE = 100
"""Backfills that continue in one tick; more of them take turns, so that live slots do not wait for them."""
_PART = 200
"""Slots of one backfill that are decided in one tick."""
_AHEAD = 400
"""Runs of one backfill that may wait for their turn, so that a cancelled backfill leaves little to undo."""


class BackfillRunner:
    """Continues every running backfill, one part a tick; its cursor stores how far each is."""

    def __init__(self, services: Services, failures: Failures, *, namespace: str) -> None:
        self._services, self._failures, self._namespace = services, failures, namespace
        self._running: dict[str, Backfill] = {}

    def load(self) -> None:
        """Read the running backfills; at take-over, and when something changed."""
        stored = self._services.backfills.all()
        self._running = {one.id: one for one in stored if one.state == "running"}
        for one in stored:
            if one.id not in self._running:
                self._failures.over(one.lane)

    def advance(self, by_name: Mapping[str, TrackedEntry], now: Instant) -> None:
        """Decide the next part of each, and complete those without slots left. Of many, each tick continues
        some: those whose turn was longest ago.

        One that fails is retried with back-off, and the others continue.
        """
        for one in list(islice(self._running.values(), _AT_ONCE)):
            if len(self._running) > _AT_ONCE and one.id in self._running:
                self._running[one.id] = self._running.pop(one.id)
            if self._failures.waits(one.lane, now):
                continue
            try:
                self._continue(one, by_name.get(one.entry), now)
            except Exception as error:
                # A custom schedule or a hook may raise anything.
                if isinstance(error, (*STORE_FAILS, FencedError)) and not is_damage(error):
                    raise
                self._failures.record(one.lane, describe(error), now=now, entry=one.entry)
            else:
                self._failures.over(one.lane)

    def _continue(self, one: Backfill, tracked: TrackedEntry | None, now: Instant) -> None:
        backfills = self._services.backfills
        if one.decided:
            if backfills.set_state(one.id, "completed", change=None) == "completed":
                del self._running[one.id]
        elif tracked is not None and backfills.waiting(one) < _AHEAD:
            self._commit(one, self._next_part(one, tracked, _PART), now)

    def _next_part(self, one: Backfill, tracked: TrackedEntry, most: int) -> BackfillPart:
        """Plan the next slots, at most a number of them, and fewer when their messages are too large."""
        after, until = _range_left(one)
        slots = _next_slots(one, tracked, after, until, most=most) if after < until else []
        if not slots:
            return BackfillPart(one.cursor or one.start, True, 0, _policy(one, tracked), (), {})
        low, high = min(slots).at, max(slots).at
        if not one.newest_first:
            low = after + 1  # a walk from another instant may find other slots of a custom schedule
        try:
            # All slots of an instant belong to one part, however large their messages are.
            several = len({slot.at for slot in slots}) > 1
            prepared = self._prepare(one, tracked, low, high, most_bytes=MOST_BYTES if several else inf)
        except OversizeError:
            return self._next_part(one, tracked, max(1, most // 2))
        return BackfillPart(
            cursor=low if one.newest_first else high,
            complete=len(slots) < most,
            # Includes slots that the entry's dates exclude since the backfill was created.
            skipped=len(slots) - len(prepared.plan.runs),
            policy=_policy(one, tracked),
            runs=prepared.batch.runs,
            templates=prepared.templates,
        )

    def _prepare(
        self, one: Backfill, tracked: TrackedEntry, low: Instant, high: Instant, *, most_bytes: float
    ) -> PreparedPlan:
        scope = part_of_backfill(
            tracked.entry,
            start=low,
            end=high,
            now=one.created,
            reprocess=Reprocess(one.reprocess),
            newest_first=one.newest_first,
        )
        recorded = self._services.states.recorded(one.entry, low - 1, high)
        existing = tracked.entry.slots_of(self._namespace, recorded)
        result = plan(tracked.entry, replace(tracked.state, existing=existing), scope)
        dispatch = self._services.dispatch
        return prepare(tracked, result, namespace=self._namespace, dispatch=dispatch, most_bytes=most_bytes)

    def _commit(self, one: Backfill, part: BackfillPart, now: Instant) -> None:
        if self._services.backfills.commit(self._services.leadership, one, part, now=now) != "ok":
            self.load()
            return
        self._running[one.id] = replace(one, cursor=part.cursor, decided=part.complete)
        emit = self._services.events.emit
        for new in part.runs:
            slot = Slot(new.run["slot"], new.run["schedule"])
            emit(RunDispatched(one.entry, PlannedRun(slot, Trigger.BACKFILL, new.send_at), new.id))
        emit(BackfillAdvanced(one.id, one.entry, len(part.runs), part.skipped, part.complete))


def _range_left(one: Backfill) -> tuple[Instant, Instant]:
    """Return what is left of the range, as ``(after, until]``."""
    after, until = one.start - 1, min(one.end, one.created)
    if one.cursor is None:
        return after, until
    return (after, one.cursor - 1) if one.newest_first else (one.cursor, until)


def _next_slots(
    one: Backfill, tracked: TrackedEntry, after: Instant, until: Instant, *, most: int
) -> list[Slot]:
    """Return the slots of the next part; all slots of an instant belong to one part."""
    stretches = [
        Stretch(index, schedule.timetable, after, until)
        for index, schedule in enumerate(tracked.entry.schedules)
        if schedule.role is Role.START
    ]
    stream = Candidates(stretches, {}).slots(newest_first=one.newest_first)
    slots = list(islice(stream, most))
    if len(slots) == most:
        for slot in stream:
            if slot.at != slots[-1].at:
                break
            slots.append(slot)
    return slots


def _policy(one: Backfill, tracked: TrackedEntry) -> str:
    """Return the policy of the backfill's lane: the entry's attempts, its own number of active runs."""
    own = {"capacity": one.max_active, "on_failure": "continue", "pause_on_failure": False}
    return json.dumps({**json.loads(tracked.stored_policy()), **own})
