"""Show what became of each slot of an entry in a range, for lanes and heat maps.

Every slot belongs to one piece: it has a run, or lies in a recorded span of skipped slots, or is undecided,
paused or still to come. The pieces of an entry are sorted, and neighbours merged until few enough are left.
"""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from celery_catchup.engine.tracked_entries import TrackedEntry
from celery_catchup.model import Instant, RunState, SkipReason, SlotMark, Trigger, to_datetime, to_instant
from celery_catchup.operations.operator import Operator
from celery_catchup.planning.entry import Role
from celery_catchup.planning.planner import plan
from celery_catchup.store.listing import Record
from celery_catchup.store.store import stored_instant, stored_time
from celery_catchup.store.survey import UNREPORTED, RunGroup
from celery_catchup.timetables.timetable import Timetable

MOST = 400
"""Default number of values per entry, more or less."""
VALUES = 5000
"""Values that a timeline of many entries has in all."""
_LISTED = 20_000
"""Slots of a part that are listed one by one; in a larger part, those between two runs are counted."""
_PLANNED = 2000
"""Runs of a catch-up that are planned to find out which slots will be skipped."""


WORST_FIRST = (
    SlotMark.FAILED,
    SlotMark.MISSED,
    SlotMark.DUE,
    SlotMark.IN_FLIGHT,
    SlotMark.CAUGHT_UP,
    SlotMark.PAUSED,
    SlotMark.SKIPPED,
    SlotMark.ON_TIME,
    SlotMark.UPCOMING,
)
"""The order of severity: which of several marks in one place is shown, here and in drawings."""


@dataclass(frozen=True, slots=True)
class TimelineSlots:
    """The ``count`` neighbouring slots from ``first`` to ``last``, of which the same became; or several
    things, then ``mark`` is the gravest and ``counts`` tells how often each.

    Of a single slot that has a run, ``run_id`` and ``started_at`` tell which and when; where runs are
    dense, of one that differs from its neighbours.
    """

    first: datetime
    last: datetime
    count: int
    mark: SlotMark
    reason: str | None = None
    run_id: str | None = None
    started_at: datetime | None = None
    counts: dict[str, int] | None = None


