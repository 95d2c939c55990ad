"""Timeline: what became of each slot of an entry, for lanes and heat maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import product
from typing import Any

from celery_catchup.engine.tracked_entries import TrackedEntry
from celery_catchup.model import Instant, RunState, SkipReason, SlotMark, Trigger, to_datetime, to_instant
from celery_catchup.operations.gaps import Span, clipped, gaps
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.pieces import pieces
from celery_catchup.planning.entry import Role
from celery_catchup.store.listing import Record
from celery_catchup.store.survey import Stretch, share

MOST = 400
"""Values per entry that a timeline has, more or less, unless somebody says otherwise."""
VALUES = 5000
"""Values that a timeline of many entries has in all; it also bounds the records that are read for it."""


WORST_FIRST = (
    SlotMark.FAILED,
    SlotMark.MISSED,
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
    """Of each entry every slot between ``since`` and ``until``, both included, exactly once, in order.

    An entry has no slots from before it was first seen. Of one without a policy only what is to
    come is known, because Celery's own rules keep no record. Dense neighbours of one mark are
    merged, so that about ``most`` values come back per entry, and `VALUES` in all; should that not
    be enough, neighbours of several marks are. Of more runs than a `Survey` looks
    at, the newest are told, and nothing from before them.
    """
    wanted = operator.known(names)
    most = min(most, VALUES // max(len(wanted), 1))
    after, last, now = to_instant(since) - 1, to_instant(until), operator.now()
    stored = operator.read_stored(wanted)
    lines = operator.tracked(stored, now, wanted)
    runs = _runs(operator, wanted, after, last, most=most)
    skips = operator.listing.skips(wanted, since=after + 1, until=last)
    dense = 2 * (last - after) // max(most, 1)
    found = {}
    for name in wanted:
        own, others = runs[name], []
        if name in lines:
            lane = _Lane(lines[name], _instant(stored.watermark), now, known=name in operator.declared)
            with suppress(Exception):  # a schedule of the user's own may raise anything; beat reports it
                others = list(lane.without_run(own.slots_of, skips[name], max(after, own.after), last))
        slots = [*own.marked(others, near=dense), *others]
        found[name] = _merged(sorted(slots, key=_place), most=most, dense=dense)
    return found


# -- runs --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Runs:
    """An entry's runs, as stretches of those that are alike; before ``after`` nobody has looked."""

    stretches: Sequence[Stretch]
    after: Instant

    def slots_of(self, schedule: int) -> list[Instant]:
        """The slots of one of the entry's schedules that have a run, in order."""
        return [at for one in self.stretches if one.schedule == schedule for at in one.slots]

    def marked(self, others: Sequence[TimelineSlots], *, near: int) -> Iterator[TimelineSlots]:
        """All of them, with what became of them; no value reaches over one of the others."""
        starts = sorted(to_instant(one.first) for one in others)
        for one in self.stretches:
            mark, started = SlotMark(one.mark), None if one.started is None else to_datetime(one.started)
            for span in pieces(one.slots, others=starts, near=near):
                yield _slots(span, mark, None, run_id=one.run_id, started_at=started)


def _runs(
    operator: Operator, names: Sequence[str], after: Instant, last: Instant, *, most: int
) -> dict[str, _Runs]:
    """The runs of these entries. Of so many that they cannot be told apart no records are read."""
    counts = operator.survey.counts(names, after + 1, last)
    dense = {name: count for name, count in counts.items() if count > most}
    records = operator.listing.between([name for name in names if name not in dense], after + 1, last)
    found = {name: _Runs([_alone(record) for record in own], after) for name, own in records.items()}
    for name, stretches in operator.survey.stretches(dense, after + 1, last, marks=_MARKS_OF_RUNS).items():
        whole = dense[name] <= share(len(dense)) or not stretches
        found[name] = _Runs(stretches, after if whole else stretches[0].slots[0] - 1)
    return found


def _alone(record: Record) -> Stretch:
    kind = RunState(record["state"]), Trigger(record["trigger"]), bool(record.get("unreported"))
    started = record.get("started")
    return Stretch(
        (int(record["slot"]),),
        _MARKS_OF_RUNS[kind],
        record.get("schedule"),
        record["id"],
        None if started is None else int(started),
    )


def _mark_of(state: RunState, trigger: Trigger, *, unreported: bool) -> SlotMark:
    """Return the mark of a run; one in flight whose worker does not report counts as a success."""
    if state.mark is None or (state.in_flight and unreported):
        return trigger.mark
    return state.mark


_MARKS_OF_RUNS = {
    (state, trigger, unreported): _mark_of(state, trigger, unreported=unreported)
    for state, trigger, unreported in product(RunState, Trigger, (False, True))
}


