"""A catch-up over all entries: when it starts, how caps are shared, how far it is, and when it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar

from celery_catchup.config.durations import format_duration
from celery_catchup.engine.prepared_plan import PlanParts, PreparedPlan
from celery_catchup.engine.tracked_entries import TrackedEntries, TrackedEntry
from celery_catchup.events import CatchupCompleted, CatchupPlanned, CatchupStarted, Events
from celery_catchup.model import Instant, Plan
from celery_catchup.planning.caps import earliest_send, share
from celery_catchup.planning.entry import NOTHING
from celery_catchup.planning.planner import plan, room, survey
from celery_catchup.store import States

Found = TypeVar("Found")


class SharedPlans:
    """Plans at one moment, with the scheduler's watermark of that moment.

    After an outage thousands of entries have the same few schedules and policies. Without sharing, the
    catch-up of 10,000 entries takes a fifth longer.
    """

    def __init__(self, watermark: Instant, now: Instant) -> None:
        self._watermark, self._now = watermark, now
        self._found: dict[Hashable, Any] = {}
        self._parts: dict[int, PlanParts] = {}

    def plan(self, tracked: TrackedEntry, *, limit: int | None = None) -> Plan:
        """Plan the entry; see `plan`."""
        whole = self._found.get(("plan", tracked.planning_key(self._watermark)))
        if whole is not None and (limit is None or len(whole.runs) <= limit):
            found: Plan = whole
            return found
        found = plan(tracked.entry, tracked.state, tracked.scope(self._watermark, self._now), limit=limit)
        return self._keep("plan", tracked, found) if found.complete else found

    def parts(self, plan: Plan) -> PlanParts:
        """Return what entries with this plan have in common in a commit."""
        found = self._parts.get(id(plan))  # kept with its plan, so that no other plan gets the id
        if found is None:
            found = self._parts[id(plan)] = PlanParts(plan)
        return found

    def survey(self, tracked: TrackedEntry) -> tuple[int, Instant]:
        """Count the entry's slots to decide, and return where they begin; see `survey`."""
        found: tuple[int, Instant] | None = self._found.get(("survey", tracked.planning_key(self._watermark)))
        if found is not None:
            return found
        scope = tracked.scope(self._watermark, self._now)
        return self._keep("survey", tracked, (survey(tracked.entry, scope), scope.replay_from))

    def _keep(self, kind: str, tracked: TrackedEntry, found: Found) -> Found:
        key = tracked.planning_key(self._watermark)
        if key is not None:
            self._found[kind, key] = found
        return found


@dataclass
class Progress:
    """The progress of the running catch-up; the store keeps a copy for ``status``.

    late   catch-up runs among the dispatched ones
    slots  the first and the last slot that was decided
    """

    total: int
    began: float
    dispatched: int = 0
    skipped: int = 0
    late: int = 0
    slots: tuple[Instant, Instant] | None = None

    def with_plans(self, plans: Iterable[Plan]) -> Progress:
        """Return the progress after these plans are committed."""
        after, ends = replace(self), set(self.slots or ())
        several = list(plans)
        times = Counter(map(id, several))  # most entries share a plan with others
        for one in {id(one): one for one in several}.values():
            after.dispatched += len(one.runs) * times[id(one)]
            after.skipped += one.skipped * times[id(one)]
            after.late += sum(run.trigger.is_catchup for run in one.runs) * times[id(one)]
            ends.update(run.slot.at for run in one.runs)
            ends.update(at for skip in one.skips for at in (skip.first, skip.last))
        after.slots = (min(ends), max(ends)) if ends else None
        return after

    def fields(self, *, running: bool, now: Instant) -> dict[str, int | str]:
        """Return the fields that the store keeps. A finished catch-up replaces the last one only if it
        dispatched anything late."""
        found: dict[str, int | str] = {
            "catchup_running": int(running),
            "catchup_total": self.total,
            "catchup_dispatched": self.dispatched,
            "catchup_skipped": self.skipped,
        }
        if not running and self.late:
            first, last = self.slots or (now, now)
            found |= {
                "last_catchup_ended": str(now),
                "last_catchup_first": str(first),
                "last_catchup_last": str(last),
                "last_catchup_dispatched": str(self.late),
                "last_catchup_skipped": str(self.skipped),
            }
        return found


