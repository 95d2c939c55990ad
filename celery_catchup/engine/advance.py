"""Advance: decide the slots that are due, and commit many decisions in one step."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from celery_catchup.config.settings import Settings
from celery_catchup.engine.catchup import Catchup, SharedPlans, find_held, look_up
from celery_catchup.engine.failures import Failures, describe
from celery_catchup.engine.prepared_plan import OversizeError, PreparedPlan, prepare
from celery_catchup.engine.revocations import Revocations
from celery_catchup.engine.services import Missed, Services
from celery_catchup.engine.tracked_entries import TrackedEntries, TrackedEntry
from celery_catchup.events import EntryHeld, RunDispatched, RunSkipped
from celery_catchup.model import Instant, Skip, to_instant
from celery_catchup.planning.entry import NOTHING, Entry
from celery_catchup.store import Batch, FencedError, OutboxRun, StartedCommit
from celery_catchup.store.batches import MOST_BYTES, MOST_RUNS

_PART = 100
"""Runs of one entry that are decided together in a catch-up of many: a plan for each run costs more."""
_BESIDE_LIVE = 100
"""Catch-up runs that one tick decides where few of them may run at once (`catchup_max_active`): a larger part
would only keep live slots waiting."""
_STEP = 20
"""Runs of such a part that are committed together: a live slot that becomes due meanwhile waits for these."""
_WORTH_SENDING = 50
"""Runs or entries of a part that is committed as soon as the server has answered the last commit. The next
part is prepared while the server works: the longer that takes, the larger is the part."""
_LEAST = 10
"""Part of the batch that catch-ups have in any case."""
_DAMAGED = "key {} does not have the type that is stored there; rename or delete it"
_FEW = 100
"""Skipped slots of one span that are reported one by one."""


@dataclass
class Advance:
    """The leader's decisions. ``entries`` and ``watermark`` are those of its term; ``unpublished`` tells
    whether something was put into the outbox; ``posted`` has what this tick has put there."""

    services: Services
    catchup: Catchup
    revocations: Revocations
    settings: Settings
    namespace: str
    failures: Failures
    entries: TrackedEntries = field(default_factory=lambda: TrackedEntries({}))
    watermark: Instant = 0
    unpublished: bool = False
    posted: dict[str, OutboxRun] = field(default_factory=dict)
    _plans: SharedPlans = field(init=False)
    _started: _StartedPart | None = None
    _changed: list[PreparedPlan] = field(default_factory=list)
    _reported_holds: dict[str, int] = field(default_factory=dict)

    def advance(self, now: Instant) -> None:
        """Decide the slots that are due: live ones of all entries first, then a bounded part of the catch-up.

        Raises `FencedError` or `StaleWatermarkError` when another beat leads.
        """
        self._plans, self.posted, self._changed = SharedPlans(self.watermark, now), {}, []
        try:
            self._decide_due(now)
        except BaseException as error:
            self._end_commit(now, wait=isinstance(error, Exception))
            self.entries.put_back()
            raise

    def _end_commit(self, now: Instant, *, wait: bool) -> None:
        """Complete the commit that was on its way when the tick failed. Without ``wait`` its outcome stays
        unknown, as when its answer is lost: the process ends."""
        if wait:
            with suppress(Exception):  # the tick fails for the first reason
                self._complete_commit(now)
        elif self._started is not None:
            self._started.commit.drop()
            self._started = None

    def _decide_due(self, now: Instant) -> None:
        for tracked in self._start_catchups(self.entries.take_due(now), now):
            self.entries.queue(tracked)
        left = self.settings.batch_size
        left -= self._decide(self.entries.live, left, now)
        # Where every tick is full of live slots, missed ones would wait until they leave their window.
        left = max(left, self.settings.batch_size // _LEAST, 1)
        allowed = self.catchup.allowed(now)
        self.catchup.share(self.watermark, now)
        self._decide_behind(left if allowed is None else min(left, allowed), now)
        self.entries.behind_at = self.catchup.next_send(now)
        self.catchup.report_if_done()

    def _decide_behind(self, limit: int, now: Instant) -> None:
        """Decide a part of the catch-up. A limited one needs its decisions later, so a live slot ends the
        part as soon as it is due."""
        if self.settings.max_active is None:
            self._decide(self.entries.behind, limit, now)
            return
        left = min(limit, _BESIDE_LIVE)
        while left > 0:
            decided = self._decide(self.entries.behind, min(left, _STEP), now)
            left -= decided
            if not decided or self.entries.oldest_due(to_instant(self.services.clock.now())) is not None:
                break

    def _start_catchups(self, several: list[TrackedEntry], now: Instant) -> list[TrackedEntry]:
        """Start to catch up those that have missed slots; return all whose schedules do not fail."""
        late = [tracked for tracked in several if tracked.has_missed(now)]
        if not late:
            return several
        held = self._hold(late, now)
        late = [tracked for tracked in late if tracked.entry.name not in held]
        failed = self.catchup.start(late, watermark=self.watermark, now=now)
        for tracked in late:
            self.entries.note(tracked)
        failing = {tracked.entry.name for tracked, _ in failed}
        self._note_missed([one for one in late if one.entry.name not in failing], now)
        for tracked, error in failed:
            self._failed(tracked, describe(error), now)
        names = {*held, *failing}
        return [tracked for tracked in several if tracked.entry.name not in names]

    def _note_missed(self, late: list[TrackedEntry], now: Instant) -> None:
        """Note that slots were missed, except those of a pause or a removal."""
        missed = [
            Missed(one.entry.name, first, now)
            for one in late
            if not one.state.resumes
            and (first := one.wake_at if one.due_since is None else one.due_since) is not None
        ]
        if missed:
            self.services.note_missed(missed)

    def _hold(self, late: list[TrackedEntry], now: Instant) -> Collection[str]:
        """Hold entries whose catch-up needs an approval; the next tick reads them as paused."""
        states = self.services.states
        held = find_held(late, states, self.namespace, watermark=self.watermark, now=now)
        if not held:
            return ()
        decided = {name: self.entries.by_name[name].scope(self.watermark, now).decided for name in held}
        rows = {name: (decided[name], runs) for name, runs in held.items()}
        if not states.hold(self.services.leadership, rows, now=now):
            raise FencedError
        for name in held:
            self.entries.wake(name, None)
        self.report_holds(self._reported_holds | held)
        return held

    def report_holds(self, held: Mapping[str, int]) -> None:
        """Report the entries that wait for an approval, each once by this beat. The leader that held one may
        have died before it could, or may have got no answer."""
        for name, runs in held.items():
            if name not in self._reported_holds:
                self.services.events.emit(EntryHeld(name, runs))
        self._reported_holds = dict(held)

    def _decide(self, queue: deque[TrackedEntry], limit: int, now: Instant) -> int:
        """Plan and commit the first of a queue, up to a limit of runs; return the number of runs."""
        several, live = self.entries.take(queue, limit), queue is self.entries.live
        if live:
            late = self._start_catchups(several, now)  # slots may have been missed in the queue
            several = [tracked for tracked in late if tracked.catchup_until is None]
            for tracked in late:
                if tracked.catchup_until is not None:
                    self.entries.queue(tracked)
        part, left = _Part(), limit
        for index, tracked in enumerate(several):
            self.services.leadership.keep()
            if left <= 0:
                self.entries.put_first(queue, several[index:])
                break
            fair = min(MOST_RUNS, max(1, left // (len(several) - index), min(left, _PART)))
            one = self._prepare(tracked, fair, now)
            if one is None:
                continue
            left -= len(one.plan.runs)
            if not part.add(one):
                self._start_commit(part.plans, now)
                part = _Part()
                part.add(one)
            if part.is_worth_sending and (self._started is None or self._started.commit.is_answered()):
                self._start_commit(part.plans, now)
                part = _Part()
        self._start_commit(part.plans, now)
        self._complete_commit(now)
        while self._changed:
            self._commit_again(now)
        return limit - left

    def _prepare(
        self, tracked: TrackedEntry, limit: int, now: Instant, *, certain: bool = False
    ) -> PreparedPlan | None:
        """Plan an entry and prepare the commit; None when that fails.

        The plan assumes that the entry is idle and its slots have no runs, and the commit checks it. If the
        assumption is wrong, the entry is planned again, ``certain``, with what the store knows.
        """
        state = tracked.state
        if not certain:
            state.active = state.waiting = 0
        asked, fixed = certain or state.existing is not NOTHING, certain or state.room is not None
        try:
            result = self._plans.plan(tracked, limit=limit)
            prepared = prepare(
                tracked,
                result,
                namespace=self.namespace,
                dispatch=self.services.dispatch,
                parts=self._plans.parts(result),
                now=now,
                busy=0 if tracked.limits_runs and not fixed else None,
                after=None if asked else result.replay_from,
            )
        except OversizeError as error:
            return self._prepare(tracked, error.fits, now, certain=certain)
        except Exception as error:  # noqa: BLE001 - a custom schedule or a hook may raise anything
            self._failed(tracked, describe(error), now)
            return None
        tracked.due_since = None
        self.failures.over(tracked.entry.name)
        self.entries.note(tracked)
        return prepared

    def _failed(self, tracked: TrackedEntry, reason: str, now: Instant) -> None:
        """Keep the slot undecided and retry with back-off; the other entries continue."""
        if tracked.due_since is None:
            tracked.due_since = now if tracked.wake_at is None else min(tracked.wake_at, now)
        self.entries.note(tracked)
        delay = self.failures.record(tracked.entry.name, reason, now=now, due=tracked.due_since)
        self.entries.wake(tracked.entry.name, now + delay)

    def oldest_due(self, now: Instant) -> Instant | None:
        """Return the oldest slot that is due and undecided; a catch-up counts from its last decision on."""
        found = (self.failures.oldest_due(), self.entries.oldest_due(now), self.catchup.stalled_since())
        return min((at for at in found if at is not None), default=None)

    def _start_commit(self, prepared: list[PreparedPlan], now: Instant) -> None:
        """Send a commit, when the one before is complete: never are two on their way."""
        self._complete_commit(now)
        writing = []
        for one in prepared:
            if one.matters:
                writing.append(one)
            else:
                self.entries.wake(one.tracked.entry.name, one.plan.wake_at)
        if not writing:
            return
        batch = Batch(
            entries=[one.batch for one in writing],
            templates={name: text for one in writing for name, text in one.templates.items()},
            progress=self.catchup.upcoming(writing, now=now),
        )
        self.unpublished |= any(template.queue is None for template in batch.templates.values())
        if any(one.batch.more is not None and one.batch.more.ends for one in writing):
            self.revocations.expect()
        commit = self.services.ledger.start_commit(self.services.leadership, batch, now=now)
        self._started = _StartedPart(writing, commit)

    def _complete_commit(self, now: Instant) -> None:
        """Wait for the commit that was sent, if any, and follow it."""
        if self._started is None:
            return
        writing, commit = self._started.plans, self._started.commit
        self._started = None
        outcome = commit.result()
        for index, key in outcome.damaged.items():
            self._failed(writing[index].tracked, _DAMAGED.format(key), now)
        left = {*outcome.changed, *outcome.damaged}
        done = [one for index, one in enumerate(writing) if index not in left]
        self.catchup.committed(done, now=now)
        for one in done:
            self._settle(one, outcome.existing, now)
            self._post(one, outcome.existing)
        self._changed += [writing[index] for index in sorted(outcome.changed)]

    def _post(self, one: PreparedPlan, existing: Collection[str]) -> None:
        """Keep what the outbox has now, so that it need not be read before it is published."""
        for new in one.batch.runs:
            if new.outbox and new.id not in existing:
                run = {**new.run, "attempt": 1, "sends": 1}
                self.posted[new.id] = OutboxRun(new.id, run, vars(one.templates[new.run["template"]]))

    def _commit_again(self, now: Instant) -> None:
        """Plan entries again whose assumptions were wrong: they were busy, or had runs in the range."""
        changed, self._changed = self._changed, []
        several = [one.tracked for one in changed]
        look_up(several, self.services.states, self.namespace, watermark=self.watermark, now=now)
        again = [self._prepare(one.tracked, max(1, len(one.plan.runs)), now, certain=True) for one in changed]
        for tracked in several:
            if tracked.catchup_until is None:
                tracked.state.existing = NOTHING
        part = _Part()
        for one in again:
            if one is not None and not part.add(one):
                self._start_commit(part.plans, now)
                part = _Part()
                part.add(one)
        self._start_commit(part.plans, now)
        self._complete_commit(now)

    def _settle(self, one: PreparedPlan, existing: Collection[str], now: Instant) -> None:
        """Follow a commit: the entry's state, its next wake-up, and the events."""
        tracked, result, name = one.tracked, one.plan, one.tracked.entry.name
        tracked.state.decided = result.watermark
        if result.complete:
            tracked.state.end_pauses()
            self.entries.wake(name, result.wake_at)
        else:
            tracked.wake_at = now
            self.entries.queue(tracked)
        self.entries.note(tracked)
        for run, new in zip(result.runs, one.batch.runs, strict=True):
            if new.id not in existing:
                self.services.events.emit(RunDispatched(name, run, new.id))
        for skip in result.skips:
            self.services.events.emit(RunSkipped(name, skip, one.in_catchup, _listed(tracked.entry, skip)))