@dataclass(frozen=True)
class _Lane:
    """An entry, and what tells the meaning of a slot that has no run."""

    line: TrackedEntry
    watermark: Instant
    now: Instant
    known: bool

    def without_run(
        self,
        slots_of: Callable[[int], list[Instant]],
        skips: Sequence[Record],
        after: Instant,
        until: Instant,
    ) -> Iterator[TimelineSlots]:
        """Slots that have no run: skipped, undecided, and to come. ``slots_of`` a schedule have one."""
        for index, schedule in enumerate(self.line.entry.schedules):
            if schedule.role is Role.STOP:
                continue
            table, (low, high) = schedule.timetable, self._reach(index, after, until)
            runs = slots_of(index)
            spans = [_span(one) for one in skips if one["schedule"] == index and _has_no_run(one)]
            for span in spans:
                for part in clipped(table, span, after, until, runs=runs):
                    yield _slots(part, _MARKS.get(str(part.reason), SlotMark.SKIPPED), part.reason)
            if low < high:
                for gap in gaps(table, low, high, runs=runs, spans=spans, cuts=self._cuts()):
                    yield _slots(gap, *self._meaning(gap.last))

    def _reach(self, index: int, after: Instant, until: Instant) -> tuple[Instant, Instant]:
        """The part of the range in which the schedule has slots that somebody kept an eye on."""
        bounds = self.line.entry.bounds[index]
        begin = self.line.state.first_seen_at if self.known else self.now
        return max(after, begin, bounds.after or 0), until if bounds.until is None else min(
            until, bounds.until
        )

    def _cuts(self) -> list[Instant]:
        state = self.line.state
        cuts = (self._decided, state.manual_start, state.paused_at, self._late, self.now)
        return [cut for cut in cuts if cut is not None]

    @property
    def _decided(self) -> Instant:
        return max(self.watermark, self.line.state.decided or 0)

    @property
    def _late(self) -> Instant:
        return self.line.entry.missed_until(self.now)

    def _meaning(self, at: Instant) -> tuple[SlotMark, str | None]:
        state = self.line.state
        if state.paused_at is not None and at > state.paused_at:
            return SlotMark.PAUSED, None
        if at > self.now or (at > self._decided and at > self._late):
            return SlotMark.UPCOMING, None
        if state.manual_start is not None and at <= state.manual_start:
            return SlotMark.SKIPPED, "manual"
        return (SlotMark.MISSED, "undecided") if at > self._decided else (SlotMark.SKIPPED, "not_recorded")


_MARKS = {str(reason): reason.rule.mark or SlotMark.SKIPPED for reason in SkipReason}
_WITH_RUN = frozenset(str(reason) for reason in SkipReason if reason.has_run)


def _has_no_run(skip: Record) -> bool:
    return skip["reason"] not in _WITH_RUN


def _span(skip: Record) -> Span:
    return Span(int(skip["first"]), int(skip["last"]), int(skip["count"]), str(skip["reason"]))


def _slots(span: Span, mark: SlotMark, reason: str | None, **run: Any) -> TimelineSlots:
    return TimelineSlots(to_datetime(span.first), to_datetime(span.last), span.count, mark, reason, **run)


def _place(one: TimelineSlots) -> tuple[datetime, datetime]:
    return one.first, one.last


def _instant(text: str | None) -> Instant:
    return int(text) if text is not None and text.isdecimal() else 0


# -- merging -----------------------------------------------------------------------------------


def _merged(slots: list[TimelineSlots], *, most: int, dense: int) -> list[TimelineSlots]:
    """The same slots as no more than about ``most`` values; ``dense`` is how close, in milliseconds,
    neighbours must be to be merged."""
    if len(slots) <= most:
        return slots
    near = timedelta(milliseconds=dense)
    alike = _joined(slots, near, lambda a, b: (a.mark, a.reason) == (b.mark, b.reason))
    return alike if len(alike) <= most else _joined(alike, near, lambda a, b: b.last - a.first <= near)


def _joined(
    slots: Iterable[TimelineSlots], near: timedelta, fits: Callable[[TimelineSlots, TimelineSlots], bool]
) -> list[TimelineSlots]:
    found: list[TimelineSlots] = []
    for one in slots:
        if found and one.first - found[-1].last <= near and fits(found[-1], one):
            found[-1] = _both(found[-1], one)
        else:
            found.append(one)
    return found


def _both(one: TimelineSlots, other: TimelineSlots) -> TimelineSlots:
    graver = min((one, other), key=lambda each: WORST_FIRST.index(each.mark))
    several = one.mark is not other.mark or one.counts or other.counts
    return TimelineSlots(
        first=one.first,
        last=max(one.last, other.last),
        count=one.count + other.count,
        mark=graver.mark,
        reason=graver.reason,
        counts=_added(one, other) if several else None,
    )


def _added(one: TimelineSlots, other: TimelineSlots) -> dict[str, int]:
    counts = dict(one.counts or {str(one.mark): one.count})
    for mark, count in (other.counts or {str(other.mark): other.count}).items():
        counts[mark] = counts.get(mark, 0) + count
    return counts