@dataclass
class Catchup:
    """Starts and ends the catch-ups of entries, shares the caps and obeys the rate limit.

    keep_lead  renews the leader's lease in time; called while many entries are counted
    moved_at   when something was decided last
    """

    states: States
    events: Events
    monotonic: Callable[[], float]
    cap: int | None
    pause: int | None
    namespace: str
    keep_lead: Callable[[], object] = lambda: None
    progress: Progress | None = None
    moved_at: Instant = 0
    _last_sent: Instant | None = None
    _running: dict[str, TrackedEntry] = field(default_factory=dict)
    _unshared: bool = False

    def start(
        self, late: Sequence[TrackedEntry], *, watermark: Instant, now: Instant
    ) -> list[tuple[TrackedEntry, Exception]]:
        """Start to catch up the entries that have missed slots; return those whose schedules fail."""
        shared, behind, counts, failed = SharedPlans(watermark, now), [], [], []
        start = now
        for tracked in late:
            self.keep_lead()
            try:
                count, begin = shared.survey(tracked)
            except Exception as error:  # noqa: BLE001 - a custom schedule may raise anything
                failed.append((tracked, error))
                continue
            if count:
                behind.append(tracked)
                counts.append(count)
                start = min(start, begin)
        if behind:
            self._start(behind, watermark, now)
            self._announce(behind, counts, start, now)
        return failed

    def _start(self, behind: Sequence[TrackedEntry], watermark: Instant, now: Instant) -> None:
        for tracked in behind:
            tracked.start_catchup(now)
        if self.cap is not None:
            try:
                # With its room fixed, no share of the cap goes to slots that will not run.
                look_up(behind, self.states, self.namespace, watermark=watermark, now=now)
            except BaseException:
                for tracked in behind:  # unchanged for the next try
                    tracked.end_catchup()
                raise
            for tracked in behind:
                _fix_room(tracked)
        self._running |= {tracked.entry.name: tracked for tracked in behind}
        self._unshared, self.moved_at = True, now

    def share(self, watermark: Instant, now: Instant) -> None:
        """Divide what ``catchup_max_runs`` still allows among the running catch-ups, the oldest slots first.

        Do so again whenever another entry starts, or one gives back what it cannot use.
        """
        if self.cap is None or not self._unshared:
            return
        self._unshared = False
        used = 0 if self.progress is None else self.progress.dispatched
        planned, plans = [], []
        for tracked in self._running.values():
            tracked.state.allowance = None
            try:
                plans.append(
                    plan(tracked.entry, tracked.state, tracked.scope(watermark, now), limit=self.cap)
                )
                planned.append(tracked)
            except Exception:  # noqa: BLE001 - its own plan will fail too, and reports the reason
                self._unshared = True
            tracked.state.allowance = 0
        for tracked, kept in zip(planned, share(plans, max(0, self.cap - used)), strict=True):
            tracked.state.allowance = kept

    def _announce(
        self, behind: Sequence[TrackedEntry], counts: Sequence[int], start: Instant, now: Instant
    ) -> None:
        total = sum(counts)
        if self.progress is None:
            self.progress = Progress(total, self.monotonic())
        else:
            self.progress.total += total
        self.events.emit(CatchupStarted(len(behind), total, start, now))
        shown = lru_cache(format_duration)
        for tracked, count in zip(behind, counts, strict=True):
            policy = tracked.entry.policy
            window = "none" if policy.window is None else shown(policy.window)
            self.events.emit(CatchupPlanned(tracked.entry.name, str(policy.overlap_policy), count, window))

    def allowed(self, now: Instant) -> int | None:
        """Return how many catch-up runs may be sent now; None for any number."""
        return None if not self.pause else int(self.next_send(now) <= now)

    def next_send(self, now: Instant) -> Instant:
        """Return when the next catch-up run may be sent."""
        return earliest_send(self._last_sent, pause=self.pause, now=now) if self.pause else now

    def committed(self, plans: Sequence[PreparedPlan], *, now: Instant) -> None:
        """Count what was decided, and end the catch-ups that are complete."""
        own = [one for one in plans if one.tracked.state.used is not None]
        if own:
            assert self.progress is not None
            self.progress, self.moved_at = self.progress.with_plans(one.plan for one in own), now
        for one in own:
            state, runs = one.tracked.state, len(one.plan.runs)
            assert state.used is not None
            _fix_room(one.tracked)
            state.used += runs
            if state.room is not None:
                state.room -= runs
            if state.allowance is not None:
                state.allowance -= runs
            if runs:
                self._last_sent = now
            if one.plan.complete:
                self._unshared |= bool(state.allowance)
                one.tracked.end_catchup()
                self._running.pop(one.tracked.entry.name, None)

    def upcoming(self, plans: Sequence[PreparedPlan], *, now: Instant) -> dict[str, int | str]:
        """Return the fields of the progress after these plans are committed."""
        if self.progress is None:
            return {}
        own = [one for one in plans if one.in_catchup]
        ending = {one.tracked.entry.name for one in own if one.plan.complete}
        ahead = self.progress.with_plans(one.plan for one in own)
        return ahead.fields(running=any(name not in ending for name in self._running), now=now)

    def report_if_done(self) -> None:
        """Report the end of the catch-up when everything missed is decided."""
        if self.progress is not None and not self._running:
            seconds = self.monotonic() - self.progress.began
            self.events.emit(CatchupCompleted(self.progress.late, self.progress.skipped, seconds))
            self.progress = None

    def carry_over(
        self, entries: TrackedEntries, now: Instant, *, only: Collection[str] | None = None
    ) -> None:
        """Continue with entries that were read again, all or only these; one that is gone, paused or begins
        again leaves the catch-up."""
        for name, former in list(self._running.items()):
            if only is not None and name not in only:
                continue
            tracked = entries.by_name.get(name)
            # After another pause, or as a new entry of the same name, it has another catch-up.
            if tracked is None or tracked.state.paused or _begins_again(tracked, former):
                del self._running[name]
                self._unshared = True
                continue
            old = former.state
            tracked.catchup_until = former.catchup_until
            tracked.state = replace(
                tracked.state, used=old.used, room=old.room, allowance=old.allowance, existing=old.existing
            )
            self._running[name] = tracked
            entries.wake(name, now)
            entries.note(tracked)
        if not self._running:
            self.progress = None

    def stalled_since(self) -> Instant | None:
        """Return when the running catch-up last decided something."""
        return self.moved_at if self._running else None

    def clear(self) -> None:
        """Forget everything: another beat leads."""
        self._running.clear()
        self.progress = None


