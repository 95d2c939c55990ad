"""Play recorded decisions again under another policy. The planner decides, as it did then.

A recorded decision says how many runs of the entry had not ended. Under another policy these are others: runs
that were not there are added, for as long as runs of the entry usually take, and runs that were not made are
taken away. With the policy that was in force nothing is added or taken away, so the same slots run.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from celery_catchup.model import Instant, SkipReason, Slot
from celery_catchup.planning.entry import Entry
from celery_catchup.planning.planner import most_active
from celery_catchup.planning.recorded_catchup import (
    PastSkip,
    RecordedCatchup,
    find_catchup,
    outcome,
    reason_of,
    skipped_before,
)
from celery_catchup.planning.why import plan_live_again


@dataclass(frozen=True, slots=True)
class PastRun:
    """A recorded run of the scheduler: when the leader of an epoch decided it, while ``busy`` others had not
    ended, and from when to when it ran, as far as it did."""

    slot: Slot
    decided: Instant
    busy: int = 0
    started: Instant | None = None
    ended: Instant | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ReplayedSlot:
    """The decision about a slot under the other policy: without a ``reason`` it runs, from ``starts`` to
    ``ends``. ``catchup`` is the recorded catch-up that decided it, None if it was live."""

    slot: Slot
    decided: Instant
    reason: SkipReason | None
    catchup: RecordedCatchup | None
    starts: Instant | None = None
    ends: Instant | None = None


@dataclass
class DecisionReplay:
    """Plays the recorded decisions of an entry again. ``duration`` is how long a run takes that was not
    there, in milliseconds."""

    entry: Entry
    runs: Sequence[PastRun]
    skips: Sequence[PastSkip]
    catchups: Sequence[RecordedCatchup]
    duration: int = 0
    _added: list[Instant] = field(default_factory=list)
    """The ends of runs that were not there, in order."""
    _dropped: list[PastRun] = field(default_factory=list)
    """Runs that are not there any more, in the order of their decisions."""
    _dropped_ends: list[Instant] = field(default_factory=list)
    _ends: list[Instant] = field(default_factory=list)
    """The ends of all runs that are there, in order."""

    def __post_init__(self) -> None:
        self._past = dict(self._standing())
        self._recorded = {slot for slot, _ in self._past}

    def _standing(self) -> Iterator[tuple[tuple[Slot, Instant | None], PastRun | PastSkip]]:
        """Yield the recorded decisions that stand, by slot and time of their catch-up; None is for live ones.

        A slot is decided more than once when a catch-up is interrupted, and when a clock is put back. A
        decision that made a run stands; without a run, the last one.
        """
        ran = {run.slot for run in self.runs}
        last = {skip.slot: skip for skip in self.skips if skip.slot not in ran}
        past: list[PastRun | PastSkip] = [*self.runs, *last.values()]
        for one in past:
            decided = one.decided if isinstance(one, PastRun) else None
            found = find_catchup(self.catchups, one.slot.at, decided=decided, epoch=one.epoch)
            yield (one.slot, None if found is None else found.at), one

    def slots(self) -> Iterator[ReplayedSlot]:
        """Yield each recorded slot in order, with the new decision."""
        live: list[tuple[Instant, int, PastRun | PastSkip | RecordedCatchup]] = [
            (slot.at, slot.schedule, one) for (slot, catchup), one in self._past.items() if catchup is None
        ]
        late = [(catchup.at, -1, catchup) for catchup in self.catchups]
        for _, _, decision in sorted([*live, *late], key=lambda one: one[:2]):
            if isinstance(decision, RecordedCatchup):
                yield from self._catch_up(decision)
            else:
                yield from self._live(decision)

    def _live(self, decision: PastRun | PastSkip) -> Iterator[ReplayedSlot]:
        slot, reason = decision.slot, getattr(decision, "reason", None)
        decided = decision.decided if isinstance(decision, PastRun) else slot.at
        busy = self._busy(decision.busy, decided)
        found = outcome(plan_live_again(self.entry, slot.at, reason, was_busy=decision.busy, busy=busy), slot)
        if found is not None:
            yield self._decide(slot, reason_of(found), decided, None)

    def _catch_up(self, catchup: RecordedCatchup) -> Iterator[ReplayedSlot]:
        """Plan a catch-up again, and yield the slots for which its decision stands."""
        existing = {
            slot: state
            for slot, state in skipped_before(self.skips, catchup).items()
            if (slot, catchup.at) not in self._past  # this one made the run, and found it later
        }
        busy = (self._busy(catchup.busy, catchup.at), 0)
        found = catchup.plan(self.entry, busy=busy, existing=existing)
        decisions: list[tuple[Slot, SkipReason | None]] = [(run.slot, None) for run in found.runs]
        for skip in found.skips:
            table = self.entry.schedules[skip.schedule].timetable
            decisions += [
                (Slot(at, skip.schedule), skip.reason) for at in table.slots(skip.first - 1, skip.last)
            ]
        for slot, reason in sorted(decisions, key=lambda one: one[0]):
            stands = (
                (slot, catchup.at) in self._past
                if slot in self._recorded
                else find_catchup(self.catchups, slot.at) is catchup
            )
            if stands and reason is not SkipReason.ALREADY_EXISTS:
                yield self._decide(slot, reason, catchup.at, catchup)

    def _busy(self, recorded: int, at: Instant) -> int:
        """Return how many runs have not ended under the other policy."""
        added = _later(self._added, at)
        together = takewhile(lambda run: run.decided >= at, reversed(self._dropped))  # of the same decision
        dropped = _later(self._dropped_ends, at) - sum((run.ended or at) > at for run in together)
        return max(0, recorded + added - dropped)

    def _decide(
        self, slot: Slot, reason: SkipReason | None, at: Instant, catchup: RecordedCatchup | None
    ) -> ReplayedSlot:
        past = self._past.get((slot, None if catchup is None else catchup.at))
        run = past if isinstance(past, PastRun) else None
        if reason is not None:
            if run is not None:
                self._dropped.append(run)
                if run.ended is not None:
                    insort(self._dropped_ends, run.ended)
            return ReplayedSlot(slot, at, reason, catchup)
        if run is not None:
            if run.ended is not None:
                insort(self._ends, run.ended)
            return ReplayedSlot(slot, at, None, catchup, run.started, run.ended)
        starts = self._free_from(at)
        ends = starts + self.duration
        insort(self._added, ends)
        insort(self._ends, ends)
        return ReplayedSlot(slot, at, None, catchup, starts, ends)

    def _free_from(self, at: Instant) -> Instant:
        """Return when a run that is decided now may start, after the runs before it."""
        most = most_active(self.entry.policy)
        return at if most is None or _later(self._ends, at) < most else self._ends[-most]


def _later(ends: Sequence[Instant], at: Instant) -> int:
    """Count the ends after an instant."""
    return len(ends) - bisect_right(ends, at)


def most_at_once(replayed: Iterable[ReplayedSlot]) -> int:
    """Return how many runs are executed at the same time at most."""
    edges, running, highest = [], 0, 0
    for one in replayed:
        if one.starts is not None and one.ends is not None:
            highest = 1
            edges += [(one.starts, 1), (one.ends, -1)] if one.starts < one.ends else []
    for _, step in sorted(edges):  # a run that starts when another ends is not beside it
        running += step
        highest = max(highest, running)
    return highest
