"""The planner: decide what happens to every slot of a range. Pure: no clock, no I/O.
The rules of each overlap policy are rows of the table in `config/overlap_policy.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from zlib import crc32

from celery_catchup.config.policy import Keep, Policy, Select
from celery_catchup.model import Instant, Plan, PlannedRun, Skip, SkipReason, Slot, Trigger
from celery_catchup.planning.candidates import Candidates, Stretch, skips_of
from celery_catchup.planning.caps import Section, sections
from celery_catchup.planning.entry import Entry, EntryState, Role
from celery_catchup.planning.scope import Scope
from celery_catchup.planning.spans import Span, find_spans


def plan(entry: Entry, state: EntryState, scope: Scope, *, limit: int | None = None) -> Plan:
    """Decide what happens to every slot of the scope.

    Live ticks, catch-up, resume, preview and backfill all call this function, so preview cannot disagree
    with beat. Each slot ends up in exactly one place: ``runs``, or ``skips`` with a reason.

    Start the next call from ``watermark``, and no slot is planned twice or missed. ``limit`` bounds the
    runs of one call, but never separates slots of the same instant: the calls together decide the same
    as one call without a limit.
    """
    if state.paused and not scope.backfill:
        return Plan(scope.replay_from, (), (), scope.replay_from, None)
    return plan_live_slot(entry, state, scope) or plan_in_full(entry, state, scope, limit=limit)


def plan_live_slot(entry: Entry, state: EntryState, scope: Scope) -> Plan | None:
    """Plan one live slot of an entry with one schedule; None when any further rule may apply.

    The fast path of a healthy tick: without it, a tick of 1,000 live slots takes more than half as
    long again. A property test compares it with `plan_in_full`.
    """
    if not entry.is_simple or scope.backfill or scope.dropped or state.used is not None:
        return None
    reach = scope.reaches[0]
    after, until = reach.after, reach.until
    if reach.floor != after or state.existing or not _has_room(entry, state):
        return None
    table = entry.schedules[0].timetable
    at = table.next_after(after)
    if at is None or at > until or at <= entry.missed_until(scope.now):
        return None
    following, end = table.next_after(at), entry.bounds[0].until
    if following is not None and following <= until:
        return None
    return Plan(
        after,
        (PlannedRun(Slot(at, 0), Trigger.SCHEDULER, at),),
        (),
        max(scope.now, after),
        following if following is None or end is None or following <= end else None,
        decided=scope.decided,
    )


def _has_room(entry: Entry, state: EntryState) -> bool:
    policy = entry.policy
    if policy.skip_if_successful and state.manual_success is not None:
        return False
    free = room(policy, active=state.active, waiting=state.waiting)
    return free is None or free > 0


def plan_in_full(entry: Entry, state: EntryState, scope: Scope, *, limit: int | None = None) -> Plan:
    """Plan an entry that is not paused, rule by rule."""
    return _Planning(entry, state, scope, limit).result()


def survey(entry: Entry, scope: Scope) -> int:
    """Count the slots that `plan` would decide, except those outside the window, without listing them."""
    return sum(
        schedule.timetable.count(after, until)
        for schedule, reach in zip(entry.schedules, scope.reaches, strict=True)
        if schedule.role is Role.START
        for after, until, reason in scope.parts(reach)
        if reason is not SkipReason.EXPIRED
    )


class _Planning:
    """One call of `plan`, in the order of the rules."""

    def __init__(self, entry: Entry, state: EntryState, scope: Scope, limit: int | None) -> None:
        self.entry, self.state, self.scope, self.limit = entry, state, scope, limit
        self.dropped: list[tuple[Stretch, SkipReason]] = []
        # Slots that keep the run which they have; a backfill may run others again.
        self.taken = {
            slot: reason
            for slot, run_state in state.existing.items()
            if (reason := scope.skip_existing(run_state)) is not None
        }
        self.spans: dict[Slot, Span] = {}
        self.candidates = Candidates(self._select(), self._excluded())

    def result(self) -> Plan:
        slots, cut = self._running()
        if self._is_held:
            begin, size = self.scope.replay_from, self.sections[1].stop - self.sections[1].start
            return Plan(begin, (), (), begin, self._wake_at(), held=size)
        self._settle_spans(slots)
        restarts, stops = self._controls(cut)
        every = [*map(self._run, slots), *restarts]
        runs = sorted(every, key=lambda run: run.slot, reverse=self.scope.newest_first)
        return Plan(
            replay_from=self.scope.replay_from,
            runs=tuple(runs),
            skips=tuple(self._skips(cut)),
            watermark=self._watermark(cut),
            wake_at=self._wake_at() if cut is None else self.scope.now,
            stops=stops,
            complete=cut is None,
            catches_up=self._catches_up,
            decided=self.scope.decided,
        )

    # -- 1 and 2: candidates, in order ---------------------------------------------------

    def _select(self) -> Iterator[Stretch]:
        """Apply ``select``: that of each schedule, and that of the entry over all of them."""
        sharing: list[Stretch] = []
        for index, schedule in enumerate(self.entry.schedules):
            if schedule.role is not Role.START:
                continue
            stretches = []
            for after, until, reason in self.scope.parts(self.scope.reaches[index]):
                stretch = Stretch(index, schedule.timetable, after, until)
                if reason is None:
                    stretches.append(stretch)
                else:
                    self._drop(stretch, reason)
            own = self.entry.select_of(index)
            together = own is None and self.entry.policy.select in (Select.LATEST, Select.SPAN)
            if self.scope.backfill and self.scope.span is None:
                yield from stretches
            elif self.scope.backfill or together:
                sharing += stretches
            else:
                yield from self._selected(stretches, own or self.entry.policy.select)
        yield from self._selected(sharing, Select.SPAN if self.scope.backfill else self.entry.policy.select)

    def _selected(self, stretches: list[Stretch], select: Select) -> Iterator[Stretch]:
        if select is Select.LATEST:
            yield from self._latest(stretches)
        elif select is Select.SPAN:
            yield from self._spanned(stretches)
        elif select is Select.OFF:
            for stretch in stretches:
                yield stretch.clipped(self._missed_until(), stretch.until)
                self._drop(stretch.clipped(stretch.after, self._missed_until()), SkipReason.CATCHUP_OFF)
        else:
            yield from stretches

    def _latest(self, stretches: list[Stretch]) -> Iterator[Stretch]:
        """Keep the newest slot of all stretches; it supersedes the others."""
        newest = max((slot for s in stretches if (slot := s.last()) is not None), default=None)
        if newest is None:
            return
        for stretch in stretches:
            at = newest.at if stretch.schedule < newest.schedule else newest.at - 1
            self._drop(stretch.clipped(stretch.after, at), SkipReason.SUPERSEDED)
            if stretch.schedule == newest.schedule:
                yield stretch.clipped(newest.at - 1, newest.at)

    def _spanned(self, stretches: list[Stretch]) -> Iterator[Stretch]:
        """Let the newest slot of each span stand for all missed ones of it; live slots stay by themselves. A
        backfill needs only the spans of this call, because no cap counts all of them."""
        whole = self.scope.backfill
        until = self.scope.now if whole else self._missed_until()
        missed = [one.clipped(one.after, until) for one in stretches]
        spans, left = find_spans(
            missed,
            self.taken,
            longest=self.scope.span if whole else self.entry.max_span,
            most=self.limit + 1 if whole and self.limit and not self.scope.newest_first else None,
        )
        if whole and self.limit and self.scope.newest_first:
            spans = spans[-self.limit - 1 :]
        for span in spans:
            self.spans[span.end] = span
            yield span.newest
        for stretch in left:
            self._drop(stretch, SkipReason.ALREADY_EXISTS)
        for stretch in stretches:
            yield stretch.clipped(until, stretch.until)

    def _settle_spans(self, running: Sequence[Slot]) -> None:
        """Skip the other slots of each span: covered by its run, or for the reason why that does not run."""
        ends = set(running)
        for end, span in self.spans.items():
            section = self.sections[0 if running and end < running[0] else 2]
            reason = self.candidates.excluded.get(end) or section.reason
            for stretch in span.others:
                self._drop(stretch, SkipReason.COVERED if end in ends or reason is None else reason)

    def _drop(self, stretch: Stretch, reason: SkipReason) -> None:
        if stretch.after < stretch.until:
            self.dropped.append((stretch, reason))

    def _missed_until(self) -> Instant:
        """Return the last instant whose slot was missed."""
        return self.entry.missed_until(self.scope.now)

    # -- 3: runs in the ledger -----------------------------------------------------------

    def _excluded(self) -> Mapping[Slot, SkipReason]:
        excluded = dict(self.taken)
        if self.entry.policy.skip_if_successful and self.state.manual_success is not None:
            for index, schedule in enumerate(self.entry.schedules):
                following = schedule.timetable.next_after(self.state.manual_success)
                if following is not None and not self.scope.backfill:
                    excluded.setdefault(Slot(following, index), SkipReason.GUARD_BLOCKED)
        return excluded

    # -- 4 to 6: caps and overlap, on positions ------------------------------------------

    def _sections(self) -> tuple[Section, Section, Section]:
        """Apply caps and overlap to the candidates, oldest first."""
        policy, capped = self.entry.policy, self._catches_up
        return sections(
            self.candidates.count,
            room=self._room(),
            replacing=policy.overlap_policy.rule.replaces is not None and not self.scope.backfill,
            cap=policy.max_runs - (self.state.used or 0) if capped and policy.max_runs is not None else None,
            allowance=self.state.allowance if capped else None,
            latest=set(self.entry.selects) == {Select.LATEST},
            newest=policy.keep is Keep.NEWEST,
        )

    def _room(self) -> int | None:
        """Return the room for new runs. A backfill has its own number of active runs; a catch-up keeps the
        room that it started with, even if some of its runs have ended since."""
        if self.scope.backfill:
            return None
        free = room(self.entry.policy, active=self.state.active, waiting=self.state.waiting)
        return free if free is None or self.state.room is None else self.state.room

    @property
    def _is_held(self) -> bool:
        """Whether a catch-up that starts now has more runs than it may have without an approval."""
        most, running = self.entry.policy.hold_above, self.sections[1]
        begins = self.state.used is None and not self.state.catchup_wanted and not self.scope.backfill
        return most is not None and begins and running.stop - running.start > most and self._catches_up

    @cached_property
    def _catches_up(self) -> bool:
        """Whether slots were missed: caps do not apply to a tick with live slots only."""
        if self.scope.backfill or self.state.used is not None:
            return not self.scope.backfill
        oldest = next(self.candidates.slots(), None)
        return oldest is not None and oldest.at <= self._missed_until()

    # -- the result ----------------------------------------------------------------------

    def _running(self) -> tuple[list[Slot], Slot | None]:
        """Return the slots that run, and the last one decided when the limit cut the plan."""
        self.sections = self._sections()
        running = self.sections[1]
        size = running.stop - running.start
        if not size:
            return [], None
        if size == 1 and not self.scope.newest_first:
            return [self.candidates.at(running.start)], None
        slots = self._slots_of(running)
        if self.limit is None or size <= self.limit:
            return list(islice(slots, size)), None
        taken = list(islice(slots, self.limit))
        for slot in islice(slots, size - self.limit):
            if slot.at != taken[-1].at:
                return taken, self._last_decided(taken[-1])
            taken.append(slot)
        return taken, None

    def _last_decided(self, slot: Slot) -> Slot:
        """Return the last slot that is decided with this one: newest first, the first of its span."""
        span = self.spans.get(slot) if self.scope.newest_first else None
        return slot if span is None else Slot(span.first, slot.schedule)

    def _slots_of(self, section: Section) -> Iterator[Slot]:
        """Yield the section's slots in the order of the scope."""
        newest_first = self.scope.newest_first
        bounds = self._bounds(section)
        part = Candidates(self.candidates.between(*bounds), self.candidates.excluded)
        return part.slots(newest_first=newest_first)

    def _bounds(self, section: Section) -> tuple[Slot | None, Slot | None]:
        """Return the first and last slot of a section; None at the ends of the candidates."""
        first = None if section.start == 0 else self.candidates.at(section.start)
        last = None if section.stop == self.candidates.count else self.candidates.at(section.stop - 1)
        return first, last

    def _skips(self, cut: Slot | None) -> Iterator[Skip]:
        excluded = self.candidates.excluded
        for slot, reason in sorted(excluded.items()):
            if self._decided(slot, cut):
                yield Skip(slot.schedule, slot.at, slot.at, 1, reason)
        for stretch, reason in self._skipped_sections(cut):
            yield from skips_of(self._clipped(stretch, cut), reason, excluded)
        for stretch, reason in self.dropped:
            yield from self._dropped_skips(self._clipped(stretch, cut), reason)

    def _dropped_skips(self, stretch: Stretch, reason: SkipReason) -> Iterator[Skip]:
        """Yield the skips of a dropped stretch; slots that have a run keep it."""
        known = {} if reason is SkipReason.EXPIRED else self.taken  # those are only counted
        existing = sorted(slot for slot in known if stretch.contains(slot))
        for slot in existing:
            yield Skip(slot.schedule, slot.at, slot.at, 1, known[slot])
        for skip in skips_of(stretch, reason, existing):
            by_hand = reason is SkipReason.MANUAL_RUN
            yield replace(skip, run_id=self.state.manual_run) if by_hand else skip

    def _skipped_sections(self, cut: Slot | None) -> Iterator[tuple[Stretch, SkipReason]]:
        before = self.sections[2:] if self.scope.newest_first else self.sections[:1]
        for section in self.sections if cut is None else before:
            if section.reason is not None and section.start < section.stop:
                for stretch in self.candidates.between(*self._bounds(section)):
                    yield stretch, section.reason

    def _decided(self, slot: Slot, cut: Slot | None) -> bool:
        if cut is None:
            return True
        return slot.at >= cut.at if self.scope.newest_first else slot.at <= cut.at

    def _clipped(self, stretch: Stretch, cut: Slot | None) -> Stretch:
        if cut is None:
            return stretch
        if self.scope.newest_first:
            return stretch.clipped(cut.at - 1, stretch.until)
        return stretch.clipped(stretch.after, cut.at)

    def _watermark(self, cut: Slot | None) -> Instant:
        if cut is not None:
            return cut.at
        if self.scope.newest_first:
            return self.scope.replay_from
        # The clock may have jumped back, and a start_date may be in the future: decisions stay decided.
        return max(self.scope.now, self.scope.decided)

    def _run(self, slot: Slot, *, ends_active: bool = False) -> PlannedRun:
        if self.scope.backfill or slot.at <= self._missed_until():
            trigger = Trigger.BACKFILL if self.scope.backfill else Trigger.CATCHUP
            first, slots = self.spans[slot].size if slot in self.spans else (None, 1)
            return PlannedRun(slot, trigger, slot.at, first=first, slots=slots)
        return PlannedRun(slot, Trigger.SCHEDULER, slot.at + self._jitter(slot), ends_active)

    def _jitter(self, slot: Slot) -> int:
        """Return the delay of a slot: always the same, and never past the entry's next slot."""
        if not self.entry.jitter:
            return 0
        delay = crc32(f"{self.entry.name}\n{slot.schedule}\n{slot.at}".encode()) % (self.entry.jitter + 1)
        tables = (one.timetable for one in self.entry.schedules if one.role is not Role.STOP)
        following = [at for table in tables if (at := table.next_after(slot.at)) is not None]
        return min([delay, *(at - slot.at - 1 for at in following)])

    def _controls(self, cut: Slot | None) -> tuple[list[PlannedRun], tuple[Slot, ...]]:
        """Return the live slots of ``restart`` and ``stop`` schedules; missed ones are never caught up."""
        restarts, stops = [], []
        if self.scope.backfill:
            return [], ()
        paused = (drop.until for drop in self.scope.dropped if drop.reason is not SkipReason.EXCLUDED)
        dropped = max(paused, default=0)
        for index, schedule in enumerate(self.entry.schedules):
            reach = self.scope.reaches[index]
            after = max(reach.after, self._missed_until(), dropped)
            live = Stretch(index, schedule.timetable, after, reach.until)
            for slot in self._clipped(live, cut).slots() if schedule.role is not Role.START else ():
                if schedule.role is Role.STOP:
                    stops.append(slot)
                elif not self.entry.exclusions.contains(slot.at):
                    restarts.append(self._run(slot, ends_active=True))
        return restarts, tuple(sorted(stops))

    def _wake_at(self) -> Instant | None:
        """Return the next slot of any schedule."""
        following = (self.entry.next_after(i, self.scope.now) for i in range(len(self.entry.schedules)))
        return min((slot for slot in following if slot is not None), default=None)


# -- overlap: how many slots may become runs -------------------------------------------------------


def most_active(policy: Policy) -> int | None:
    """Return how many runs of an entry may be active at once; None for any number."""
    rule = policy.overlap_policy.rule
    return policy.max_active_runs if rule.chained else rule.most_active


def most_unfinished(policy: Policy) -> int | None:
    """Return how many runs of an entry may be active or waiting; None for any number."""
    rule = policy.overlap_policy.rule
    if not rule.chained:
        return rule.most_unfinished
    return None if policy.max_pending is None else policy.max_active_runs + policy.max_pending


def room(policy: Policy, *, active: int, waiting: int) -> int | None:
    """Return how many new slots may become runs, the oldest first; None for any number."""
    most = most_unfinished(policy)
    return None if most is None else max(0, most - active - waiting)