def timeline(
    operator: Operator, names: Sequence[str], *, since: datetime, until: datetime, most: int = MOST
) -> dict[str, list[TimelineSlots]]:
    """Show every slot of each entry between ``since`` and ``until``, both included, exactly once, in order.

    An entry has no slots from before it was first seen. Of one without a policy only future slots are known,
    because Celery's own rules keep no record. Dense neighbours of one mark are merged, so that about ``most``
    values come back per entry, and `VALUES` in all; if that is not enough, neighbours of several marks are.
    If there are more runs than a `Survey` reads, the older ones and everything before them are left out.
    """
    wanted = operator.known(names)
    most = min(most, VALUES // max(len(wanted), 1))
    after, last, now = to_instant(since) - 1, to_instant(until), operator.now()
    stored = operator.read_stored(wanted)
    tracked = operator.tracked(stored, now, wanted)
    surveyed = operator.survey.runs(wanted, after + 1, last, single=most)
    skips = operator.listing.skips(wanted, since=after + 1, until=last)
    near = 2 * (last - after) // max(most, 1)
    found = {}
    for name in wanted:
        runs = surveyed[name]
        pieces: list[_Piece] = []
        if name in tracked:
            watermark, declared = stored_instant(stored.watermark) or 0, name in operator.declared
            begin = runs.groups[0].slots[0] - 1 if runs.skipped and runs.groups else after
            with suppress(Exception):  # a schedule of the user's own may raise anything; beat reports it
                lane = _Lane(tracked[name], runs.groups, watermark, now, declared=declared)
                pieces = list(lane.pieces([*skips[name], *lane.planned_skips()], begin, last))
        others = sorted(piece.first for piece in pieces)
        pieces += [piece for group in runs.groups for piece in _run_pieces(group, others, near)]
        merged = _merge(sorted(pieces, key=attrgetter("first", "last")), most=most, near=near)
        found[name] = [one.shown() for one in merged]
    return found


class _Piece(NamedTuple):
    """A `TimelineSlots` in milliseconds: there may be tens of thousands before they are merged."""

    first: Instant
    last: Instant
    number: int
    mark: SlotMark
    reason: str | None = None
    run_id: str | None = None
    started: Instant | None = None
    counts: dict[str, int] | None = None

    def shown(self) -> TimelineSlots:
        first, last, started = to_datetime(self.first), to_datetime(self.last), stored_time(self.started)
        return TimelineSlots(
            first, last, self.number, self.mark, self.reason, self.run_id, started, self.counts
        )


# -- slots with a run --------------------------------------------------------------------------


def _run_pieces(group: RunGroup, others: Sequence[Instant], near: int) -> Iterator[_Piece]:
    """Cut a group where one of the other slots lies between its runs, or two runs are not near."""
    slots, state = group.slots, RunState.SUCCEEDED if group.state == UNREPORTED else RunState(group.state)
    mark = state.mark or Trigger(group.trigger).mark
    between = others[bisect(others, slots[0]) : bisect_left(others, slots[-1])]
    cuts = {bisect_left(slots, at) for at in between}
    cuts |= {place for place, (one, two) in enumerate(pairwise(slots), 1) if two - one > near}
    for begin, end in pairwise([0, *sorted(cuts), len(slots)]):
        yield _Piece(slots[begin], slots[end - 1], end - begin, mark, None, group.run_id, group.started)


# -- slots without a run -----------------------------------------------------------------------


class _Lane:
    """The slots of one entry that have no run: skipped, paused, undecided, and to come."""

    def __init__(
        self,
        tracked: TrackedEntry,
        runs: Sequence[RunGroup],
        watermark: Instant,
        now: Instant,
        *,
        declared: bool,
    ) -> None:
        self._entry, self._state, self._runs, self._now = tracked.entry, tracked.state, runs, now
        self._scope = tracked.scope(watermark, now)
        self._decided = max(watermark, self._state.decided or 0)
        self._late = self._entry.missed_until(now)
        self._begin = self._state.first_seen_at if declared else now

    def planned_skips(self) -> Iterator[Record]:
        """Yield what a beat that came back now would skip of the missed slots that nothing has decided."""
        if max(self._decided, self._begin) < self._late and not self._state.paused:
            for skip in plan(self._entry, self._state, self._scope, limit=_PLANNED).skips:
                yield asdict(skip)

    def pieces(self, skips: Sequence[Record], after: Instant, until: Instant) -> Iterator[_Piece]:
        """Yield the slots of ``(after, until]``, also those of recorded skips that got no run since."""
        for index, schedule in enumerate(self._entry.schedules):
            if schedule.role is not Role.STOP:
                taken = {at for group in self._runs if group.schedule == index for at in group.slots}
                own = [one for one in skips if one["schedule"] == index]
                for low, high, mark, reason in self._parts(index, own, after, until):
                    for first, last, count in _free_slots(schedule.timetable, low, high, taken):
                        yield _Piece(first, last, count, mark, reason)
                yield from _unknown_skips(schedule.timetable, own, after, until)

    def _parts(
        self, index: int, skips: Sequence[Record], after: Instant, until: Instant
    ) -> Iterator[tuple[Instant, Instant, SlotMark, str | None]]:
        """Divide ``(after, until]`` where the meaning of a slot without a run changes."""
        bounds, state = self._entry.bounds[index], self._state
        low = max(after, self._begin, bounds.after or 0)
        high = until if bounds.until is None else min(until, bounds.until)
        cuts = {self._decided, state.manual_start, state.paused_at, self._late, self._now, high}
        covered = after
        for first, last, reason in [*sorted(_spans(skips, after, until)), (until + 1, until, "")]:
            edges = {max(covered, low), *(cut for cut in cuts if cut is not None), first - 1}
            for begin, end in pairwise(sorted(edges)):
                if max(covered, low) <= begin and end <= min(first - 1, high):
                    yield begin, end, *self._meaning(end)
            if max(covered, first - 1) < last:
                yield max(covered, first - 1), last, _SKIP_MARKS.get(reason, SlotMark.SKIPPED), reason
            covered = max(covered, last)

    def _meaning(self, at: Instant) -> tuple[SlotMark, str | None]:
        state = self._state
        if state.paused_at is not None and at > state.paused_at:
            return SlotMark.PAUSED, None
        if at > self._now or (at > self._decided and at > self._late):
            return SlotMark.UPCOMING, None
        if at > self._decided and state.manual_start is not None and at <= state.manual_start:
            return SlotMark.SKIPPED, str(SkipReason.MANUAL_RUN)
        if at > self._decided:
            return SlotMark.DUE, None
        return SlotMark.SKIPPED, "not_recorded"


_SKIP_MARKS = {str(reason): reason.rule.mark or SlotMark.SKIPPED for reason in SkipReason}
_WITH_RUN = frozenset(str(reason) for reason in SkipReason if reason.has_run)


def _spans(skips: Iterable[Record], after: Instant, until: Instant) -> Iterator[tuple[Instant, Instant, str]]:
    """Yield what of the skipped spans lies in ``(after, until]``, except slots that already had a run."""
    for one in skips:
        first, last = max(int(one["first"]), after + 1), min(int(one["last"]), until)
        if first <= last and one["reason"] not in _WITH_RUN:
            yield first, last, str(one["reason"])


def _unknown_skips(
    table: Timetable, skips: Iterable[Record], after: Instant, until: Instant
) -> Iterator[_Piece]:
    """Yield skipped spans in which the schedule has no slots, because it was another one then."""
    for one in skips:
        for first, last, reason in _spans([one], after, until):
            if not table.count(first - 1, last):
                mark = _SKIP_MARKS.get(reason, SlotMark.SKIPPED)
                yield _Piece(first, last, int(one["count"]), mark, reason)


def _free_slots(
    table: Timetable, low: Instant, high: Instant, taken: set[Instant]
) -> Iterator[tuple[Instant, Instant, int]]:
    """Yield the slots of ``(low, high]`` without a run, one by one; if there are very many, count those
    between two runs."""
    if table.count(low, high) <= _LISTED:
        yield from ((at, at, 1) for at in table.slots(low, high) if at not in taken)
        return
    for at in [*sorted(at for at in taken if low < at <= high), high + 1]:
        first, last = table.next_after(low), table.previous_before(at)
        if first is not None and last is not None and first <= last:
            yield first, last, table.count(low, at - 1)
        low = at


# -- merging -----------------------------------------------------------------------------------


def _merge(pieces: list[_Piece], *, most: int, near: int) -> list[_Piece]:
    """Merge neighbours that are at most ``near`` milliseconds apart, until about ``most`` are left."""
    if len(pieces) <= most:
        return pieces
    alike = _join(pieces, near, lambda one, two: one.mark is two.mark and one.reason == two.reason)
    return alike if len(alike) <= most else _join(alike, near, lambda one, two: two.last - one.first <= near)


def _join(pieces: Iterable[_Piece], near: int, fits: Callable[[_Piece, _Piece], bool]) -> list[_Piece]:
    """Merge neighbours that are near and fit; of several marks the worst is shown."""
    found: list[_Piece] = []
    for one in pieces:
        if found and one.first - found[-1].last <= near and fits(found[-1], one):
            found[-1] = _both(found[-1], one)
        else:
            found.append(one)
    return found


def _both(one: _Piece, two: _Piece) -> _Piece:
    last, number = max(one.last, two.last), one.number + two.number
    if one.mark is two.mark and not (one.counts or two.counts):
        return _Piece(one.first, last, number, one.mark, one.reason)
    counts = Counter(one.counts or {str(one.mark): one.number})
    counts.update(two.counts or {str(two.mark): two.number})
    worst = min((one, two), key=lambda each: WORST_FIRST.index(each.mark))
    return _Piece(one.first, last, number, worst.mark, worst.reason, counts=dict(counts))
