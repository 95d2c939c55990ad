"""Scopes: which range of time a plan is about.

A live tick, a catch-up, a resume and their previews ask for the time since the last
decision; a backfill asks for a range that somebody named. `plan` treats both alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from celery_catchup.entries import Entry, EntryState
from celery_catchup.errors import BackfillError
from celery_catchup.model import Instant, RunState, SkipReason, to_rfc3339
from celery_catchup.policy import OnResume, Select


class Reprocess(StrEnum):
    """Which runs of a backfilled range are made again: none, those that failed, or all."""

    NONE = "none"
    FAILED = "failed"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class Reach:
    """Of one schedule: ``(floor, after]`` fell out of the window, ``(after, until]`` is decided."""

    floor: Instant
    after: Instant
    until: Instant


@dataclass(frozen=True, slots=True)
class Scope:
    """The range of a plan; ``now`` is what lateness is measured from."""

    now: Instant
    reaches: tuple[Reach, ...]
    discarded: SkipReason | None = None
    backfill: bool = False
    reprocess: Reprocess = Reprocess.NONE
    newest_first: bool = False

    @property
    def replay_from(self) -> Instant:
        """Nothing at or before this is planned."""
        return min((reach.after for reach in self.reaches), default=self.now)

    def skip_existing(self, state: RunState) -> SkipReason | None:
        """Why a slot whose run is in the ledger is not made again; None when it is."""
        if not self.backfill:
            return SkipReason.ALREADY_EXISTS
        if state.in_flight:
            return SkipReason.IN_FLIGHT
        again = {Reprocess.NONE: False, Reprocess.COMPLETED: True}
        failed = state is not RunState.SUCCEEDED
        return None if again.get(self.reprocess, failed) else SkipReason.ALREADY_EXISTS


def replay(entry: Entry, state: EntryState, *, scheduler_watermark: Instant | None, now: Instant) -> Scope:
    """The time since the entry's last decision, bounded by its window.

    Without a readable scheduler watermark nothing is replayed; one in the future counts
    as ``now``. While an entry is being resumed its pause counts instead: the scheduler's
    watermark is near now then, and would lose what the policy promises to recover.
    """
    resumed = state.paused_at is not None
    watermark = state.paused_at if resumed else scheduler_watermark
    known = (state.decided, state.manual_start, state.changed_at)
    floor = max(
        now if watermark is None else min(watermark, now),
        state.first_seen_at,
        *(instant for instant in known if instant is not None),
    )
    discard = resumed and (state.discards or entry.policy.on_resume is OnResume.DISCARD)
    return Scope(
        now=now,
        reaches=tuple(_reach(entry, index, floor, now) for index in range(len(entry.schedules))),
        discarded=SkipReason.PAUSED if discard else None,
    )


def _reach(entry: Entry, index: int, floor: Instant, now: Instant) -> Reach:
    bounds = entry.bounds[index]
    floor = floor if bounds.after is None else max(floor, bounds.after)
    off = (entry.select_of(index) or entry.policy.select) is Select.OFF
    after = floor if bounds.window is None or off else max(floor, now - bounds.window)
    return Reach(floor, after, now if bounds.until is None else min(now, bounds.until))


def backfill(
    entry: Entry,
    *,
    start: Instant,
    end: Instant,
    now: Instant,
    reprocess: Reprocess = Reprocess.NONE,
    newest_first: bool = False,
) -> Scope:
    """A named range, both ends included; it ignores window and pause.

    What of it lies in the future will be run by the schedule itself and is left out; a
    range that lies there wholly is refused, and so are slots before ``start_date``.
    """
    if start > end:
        raise BackfillError("reversed_range", f"{_range(start, end)} ends before it starts; swap the two")
    if start > now:
        raise BackfillError(
            "future_range", f"{_range(start, end)} is in the future; its slots will run by themselves"
        )
    first = min((b.after + 1 for b in entry.bounds if b.after is not None), default=start)
    if start < first:
        raise BackfillError(
            "before_start_date",
            f"{_range(start, end)} begins before the entry's start_date; start at {to_rfc3339(first)}",
        )
    reaches = tuple(
        Reach(
            floor=after,
            after=after,
            until=min(end, now) if b.until is None else min(end, now, b.until),
        )
        for b in entry.bounds
        for after in (start - 1 if b.after is None else max(start - 1, b.after),)
    )
    return Scope(now=now, reaches=reaches, backfill=True, reprocess=reprocess, newest_first=newest_first)


def _range(start: Instant, end: Instant) -> str:
    return f"the range {to_rfc3339(start)} to {to_rfc3339(end)}"