def find_held(
    late: Sequence[TrackedEntry], states: States, namespace: str, *, watermark: Instant, now: Instant
) -> dict[str, int]:
    """Return the entries whose catch-up needs an approval, with the number of runs that it would have."""
    limited = [one for one in late if one.entry.policy.hold_above is not None]
    if limited:
        look_up(limited, states, namespace, watermark=watermark, now=now)
    held = {}
    for tracked in limited:
        try:
            result = plan(tracked.entry, tracked.state, tracked.scope(watermark, now), limit=1)
        except Exception:  # noqa: BLE001 - its catch-up will fail too, and reports the reason
            continue
        finally:
            tracked.state.existing = NOTHING
        if result.held:
            held[tracked.entry.name] = result.held
    return held


def _begins_again(tracked: TrackedEntry, former: TrackedEntry) -> bool:
    """Tell whether an entry was resumed, created or given a new schedule since its catch-up started."""
    return tracked.state.resumes and tracked.state.pause_record != former.state.pause_record


def _fix_room(tracked: TrackedEntry) -> None:
    """Fix the room of a whole catch-up to what there is when it starts."""
    state = tracked.state
    if state.room is None:
        state.room = room(tracked.entry.policy, active=state.active, waiting=state.waiting)


def look_up(
    several: Sequence[TrackedEntry], states: States, namespace: str, *, watermark: Instant, now: Instant
) -> None:
    """Read how many runs of each entry have not ended, and which slots of its range have a run."""
    scopes = {tracked.entry.name: tracked.scope(watermark, now) for tracked in several}
    ranges = {name: (scope.replay_from, scope.now) for name, scope in scopes.items()}
    busy, recorded = states.open_runs(ranges), states.recorded_of(ranges)
    for tracked in several:
        name, state = tracked.entry.name, tracked.state
        state.active, state.waiting = busy[name].active, busy[name].waiting
        state.existing = tracked.entry.slots_of(namespace, recorded[name])
