"""Deadlines: report slots whose run has not succeeded within `expect_within`, and those that recover.

Only the leader judges. Until a deadline passes, that costs one comparison a tick; then the store decides in
one step by what the ledger has. A slot is reported once, whichever beat leads, and also if the answer to that
step is lost: the leader repeats the step, and knows what it has reported.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from celery_catchup.engine.tracked_entries import TrackedEntry
from celery_catchup.events import Events, SlotOverdue, SlotRecovered
from celery_catchup.model import Instant, Slot, to_milliseconds
from celery_catchup.store import DeadlineRecords, Leadership
from celery_catchup.store.deadlines import DeadlineOutcome, Judged, Judgement
from celery_catchup.store.listing import OverdueSlot
from celery_catchup.store.store import read_json, stored_instant

_AT_ONCE = 250
"""Slots of one step, because a script blocks the server."""
_OF_ONE = 50
"""Slots of one entry in one step."""
_MOST_BEHIND = 1000
"""Slots of one entry that are judged after an outage: the newest ones."""
_LOOK_EVERY = 2_000
"""Milliseconds between two looks at overdue slots."""
_RETRY = 60_000
"""Milliseconds before an entry is tried again whose schedule or keys fail."""
_HOUR, _DAY = 3_600_000, 86_400_000


@dataclass(slots=True)
class _Watched:
    """An entry with a deadline.

    judged  its slots up to here are judged
    resume  the end of its last pause; the deadline of slots up to then counts from it
    """

    tracked: TrackedEntry
    within: int
    judged: Instant
    resume: Instant

    @property
    def record(self) -> str:
        return json.dumps({"judged": self.judged, "resume": self.resume})

    def deadline(self, slot: Instant) -> Instant:
        return max(slot, self.resume if slot <= self.resume else 0) + self.within

    def slots(self) -> Iterator[Slot]:
        """Yield the slots that are not judged, in order; of a paused entry, only those before the pause."""
        state = self.tracked.state
        paused = state.paused_at if state.paused and state.held_at is None else None
        for slot in self.tracked.entry.slots_after(self.judged, stops=False):
            if paused is not None and slot.at > paused:
                return
            yield slot


class Deadlines:
    """The deadlines of all entries that have one."""

    def __init__(self, records: DeadlineRecords, leadership: Leadership, events: Events) -> None:
        self._records, self._leadership, self._events = records, leadership, events
        self._stored: dict[str, str] = {}
        self._watched: dict[str, _Watched] = {}
        self._heap: list[tuple[Instant, str]] = []
        self._overdue: dict[tuple[str, int, Instant], OverdueSlot] = {}
        """Overdue slots that were reported, by entry, schedule and slot; first those to look at next."""
        self._look_at: Instant = 0
        self.changes = 0
        """Grows whenever a slot becomes overdue, or is not overdue any more."""

    def load(self) -> None:
        """Read what the leaders before have judged; `track` follows."""
        self.changes += 1
        self._stored, self._watched = self._records.records(), {}
        self._overdue = {one.place: one for one in self._records.overdue()}

    def track(self, entries: Iterable[TrackedEntry], declared: Iterable[str], *, now: Instant) -> None:
        """Watch those of these entries that have a deadline, in place of those that were watched."""
        watched, present = dict[str, _Watched](), set(declared)
        for tracked in entries:
            present.discard(tracked.entry.name)
            within = tracked.entry.policy.expect_within
            if within is not None:
                watched[tracked.entry.name] = self._watch(tracked, to_milliseconds(within), now)
        # Of entries that are declared but cannot be read at present, everything is kept.
        kept = {*watched, *present}
        changes: dict[str, str | None] = {
            name: one.record for name, one in watched.items() if self._stored.get(name) != one.record
        }
        changes |= {name: None for name in self._stored if name not in kept}
        settled = [one for one in self._overdue.values() if one.entry not in kept]
        if changes or settled:
            self._records.set(self._leadership, changes, settled=settled)
            self._stored = {name: text for name, text in self._stored.items() if name in kept} | {
                name: text for name, text in changes.items() if text is not None
            }
            for one in settled:
                del self._overdue[one.place]
            self.changes += bool(settled)
        self._watched, self._heap, self._look_at = watched, [], 0  # the clock may have been put back
        for name in watched:
            self._wait(name, now)

    def overdue_entries(self) -> dict[str, tuple[OverdueSlot, int]]:
        """Return the entries that have overdue slots: the first of these, and their number."""
        found: dict[str, tuple[OverdueSlot, int]] = {}
        for one in self._overdue.values():
            first, count = found.get(one.entry, (one, 0))
            found[one.entry] = min(first, one, key=lambda slot: slot.slot), count + 1
        return found

    def _watch(self, tracked: TrackedEntry, within: int, now: Instant) -> _Watched:
        """Continue where the entry was judged; one that is new, or has its deadline since now, begins now."""
        name, state = tracked.entry.name, tracked.state
        stored = read_json(self._stored.get(name)) or {}
        judged, resume = stored_instant(stored.get("judged")), stored_instant(stored.get("resume")) or 0
        if judged is None:
            judged = state.first_seen_at if tracked.newcomer else now
        resumed = (pause.until for pause in state.pauses if pause.until is not None and not pause.held)
        return _Watched(tracked, within, min(judged, now), max(resume, *resumed, 0))

    def _wait(self, name: str, now: Instant) -> None:
        """Look at the entry when its next deadline passes."""
        one = self._watched[name]
        try:
            first = next(one.slots(), None)
        except Exception:  # noqa: BLE001 - a custom schedule may raise anything; the entry itself reports it
            heapq.heappush(self._heap, (now + _RETRY, name))
            return
        if first is not None:
            heapq.heappush(self._heap, (one.deadline(first.at), name))

    def step(self, now: Instant) -> None:
        """Judge a bounded number of the slots whose deadline has passed, and look at overdue ones again."""
        looks = bool(self._overdue) and now >= self._look_at
        if not looks and not (self._heap and self._heap[0][0] <= now):
            return
        due = self._take_due(now)
        again = self._to_look_at() if looks else []
        try:
            changes = self._judge([*due, *again], now) if due or again else []
        except BaseException:
            for one in due:
                heapq.heappush(self._heap, (now, one.entry))
            raise
        self._look_at = now + _LOOK_EVERY if looks else self._look_at
        for slot in (slot for one in again for slot in one.slots):
            self._overdue[slot.place] = self._overdue.pop(slot.place)  # the next look is at others
        news = [change for change in changes if self._note(change)]
        self.changes += bool(news)
        self._follow(due, changes, now)
        for change in news:
            self._report(change, now)

    def _note(self, change: Judged) -> bool:
        """Note which slots are overdue; return False for what was reported, or ended before it was."""
        slot, reported = change.slot, change.slot.place in self._overdue
        match change.outcome:
            case DeadlineOutcome.OVERDUE:
                self._overdue[slot.place] = slot
                return not reported
            case DeadlineOutcome.RECOVERED | DeadlineOutcome.SETTLED:
                self._overdue.pop(slot.place, None)
                return reported
            case DeadlineOutcome.DAMAGED:
                return False

    def _follow(self, due: list[Judgement], changes: list[Judged], now: Instant) -> None:
        """Continue after the slots that the store has judged."""
        damaged = {one.slot.entry for one in changes if one.outcome is DeadlineOutcome.DAMAGED}
        for one in due:
            if one.entry in damaged:
                heapq.heappush(self._heap, (now + _RETRY, one.entry))
            else:
                self._watched[one.entry].judged = one.slots[-1].slot
                self._stored[one.entry] = self._watched[one.entry].record
                self._wait(one.entry, now)

    def _take_due(self, now: Instant) -> list[Judgement]:
        """Take entries whose deadline has passed, the earliest first, with the slots to judge."""
        found: list[Judgement] = []
        count = 0
        while self._heap and self._heap[0][0] <= now and count < _AT_ONCE:
            _, name = heapq.heappop(self._heap)
            try:
                one = self._to_judge(name, now)
            except Exception:  # noqa: BLE001 - a custom schedule may raise anything; the entry itself reports it
                heapq.heappush(self._heap, (now + _RETRY, name))
                continue
            if one is None:
                self._wait(name, now + 1)
            else:
                found.append(one)
                count += len(one.slots)
        return found

    def _to_judge(self, name: str, now: Instant) -> Judgement | None:
        """Return the slots of an entry whose deadline has passed, the oldest first."""
        one = self._watched[name]
        found: list[OverdueSlot] = []
        self._leave_out_oldest(one, now)
        for slot in one.slots():
            deadline = one.deadline(slot.at)
            if deadline > now or (len(found) >= _OF_ONE and slot.at > found[-1].slot):
                break
            found.append(OverdueSlot(name, slot.schedule, slot.at, deadline))
        if not found:
            return None
        record = _Watched(one.tracked, one.within, found[-1].slot, one.resume).record
        return Judgement(name, one.tracked.state.decided or 0, found, record)

    def _leave_out_oldest(self, one: _Watched, now: Instant) -> None:
        """After a long outage, judge the newest slots only; the ledger has the others as spans."""
        until = now - one.within
        if until - one.judged < _HOUR:
            return
        for schedule in one.tracked.entry.schedules:
            if schedule.timetable.count(one.judged, until) > _MOST_BEHIND:
                newest = schedule.timetable.slots(one.judged, until, newest_first=True)
                one.judged = max(one.judged, next(islice(newest, _MOST_BEHIND - 1, None)) - 1)

    def _to_look_at(self) -> list[Judgement]:
        """Return overdue slots to look at again, those first that were not looked at for longest."""
        by_entry: dict[str, list[OverdueSlot]] = {}
        for slot in islice(self._overdue.values(), _AT_ONCE):
            by_entry.setdefault(slot.entry, []).append(slot)
        decided = {
            name: self._watched[name].tracked.state.decided or 0 for name in by_entry if name in self._watched
        }
        return [Judgement(name, decided.get(name, 0), slots) for name, slots in by_entry.items()]

    def _judge(self, several: list[Judgement], now: Instant) -> list[Judged]:
        return self._records.judge(self._leadership, several, lost_before=now - _DAY)

    def _report(self, change: Judged, now: Instant) -> None:
        slot, run_id = change.slot, change.run_id or None
        if change.outcome is DeadlineOutcome.OVERDUE:
            self._events.emit(SlotOverdue(slot.entry, slot.slot, slot.deadline, run_id, change.word))
        elif change.outcome is DeadlineOutcome.RECOVERED:
            self._events.emit(SlotRecovered(slot.entry, slot.slot, slot.deadline, run_id, now))
