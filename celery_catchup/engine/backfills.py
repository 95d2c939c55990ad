"""The leader's work on backfills: part by part, beside the live slots."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from math import inf

from celery_catchup.engine.drafts import Dispatch, Draft, OversizeError, draft
from celery_catchup.engine.failures import Failures, told
from celery_catchup.engine.takeover import stored_policy
from celery_catchup.engine.tracked_entries import TrackedEntry
from celery_catchup.events import BackfillAdvanced, Events, RunDispatched
from celery_catchup.model import Instant, PlannedRun, Slot, Trigger
from celery_catchup.planning.candidates import Candidates, Stretch
from celery_catchup.planning.entry import Role
from celery_catchup.planning.planner import plan
from celery_catchup.planning.scope import Reprocess, part_of_backfill
from celery_catchup.store import Backfill, Backfills, FencedError, Leadership, States
from celery_catchup.store.backfills import Part
from celery_catchup.store.batches import MOST_BYTES
from celery_catchup.store.error_advice import STORE_FAILS, is_damage

_PART = 200
"""Slots that are decided of one backfill in one tick."""
_AHEAD = 400
"""Runs of one backfill that may wait their turn: what is cancelled should not have to be undone."""


class BackfillWork:
    """Goes on with every running backfill, a part a tick; its cursor says how far each is."""

    def __init__(
        self,
        backfills: Backfills,
        states: States,
        leadership: Leadership,
        dispatch: Dispatch,
        events: Events,
        failures: Failures,
        *,
        namespace: str,
    ) -> None:
        self._backfills, self._states, self._leadership = backfills, states, leadership
        self._dispatch, self._events, self._namespace = dispatch, events, namespace
        self._failures = failures
        self._running: dict[str, Backfill] = {}

    def load(self) -> None:
        """Read which backfills there are; after taking office, and when something changed."""
        known = self._backfills.all()
        self._running = {one.id: one for one in known if one.state == "running"}
        for one in known:
            if one.id not in self._running:
                self._failures.over(one.lane)

    @property
    def pending(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._running)

    def advance(self, lines: Mapping[str, TrackedEntry], now: Instant) -> None:
        """Decide the next part of each; complete those that are through. One that fails is tried again
        later, and the others go on."""
        for one in list(self._running.values()):
            if self._failures.waits(one.lane, now):
                continue
            try:
                self._go_on(one, lines.get(one.entry), now)
            except Exception as error:
                # A schedule or hook of the user's own may raise anything.
                if isinstance(error, (*STORE_FAILS, FencedError)) and not is_damage(error):
                    raise
                self._failures.record(one.lane, told(error), now=now, entry=one.entry)
            else:
                self._failures.over(one.lane)

    def _go_on(self, one: Backfill, line: TrackedEntry | None, now: Instant) -> None:
        if one.decided:
            if self._backfills.direct(one.id, "completed") == "completed":
                del self._running[one.id]
        elif line is not None and self._backfills.waiting(one) < _AHEAD:
            self._fill(one, line, now)

    def _fill(self, one: Backfill, line: TrackedEntry, now: Instant, *, most: int = _PART) -> None:
        reach = self._reach(one)
        slots = [] if reach is None else self._next_slots(one, line, *reach, most=most)
        if reach is not None and slots:
            low, high = min(slots).at, max(slots).at
            if not one.newest_first:
                low = reach[0] + 1  # a walk from another instant may find other slots of a custom schedule
            try:
                # All slots of an instant belong to one part, however large their messages are.
                several = len({slot.at for slot in slots}) > 1
                made = self._draft(one, line, low, high, most_bytes=MOST_BYTES if several else inf)
            except OversizeError:
                self._fill(one, line, now, most=max(1, most // 2))
                return
            part = Part(
                cursor=low if one.newest_first else high,
                complete=len(slots) < most,
                # Also those that the entry's dates leave out by now.
                skipped=len(slots) - len(made.plan.runs),
                policy=_policy(one, line),
                runs=made.batch.runs,
                templates=made.templates,
            )
        else:
            part = Part(one.cursor or one.start, True, 0, _policy(one, line), (), {})
        self._commit(one, part, now)

    def _reach(self, one: Backfill) -> tuple[Instant, Instant] | None:
        """What is left of the range, as ``(after, until]``."""
        after, until = one.start - 1, min(one.end, one.created)
        if one.cursor is not None:
            after, until = (after, one.cursor - 1) if one.newest_first else (one.cursor, until)
        return (after, until) if after < until else None

    def _next_slots(
        self, one: Backfill, line: TrackedEntry, after: Instant, until: Instant, *, most: int
    ) -> list[Slot]:
        """The slots of the next part; all slots of an instant belong to one part."""
        stretches = [
            Stretch(index, schedule.timetable, after, until)
            for index, schedule in enumerate(line.entry.schedules)
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

    def _draft(
        self, one: Backfill, line: TrackedEntry, low: Instant, high: Instant, *, most_bytes: float
    ) -> Draft:
        scope = part_of_backfill(
            line.entry,
            start=low,
            end=high,
            now=one.created,
            reprocess=Reprocess(one.reprocess),
            newest_first=one.newest_first,
        )
        recorded = self._states.recorded(one.entry, low - 1, high)
        existing = line.entry.slots_of(self._namespace, recorded)
        result = plan(line.entry, replace(line.state, existing=existing), scope)
        return draft(line, result, namespace=self._namespace, dispatch=self._dispatch, most_bytes=most_bytes)

    def _commit(self, one: Backfill, part: Part, now: Instant) -> None:
        if self._backfills.fill(self._leadership, one, part, now=now) == "ok":
            self._running[one.id] = replace(one, cursor=part.cursor, decided=part.complete)
            self._tell(one, part)
        else:
            self.load()

    def _tell(self, one: Backfill, part: Part) -> None:
        for new in part.runs:
            slot = Slot(new.run["slot"], new.run["schedule"])
            self._events.emit(
                RunDispatched(one.entry, PlannedRun(slot, Trigger.BACKFILL, new.send_at), new.id)
            )
        done = BackfillAdvanced(one.id, one.entry, len(part.runs), part.skipped, part.complete)
        self._events.emit(done)


def _policy(one: Backfill, line: TrackedEntry) -> str:
    """What the scripts that release and end runs need to know of the lane: the entry's policy on
    attempts, and the backfill's own number of active runs."""
    own = {"capacity": one.max_active, "on_failure": "continue", "pause_on_failure": False}
    return json.dumps({**json.loads(stored_policy(line)), **own})