@dataclass
class _Part:
    """Plans that are committed together; ``templates`` has those that they share."""

    plans: list[PreparedPlan] = field(default_factory=list)
    templates: set[str] = field(default_factory=set)
    runs: int = 0
    size: int = 0

    def add(self, one: PreparedPlan) -> bool:
        """Add a plan if it fits in; the first does."""
        runs, size = self.runs + len(one.plan.runs), self.size + one.size_beside(self.templates)
        if self.plans and (runs > MOST_RUNS or size > MOST_BYTES):
            return False
        self.runs, self.size = runs, size
        self.plans.append(one)
        self.templates.update(one.templates)
        return True

    @property
    def is_worth_sending(self) -> bool:
        return max(self.runs, len(self.plans)) >= _WORTH_SENDING


@dataclass(frozen=True)
class _StartedPart:
    """Plans whose commit was sent, and is not answered yet."""

    plans: list[PreparedPlan]
    commit: StartedCommit


def _listed(entry: Entry, skip: Skip) -> tuple[Instant, ...]:
    """List the slots of a span, when they are few."""
    if skip.count > _FEW:
        return ()
    if skip.count <= 2:
        return (skip.first, skip.last)[: skip.count]
    try:
        return tuple(entry.schedules[skip.schedule].timetable.slots(skip.first - 1, skip.last))
    except Exception:  # noqa: BLE001 - the decision stands, and is reported as a span
        return ()
