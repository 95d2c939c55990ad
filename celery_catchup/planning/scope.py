"""The scope of a plan: the range of time that it decides.

A live tick, a catch-up, a resume and their previews plan the time since the last decision (`replay`);
a backfill plans a given range (`backfill`). `plan` treats both in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import attrgetter

from celery_catchup.config.policy import OnResume, Select
from celery_catchup.errors import BackfillError
from celery_catchup.model import Instant, RunState, SkipReason, to_rfc3339
from celery_catchup.planning.entry import NO_EXCLUSIONS, Entry, EntryState, Pause


class Reprocess(StrEnum):
    """Which runs of a backfilled range are repeated: none, those that failed, or all."""

    NONE = "none"
    FAILED = "failed"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class Reach:
    """The range of one schedule: ``(floor, after]`` is outside the window, ``(after, until]`` is planned."""

    floor: Instant
    after: Instant
    until: Instant


@dataclass(frozen=True, slots=True)
class Dropped:
    """A range ``(after, until]`` whose slots are skipped for this reason, regardless of the policy."""

    after: Instant
    until: Instant
    reason: SkipReason

    def within(self, reach: Reach) -> Dropped:
        """Return the part that has this reason: a slot that a manual run passes over may have expired."""
        passed_over = self.reason is SkipReason.MANUAL_RUN and self.after < reach.after
        return replace(self, after=reach.after) if passed_over else self


@dataclass(frozen=True, slots=True)
class Scope:
    """The range of a plan; lateness is measured from ``now``, and everything up to ``decided`` was decided
    before. With ``span``, one run of a backfill stands for up to this many milliseconds."""

    now: Instant
    reaches: tuple[Reach, ...]
    decided: Instant = 0
    dropped: tuple[Dropped, ...] = ()
    backfill: bool = False
    reprocess: Reprocess = Reprocess.NONE
    newest_first: bool = False
    span: int | None = None

    @property
    def replay_from(self) -> Instant:
        """The lower end of the range: no slot at or before it is planned."""
        return min((reach.after for reach in self.reaches), default=self.now)

    @property
    def begin(self) -> Instant:
        """The instant after which slots may run: a manual run counts for those before it."""
        by_hand = (drop.until for drop in self.dropped if drop.reason is SkipReason.MANUAL_RUN)
        return max(self.replay_from, *by_hand, 0)

    def parts(self, reach: Reach) -> Iterator[tuple[Instant, Instant, SkipReason | None]]:
        """Divide a reach from its floor on into ranges ``(after, until]``, oldest first, with the reason for
        which each is skipped; None for those that the policy decides."""
        after = reach.floor
        for drop in sorted((drop.within(reach) for drop in self.dropped), key=attrgetter("after")):
            yield from _undropped(after, min(drop.after, reach.until), reach.after)
            after = max(after, drop.after)
            if after < min(drop.until, reach.until):
                yield after, min(drop.until, reach.until), drop.reason
                after = min(drop.until, reach.until)
        yield from _undropped(after, reach.until, reach.after)

    def skip_existing(self, state: RunState) -> SkipReason | None:
        """Return why a slot with a run in the ledger is skipped; None when the run is repeated."""
        if not self.backfill:
            return SkipReason.ALREADY_EXISTS
        if state.in_flight:
            return SkipReason.IN_FLIGHT
        again = {Reprocess.NONE: False, Reprocess.COMPLETED: True}
        failed = state is not RunState.SUCCEEDED
        return None if again.get(self.reprocess, failed) else SkipReason.ALREADY_EXISTS


def _undropped(
    after: Instant, until: Instant, window: Instant
) -> Iterator[tuple[Instant, Instant, SkipReason | None]]:
    if after < min(until, window):
        yield after, min(until, window), SkipReason.EXPIRED
    if max(after, window) < until:
        yield max(after, window), until, None


def replay(entry: Entry, state: EntryState, *, scheduler_watermark: Instant | None, now: Instant) -> Scope:
    """Return the time since the entry's last decision, bounded by its window.

    Without a readable scheduler watermark nothing is replayed; one in the future counts as ``now``. For an
    entry that is resumed, or declared again after it was removed, the time of the pause or removal counts
    instead: the scheduler's watermark is near now, and would lose what the policy promises to recover.
    """
    watermark = scheduler_watermark
    if state.paused_at is not None:
        watermark = state.paused_at
    elif state.removed is not None:
        watermark = state.removed[0]
    floor = max(
        now if watermark is None else min(watermark, now),
        state.first_seen_at,
        state.decided or 0,
        state.changed_at or 0,
    )
    return Scope(
        now=now,
        reaches=tuple(
            _reach(entry, index, floor, now, seen=state.held_at) for index in range(len(entry.schedules))
        ),
        decided=floor,
        dropped=(
            *(_dropped(entry, state, now) if state.resumes else ()),
            *_passed_over(state, floor, now),
            *_excluded(entry, floor, now),
        ),
    )


def _excluded(entry: Entry, after: Instant, until: Instant) -> Iterator[Dropped]:
    if entry.exclusions is NO_EXCLUSIONS:
        return
    for low, high in entry.exclusions.between(after, until):
        yield Dropped(low, high, SkipReason.EXCLUDED)


def _passed_over(state: EntryState, floor: Instant, now: Instant) -> Iterator[Dropped]:
    """Yield the range that a manual run counts for."""
    if state.manual_start is not None and state.manual_start > floor:
        yield Dropped(floor, min(state.manual_start, now), SkipReason.MANUAL_RUN)


def _dropped(entry: Entry, state: EntryState, now: Instant) -> Iterator[Dropped]:
    if state.removed is not None:
        yield Dropped(*state.removed, SkipReason.REMOVED)
    if state.paused_at is not None:
        for pause in state.pauses or (Pause(state.paused_at),):
            if pause.discard or (entry.policy.on_resume is OnResume.DISCARD and not pause.held):
                until = now if pause.until is None else pause.until
                yield Dropped(pause.after, until, SkipReason.DISCARDED if pause.held else SkipReason.PAUSED)


def _reach(entry: Entry, index: int, floor: Instant, now: Instant, *, seen: Instant | None) -> Reach:
    """Return the range of one schedule; its window is measured from when its catch-up was ``seen``."""
    bounds = entry.bounds[index]
    floor = floor if bounds.after is None else max(floor, bounds.after)
    off = (entry.select_of(index) or entry.policy.select) is Select.OFF
    after = floor if bounds.window is None or off else max(floor, min(now, seen or now) - bounds.window)
    return Reach(floor, after, now if bounds.until is None else min(now, bounds.until))


def backfill(
    entry: Entry,
    *,
    start: Instant,
    end: Instant,
    now: Instant,
    reprocess: Reprocess = Reprocess.NONE,
    newest_first: bool = False,
    span: int | None = None,
) -> Scope:
    """Return a given range, both ends included; it ignores window and pause.

    Future slots are left to the schedule. Raises `BackfillError` for a range that is wholly in the future,
    and for one that starts before ``start_date``.
    """
    _check_range(entry, start, end, now)
    return part_of_backfill(
        entry, start=start, end=end, now=now, reprocess=reprocess, newest_first=newest_first, span=span
    )


def part_of_backfill(
    entry: Entry,
    *,
    start: Instant,
    end: Instant,
    now: Instant,
    reprocess: Reprocess,
    newest_first: bool,
    span: int | None,
) -> Scope:
    """Return a part of a range that was accepted as a whole, without slots that the entry's dates now
    exclude."""
    reaches = tuple(
        Reach(
            floor=after,
            after=after,
            until=min(end, now) if b.until is None else min(end, now, b.until),
        )
        for b in entry.bounds
        for after in (start - 1 if b.after is None else max(start - 1, b.after),)
    )
    return Scope(
        now=now,
        reaches=reaches,
        dropped=tuple(_excluded(entry, start - 1, min(end, now))),
        decided=start - 1,
        backfill=True,
        reprocess=reprocess,
        newest_first=newest_first,
        span=span,
    )


def _check_range(entry: Entry, start: Instant, end: Instant, now: Instant) -> None:
    if start > end:
        raise BackfillError("invalid_range", f"{_range(start, end)} ends before it starts; swap the two")
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


def _range(start: Instant, end: Instant) -> str:
    return f"the range {to_rfc3339(start)} to {to_rfc3339(end)}"
