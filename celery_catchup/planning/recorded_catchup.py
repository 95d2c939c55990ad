"""Recorded catch-ups: plan one again from the facts that were kept of it, also under another policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from celery_catchup.model import Instant, Plan, PlannedRun, RunState, Skip, SkipReason, Slot
from celery_catchup.planning.entry import NOTHING, Entry, EntryState, Pause
from celery_catchup.planning.planner import plan
from celery_catchup.planning.scope import replay


@dataclass(frozen=True, slots=True)
class RecordedCatchup:
    """A catch-up that decided the slots in ``(after, at]``.

    ``active`` and ``waiting`` are the runs of the entry that had not ended. ``facts`` are those of
    `EntryState.facts`, and ``policy``, the digest of the policy in force.
    """

    at: Instant
    after: Instant
    epoch: int
    active: int = 0
    waiting: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def busy(self) -> int:
        """The number of runs that had not ended."""
        return self.active + self.waiting

    def covers(self, at: Instant) -> bool:
        """Whether it decided a slot at the instant, unless a later one did."""
        return self.after < at <= self.at

    def pause_of(self, at: Instant) -> Pause | None:
        """Return the pause in which the instant lies."""
        pauses = EntryState.from_facts(self.facts, first_seen_at=0).pauses
        return next((one for one in pauses if one.after < at <= (one.until or self.at)), None)

    def plan(
        self,
        entry: Entry,
        *,
        busy: tuple[int, int] | None = None,
        existing: Mapping[Slot, RunState] = NOTHING,
    ) -> Plan:
        """Plan it again with the policy of the entry. ``busy`` are active and waiting runs, by default those
        that there were; ``existing`` are the slots that had a run already."""
        active, waiting = (self.active, self.waiting) if busy is None else busy
        state = EntryState.from_facts(
            self.facts,
            first_seen_at=self.after,
            decided=self.after,
            active=active,
            waiting=waiting,
            existing=existing,
            used=0,
        )
        return plan(entry, state, replay(entry, state, scheduler_watermark=self.after, now=self.at))


@dataclass(frozen=True, slots=True)
class PastSkip:
    """A recorded skip of one slot by the leader of an epoch, while ``busy`` runs had not ended."""

    slot: Slot
    reason: str
    busy: int = 0
    epoch: int | None = None


def past_skips(entry: Entry, spans: Iterable[Mapping[str, Any]]) -> Iterator[PastSkip]:
    """Yield each slot of recorded spans, later decisions about a slot after earlier ones."""
    for one in sorted(spans, key=lambda one: one.get("epoch") or 0):
        index = int(one["schedule"])
        if index < len(entry.schedules):
            table = entry.schedules[index].timetable
            for at in table.slots(int(one["first"]) - 1, int(one["last"])):
                yield PastSkip(Slot(at, index), str(one["reason"]), one.get("busy") or 0, one.get("epoch"))


def find_catchup(
    catchups: Sequence[RecordedCatchup],
    at: Instant,
    *,
    decided: Instant | None = None,
    epoch: int | None = None,
) -> RecordedCatchup | None:
    """Return the catch-up that decided the slot, the latest first; None for a live slot. ``decided`` is when
    that was, and ``epoch`` that of the leader, if they are known: when a clock is put back, the catch-up
    of an earlier leader looks later."""
    for one in reversed(catchups):
        same = (decided is None or one.at <= decided) and (epoch is None or one.epoch == epoch)
        if same and one.covers(at):
            return one
    return None


def skipped_before(skips: Iterable[PastSkip], catchup: RecordedCatchup) -> dict[Slot, RunState]:
    """Return the slots of a catch-up that had a run already, as its recorded skips have them."""
    return {
        one.slot: RunState.SUCCEEDED
        for one in skips
        if one.reason == SkipReason.ALREADY_EXISTS and catchup.covers(one.slot.at)
        if one.epoch in (None, catchup.epoch)
    }


def outcome(found: Plan, slot: Slot) -> PlannedRun | Skip | None:
    """Return what a plan decides about a slot; None if it does not."""
    for run in found.runs:
        if run.slot == slot:
            return run
    for skip in found.skips:
        if skip.schedule == slot.schedule and skip.first <= slot.at <= skip.last:
            return skip
    return None


def reason_of(decision: PlannedRun | Skip | None) -> SkipReason | None:
    """Return why a slot is skipped; None if it runs."""
    return decision.reason if isinstance(decision, Skip) else None
