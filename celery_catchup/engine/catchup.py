"""A catch-up over all entries: when it begins, how far it is, and when it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from celery_catchup.config.durations import format_duration
from celery_catchup.engine.drafts import Draft
from celery_catchup.engine.tracked_entries import Session, TrackedEntries, TrackedEntry
from celery_catchup.events import CatchupCompleted, CatchupPlanned, CatchupStarted, Events
from celery_catchup.model import Instant, Plan
from celery_catchup.planning.entry import EntryState
from celery_catchup.planning.overlap import earliest_send, room, share
from celery_catchup.planning.planner import plan, survey
from celery_catchup.store import States


@dataclass
class Progress:
    """The catch-up that is going on; the store keeps a copy for ``status``."""

    total: int
    began: float
    dispatched: int = 0
    skipped: int = 0
    late: int = 0
    slots: tuple[Instant, Instant] | None = None

    def with_plan(self, plan: Plan) -> Progress:
        """The progress when this plan is committed; ``late`` are its catch-up runs, ``slots`` the first
        and the last slot that was decided on."""
        ends = [run.slot.at for run in plan.runs]
        ends += [at for skip in plan.skips for at in (skip.first, skip.last)] + [*(self.slots or ())]
        return replace(
            self,
            dispatched=self.dispatched + len(plan.runs),
            skipped=self.skipped + plan.skipped,
            late=self.late + sum(run.trigger.is_catchup for run in plan.runs),
            slots=(min(ends), max(ends)) if ends else None,
        )

    def fields(self, *, running: bool, now: Instant) -> dict[str, int | str]:
        """As the store keeps it; one that is through is kept as the last one, if it sent anything late:
        one that did not must not take the place of news."""
        first, last = self.slots or (now, now)
        ended = {"ended": now, "first": first, "last": last, "dispatched": self.late, "skipped": self.skipped}
        return {
            "catchup_running": int(running),
            "catchup_total": self.total,
            "catchup_dispatched": self.dispatched,
            "catchup_skipped": self.skipped,
        } | (
            {}
            if running or not self.late
            else {f"last_catchup_{name}": str(value) for name, value in ended.items()}
        )


@dataclass
class Catchup:
    """Opens and closes sessions, shares caps, keeps the pace."""

    states: States
    events: Events
    monotonic: Callable[[], float]
    cap: int | None
    pause: int | None
    namespace: str
    keep_lead: Callable[[], object] = lambda: None
    """Renews the leader's lease in time; called while many entries are counted."""
    progress: Progress | None = None
    moved_at: Instant = 0
    """When something was decided last."""
    _last_sent: Instant | None = None
    _open: dict[str, TrackedEntry] = field(default_factory=dict)
    _unshared: bool = False

    def open(
        self, lines: Sequence[TrackedEntry], *, watermark: Instant, now: Instant
    ) -> list[tuple[TrackedEntry, Exception]]:
        """Begin to catch up those of the entries that have missed slots indeed; those whose schedules
        fail come back."""
        counts, failed = dict[str, int](), []
        for line in lines:
            self.keep_lead()
            try:
                count = survey(line.entry, line.scope(watermark, now))
            except Exception as error:  # noqa: BLE001 - a schedule of the user's own may raise anything
                failed.append((line, error))
                continue
            if count:
                counts[line.entry.name] = count
        behind = [line for line in lines if line.entry.name in counts]
        if behind:
            self._begin(behind, counts, watermark, now)
        return failed

    def _begin(
        self, lines: Sequence[TrackedEntry], counts: dict[str, int], watermark: Instant, now: Instant
    ) -> None:
        for line in lines:
            line.session = Session(until=now)
        if self.cap is not None:
            try:
                self._look_up(lines, watermark, now)
            except BaseException:
                for line in lines:  # as before, for the next try
                    line.session = None
                raise
        self._open |= {line.entry.name: line for line in lines}
        self._unshared, self.moved_at = True, now
        self._announce(lines, counts, watermark, now)

    def _look_up(self, lines: Sequence[TrackedEntry], watermark: Instant, now: Instant) -> None:
        """Decide the room of each, so that no share of the cap goes to slots that will not run."""
        scopes = {line.entry.name: line.scope(watermark, now) for line in lines}
        ranges = {name: (scope.replay_from, scope.now) for name, scope in scopes.items()}
        look_up(lines, self.states, ranges, self.namespace)
        for line in lines:
            self._settle_room(line)

    def share(self, watermark: Instant, now: Instant) -> None:
        """Divide what ``catchup_max_runs`` still allows among all that are being caught up, the oldest
        slots first; anew whenever another entry begins, or one gives back what it cannot use."""
        if self.cap is None or not self._unshared:
            return
        self._unshared = False
        used = 0 if self.progress is None else self.progress.dispatched
        lines, plans = [], []
        for line in self._open.values():
            assert line.session is not None
            line.session.allowance = 0
            state = replace(self._state(line), allowance=None)
            try:
                plans.append(plan(line.entry, state, line.scope(watermark, now), limit=self.cap))
                lines.append(line)
            except Exception:  # noqa: BLE001 - its plan will fail too, and says why
                self._unshared = True
        for line, kept in zip(lines, share(plans, max(0, self.cap - used)), strict=True):
            assert line.session is not None
            line.session.allowance = kept

    def _announce(
        self, lines: Sequence[TrackedEntry], counts: dict[str, int], watermark: Instant, now: Instant
    ) -> None:
        total = sum(counts.values())
        if self.progress is None:
            self.progress = Progress(total, self.monotonic())
        else:
            self.progress.total += total
        start = min(line.scope(watermark, now).replay_from for line in lines)
        self.events.emit(CatchupStarted(len(lines), total, start, now))
        for line in lines:
            policy = line.entry.policy
            window = "none" if policy.window is None else format_duration(policy.window)
            name = line.entry.name
            self.events.emit(CatchupPlanned(name, str(policy.overlap_policy), counts[name], window))

    def _state(self, line: TrackedEntry) -> EntryState:
        assert line.session is not None
        session = line.session
        return replace(
            line.state,
            existing=session.existing or {},
            used=session.used,
            room=session.room,
            allowance=session.allowance,
        )

    def _settle_room(self, line: TrackedEntry) -> None:
        """The room of the whole catch-up is what there is when it begins."""
        session, state = line.session, line.state
        if session is not None and session.room is None:
            session.room = room(line.entry.policy, active=state.active, waiting=state.waiting)

    def state_of(self, line: TrackedEntry) -> EntryState:
        """The entry's state; in a session with what the session has used up."""
        return line.state if line.session is None else self._state(line)

    def allowed(self, now: Instant) -> int | None:
        """How many catch-up runs may be sent now; None for any number."""
        if not self.pause:
            return None
        return 1 if earliest_send(self._last_sent, pause=self.pause, now=now) <= now else 0

    def next_send(self, now: Instant) -> Instant:
        """When the next catch-up run may be sent."""
        return earliest_send(self._last_sent, pause=self.pause or 0, now=now)

    def committed(self, drafts: Sequence[Draft], *, now: Instant) -> None:
        """Count what was decided, and close the sessions that are through."""
        for one in drafts:
            session = one.line.session
            if session is None:
                continue
            assert self.progress is not None
            self.progress, self.moved_at = self.progress.with_plan(one.plan), now
            self._settle_room(one.line)
            runs = len(one.plan.runs)
            session.used += runs
            if session.room is not None:
                session.room -= runs
            if session.allowance is not None:
                session.allowance -= runs
            if runs:
                self._last_sent = now
            if one.plan.complete:
                self._unshared |= bool(session.allowance)
                one.line.session = None
                self._open.pop(one.line.entry.name, None)

    def upcoming(self, drafts: Sequence[Draft], *, now: Instant) -> dict[str, int | str]:
        """The progress as it will be when these are committed."""
        if self.progress is None:
            return {}
        inside = [one for one in drafts if one.line.session is not None]
        ending = {one.line.entry.name for one in inside if one.plan.complete}
        ahead = self.progress
        for one in inside:
            ahead = ahead.with_plan(one.plan)
        return ahead.fields(running=bool(set(self._open) - ending), now=now)

    def close_if_done(self) -> None:
        """Say so when everything missed is decided."""
        if self.progress is not None and not self._open:
            seconds = self.monotonic() - self.progress.began
            self.events.emit(CatchupCompleted(self.progress.dispatched, self.progress.skipped, seconds))
            self.progress = None

    def carry(self, tracked: TrackedEntries, now: Instant) -> None:
        """The tracked was read anew, perhaps in the midst of a catch-up: what is open stays open, with
        what it has used up; an entry that is not on it, or was paused meanwhile, leaves it."""
        for name, line in list(self._open.items()):
            successor = tracked.lines.get(name)
            if successor is None or successor.state.paused:
                del self._open[name]
                self._unshared = True
                continue
            successor.session = line.session
            self._open[name] = successor
            tracked.wake(name, now)
            tracked.note(successor)
        if not self._open:
            self.progress = None

    def stalled_since(self) -> Instant | None:
        """When a catch-up that is going on decided something last."""
        return self.moved_at if self._open else None

    def forget(self) -> None:
        """Another beat leads: what was open is its business now."""
        self._open.clear()
        self.progress = None


def look_up(
    lines: Sequence[TrackedEntry],
    states: States,
    ranges: Mapping[str, tuple[Instant, Instant]],
    namespace: str,
) -> None:
    """Learn who is busy, and which slots of the ranges ``(after, until]`` have their run."""
    busy = states.busy(ranges)
    recorded = states.recorded_of(ranges)
    for line in lines:
        name = line.entry.name
        line.state.active, line.state.waiting = busy[name].active, busy[name].waiting
        existing = line.entry.slots_of(namespace, recorded[name])
        if line.session is None:
            line.state.existing = existing
        else:
            line.session.existing = existing
