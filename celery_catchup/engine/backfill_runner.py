"""Run backfills part by part, beside the live slots."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from math import inf
from operator import attrgetter
from typing import Any

from celery_catchup.engine.failures import Failures, describe
from celery_catchup.engine.prepared_plan import OversizeError, PreparedPlan, prepare
from celery_catchup.engine.services import Services
from celery_catchup.engine.tracked_entries import TrackedEntry
from celery_catchup.events import BackfillAdvanced, RunDispatched
from celery_catchup.model import Instant, PlannedRun, Skip, SkipReason, Slot, Trigger
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

    def advance(
        self,
        by_name: Mapping[str, TrackedEntry],
        now: Instant,
        *,
        live_is_due: Callable[[], bool] = lambda: False,
    ) -> None:
        """Decide the next part of each, and complete those without slots left. Of many, each tick continues
        some: those whose turn was longest ago. The rest waits for the next tick if a live slot is due.

        One that fails is retried with back-off, and the others continue.
        """
        for count, one in enumerate(list(islice(self._running.values(), _AT_ONCE))):
            if count and live_is_due():
                break
            if one.id in self._running:
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
        """Plan the next slots, or the next spans of slots, at most a number of them, and fewer when their
        messages are too large."""
        after, until = _range_left(one)
        stretches = _stretches(tracked, after, until) if after < until else []
        slots = _next_slots(one, stretches, most=most)
        if not slots:
            return BackfillPart(one.cursor or one.start, True, 0, _policy(one, tracked), (), {})
        low, high = min(slots).at, max(slots).at
        if one.span is not None:
            low, high = after + 1, until  # a span may have more slots than a part
        elif not one.newest_first:
            low = after + 1  # a walk from another instant may find other slots of a custom schedule
        try:
            # All slots of an instant belong to one part, however large their messages are.
            several = most > 1 and len({slot.at for slot in slots}) > 1
            most_bytes = MOST_BYTES if several else inf
            prepared = self._prepare(one, tracked, low, high, most=most, most_bytes=most_bytes)
        except OversizeError:
            return self._next_part(one, tracked, max(1, most // 2))
        if one.span is None:
            complete, cursor = len(slots) < most, low if one.newest_first else high
        else:
            complete, cursor = prepared.plan.complete, prepared.plan.watermark
            low, high = (max(low, cursor), high) if one.newest_first else (low, min(high, cursor))
        decided = Candidates((stretch.clipped(low - 1, high) for stretch in stretches), {}).count
        return BackfillPart(
            cursor=cursor,
            complete=complete,
            # Includes slots that the entry's dates exclude since the backfill was created.
            skipped=decided - len(prepared.plan.runs),
            policy=_policy(one, tracked),
            runs=prepared.batch.runs,
            templates=prepared.templates,
            **self._covered(one, tracked, prepared.plan.skips),
        )

    def _covered(self, one: Backfill, tracked: TrackedEntry, skips: Iterable[Skip]) -> dict[str, Any]:
        """Return the slots for which a run stands, and what is to change of the records about them."""
        covered = [skip for skip in skips if skip.reason is SkipReason.COVERED]
        if not covered:
            return {}
        first, last = min(skip.first for skip in covered), max(skip.last for skip in covered)
        known = self._services.backfills.recorded_skips(one.entry, first - 1, last)
        replaced, kept = [], list[dict[str, Any]]()
        for text, span in known.items():
            inside = [skip for skip in covered if _overlap(skip, span)]
            if inside:
                replaced.append(text)
                kept += _without(span, inside, tracked)
        return {"covered": covered, "replaced": replaced, "kept": kept}

    def _prepare(
        self,
        one: Backfill,
        tracked: TrackedEntry,
        low: Instant,
        high: Instant,
        *,
        most: int,
        most_bytes: float,
    ) -> PreparedPlan:
        scope = part_of_backfill(
            tracked.entry,
            start=low,
            end=high,
            now=one.created,
            reprocess=Reprocess(one.reprocess),
            newest_first=one.newest_first,
            span=one.span,
        )
        recorded = self._services.states.recorded(one.entry, low - 1, high)
        existing = tracked.entry.slots_of(self._namespace, recorded)
        limit = None if one.span is None else most
        result = plan(tracked.entry, replace(tracked.state, existing=existing), scope, limit=limit)
        dispatch = self._services.dispatch
        return prepare(tracked, result, namespace=self._namespace, dispatch=dispatch, most_bytes=most_bytes)

    def _commit(self, one: Backfill, part: BackfillPart, now: Instant) -> None:
        if self._services.backfills.commit(self._services.leadership, one, part, now=now) != "ok":
            self.load()
            return
        self._running[one.id] = replace(one, cursor=part.cursor, decided=part.complete)
        emit = self._services.events.emit
        for new in part.runs:
            slot, size = Slot(new.run["slot"], new.run["schedule"]), new.run.get("slots", 1)
            planned = PlannedRun(slot, Trigger.BACKFILL, new.send_at, first=new.run.get("first"), slots=size)
            emit(RunDispatched(one.entry, planned, new.id))
        emit(BackfillAdvanced(one.id, one.entry, len(part.runs), part.skipped, part.complete))


def _range_left(one: Backfill) -> tuple[Instant, Instant]:
    """Return what is left of the range, as ``(after, until]``."""
    after, until = one.start - 1, min(one.end, one.created)
    if one.cursor is None:
        return after, until
    return (after, one.cursor - 1) if one.newest_first else (one.cursor, until)


def _stretches(tracked: TrackedEntry, after: Instant, until: Instant) -> list[Stretch]:
    return [
        Stretch(index, schedule.timetable, after, until)
        for index, schedule in enumerate(tracked.entry.schedules)
        if schedule.role is Role.START
    ]


def _overlap(skip: Skip, span: Mapping[str, Any]) -> bool:
    first, last = int(span["first"]), int(span["last"])
    return skip.schedule == span["schedule"] and skip.first <= last and first <= skip.last


def _without(
    span: Mapping[str, Any], skips: Iterable[Skip], tracked: TrackedEntry
) -> Iterator[dict[str, Any]]:
    """Yield what is left of a record about skipped slots without these."""
    table = tracked.entry.schedules[span["schedule"]].timetable
    left = Stretch(span["schedule"], table, span["first"] - 1, span["last"])
    for skip in sorted(skips, key=attrgetter("first")):
        if (part := left.clipped(left.after, skip.first - 1).skip(skip.reason)) is not None:
            yield {**span, "first": part.first, "last": part.last, "count": part.count}
        left = left.clipped(skip.last, left.until)
    if (part := left.skip(SkipReason.COVERED)) is not None:
        yield {**span, "first": part.first, "last": part.last, "count": part.count}


def _next_slots(one: Backfill, stretches: Sequence[Stretch], *, most: int) -> list[Slot]:
    """Return the slots of the next part; all slots of an instant belong to one part."""
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
