"""Advance: from entries that are due to decisions that are durable, many in one step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from celery_catchup.clock import Clock
from celery_catchup.config.settings import Settings
from celery_catchup.engine.catchup import Catchup, look_up
from celery_catchup.engine.drafts import Dispatch, Draft, OversizeError, draft
from celery_catchup.engine.failures import Failures, told
from celery_catchup.engine.reaper import Reaper
from celery_catchup.engine.revocations import Revocations
from celery_catchup.engine.tracked_entries import TrackedEntries, TrackedEntry
from celery_catchup.events import Events, RunDispatched, RunSkipped
from celery_catchup.model import Instant, Skip
from celery_catchup.planning.entry import NOTHING, Entry
from celery_catchup.planning.planner import plan
from celery_catchup.store import Backfills, Batch, Leadership, Ledger, Retention, States
from celery_catchup.store.batches import MOST_BYTES, MOST_RUNS

_PART = 100
"""Runs of one entry that are decided together in a catch-up of many: a plan for each run costs more."""
_DAMAGED = "key {} is not of the kind that is kept there; rename or delete it"
_FEW = 100
"""Skipped slots of one span that are told one by one."""


@dataclass(frozen=True)
class Services:
    """What the engine works with."""

    leadership: Leadership
    states: States
    ledger: Ledger
    dispatch: Dispatch
    clock: Clock
    events: Events
    reaper: Reaper
    backfills: Backfills
    retention: Retention
    schedule: Collection[str] = ()
    """Names of all entries, those without a policy too."""
    elsewhere: Callable[[], dict[str, Instant] | None] = lambda: None


@dataclass
class Advance:
    """The leader's decisions. ``tracked`` and ``watermark`` are those of its term."""

    services: Services
    catchup: Catchup
    revocations: Revocations
    settings: Settings
    namespace: str
    failures: Failures
    tracked: TrackedEntries = field(default_factory=lambda: TrackedEntries({}))
    watermark: Instant = 0
    unpublished: bool = False
    """Whether something was put into the outbox."""

    def advance(self, now: Instant) -> None:
        """Decide the slots that are due: live ones of all entries first, then a bounded part of
        what is being caught up. `FencedError` and `StaleWatermarkError` when somebody else leads."""
        try:
            self._decide_due(now)
        except BaseException:
            self.tracked.let_go()
            raise

    def _decide_due(self, now: Instant) -> None:
        self._queue(self.tracked.due(now), now)
        left = self.settings.batch_size
        left -= self._decide(self.tracked.live, left, now)
        allowed = self.catchup.allowed(now)
        self.catchup.share(self.watermark, now)
        self._decide(self.tracked.behind, left if allowed is None else min(left, allowed), now)
        self.tracked.behind_at = self.catchup.next_send(now)
        self.catchup.close_if_done()

    def _queue(self, lines: list[TrackedEntry], now: Instant) -> None:
        """Into their queue; those that have missed slots begin to be caught up."""
        failed = self._open([line for line in lines if line.has_missed(now)], now)
        for line in lines:
            if line.entry.name not in failed:
                self.tracked.queue(line)

    def _open(self, missed: list[TrackedEntry], now: Instant) -> set[str]:
        """Begin to catch these up; the names of those whose schedules fail."""
        if not missed:
            return set()
        failed = self.catchup.open(missed, watermark=self.watermark, now=now)
        for line in missed:
            self.tracked.note(line)
        for line, error in failed:
            self._failed(line, told(error), now)
        return {line.entry.name for line, _ in failed}

    def _decide(self, queue: deque[TrackedEntry], limit: int, now: Instant) -> int:
        """Plan and commit the first of a queue within the limit of runs; the others come next tick."""
        lines = self.tracked.take(queue, limit)
        if queue is self.tracked.live:
            missed = [line for line in lines if line.has_missed(now)]  # while they were waiting
            failed = self._open(missed, now)
            lines = [line for line in lines if line.entry.name not in failed]
        drafts: list[Draft] = []
        left, runs, size = limit, 0, 0
        for index, line in enumerate(lines):
            self.services.leadership.keep()
            late = line.session is not None and queue is self.tracked.live
            if left <= 0 or late:
                self.tracked.queue(line)
                continue
            fair = min(MOST_RUNS, max(1, left // (len(lines) - index), min(left, _PART)))
            one = self._draft(line, fair, now)
            if one is not None:
                runs, size = runs + len(one.plan.runs), size + one.size
                if drafts and (runs > MOST_RUNS or size > MOST_BYTES):
                    self._commit(drafts, now)
                    drafts, runs, size = [], len(one.plan.runs), one.size
                drafts.append(one)
                left -= len(one.plan.runs)
        self._commit(drafts, now)
        return limit - left

    def _draft(self, line: TrackedEntry, limit: int, now: Instant, *, certain: bool = False) -> Draft | None:
        """The plan of an entry, and what is to be committed of it.

        It is taken to be idle, and its slots to have no runs: the commit finds out. Where that is not
        so it comes here once more, ``certain``, with what the store knows.
        """
        if not certain:
            line.state.active = line.state.waiting = 0
        session = line.session
        asked = certain or (session is not None and session.existing is not None)
        settled = certain or (session is not None and session.room is not None)
        try:
            scope = line.scope(self.watermark, now)
            result = plan(line.entry, self.catchup.state_of(line), scope, limit=limit)
            made = draft(
                line,
                result,
                namespace=self.namespace,
                dispatch=self.services.dispatch,
                now=now,
                busy=0 if line.asks_who_is_busy and not settled else None,
                after=None if asked else result.replay_from,
            )
        except OversizeError as error:
            return self._draft(line, error.fits, now, certain=certain)
        except Exception as error:  # noqa: BLE001 - a schedule or hook of the user's own may raise anything
            self._failed(line, told(error), now)
            return None
        line.due_since = None
        self.failures.over(line.entry.name)
        self.tracked.note(line)
        return made

    def _failed(self, line: TrackedEntry, reason: str, now: Instant) -> None:
        """Keep the slot undecided and try again, less and less often; the others go on."""
        if line.due_since is None:
            line.due_since = now if line.wake_at is None else min(line.wake_at, now)
        self.tracked.note(line)
        delay = self.failures.record(line.entry.name, reason, now=now, due=line.due_since)
        self.tracked.wake(line.entry.name, now + delay)

    def oldest_due(self, now: Instant) -> Instant | None:
        """The oldest slot that is due and undecided; a catch-up counts from its last decision on."""
        found = (self.failures.oldest_due(), self.tracked.oldest_due(now), self.catchup.stalled_since())
        return min((at for at in found if at is not None), default=None)

    def _commit(self, drafts: list[Draft], now: Instant) -> None:
        writing = []
        for one in drafts:
            if one.matters:
                writing.append(one)
            else:
                self.tracked.wake(one.line.entry.name, one.plan.wake_at)
        if not writing:
            return
        batch = Batch(
            entries=[one.batch for one in writing],
            templates={name: text for one in writing for name, text in one.templates.items()},
            progress=self.catchup.upcoming(writing, now=now),
        )
        self.unpublished |= any(template.queue is None for template in batch.templates.values())
        if any(one.batch.ends for one in writing):
            self.revocations.expect()
        outcome = self.services.ledger.commit(self.services.leadership, batch, now=now)
        for index, key in outcome.damaged.items():
            self._failed(writing[index].line, _DAMAGED.format(key), now)
        left = {*outcome.changed, *outcome.damaged}
        done = [one for index, one in enumerate(writing) if index not in left]
        self.catchup.committed(done, now=now)
        for one in done:
            self._settle(one, outcome.existing, now)
        self._commit_again([writing[index] for index in sorted(outcome.changed)], now)

    def _commit_again(self, changed: list[Draft], now: Instant) -> None:
        """Plan entries anew that were not as their plans took them to be: busy, or with runs of which
        the plan did not know."""
        if not changed:
            return
        lines = [one.line for one in changed]
        scopes = {line.entry.name: line.scope(self.watermark, now) for line in lines}
        ranges = {name: (scope.replay_from, scope.now) for name, scope in scopes.items()}
        look_up(lines, self.services.states, ranges, self.namespace)
        drafts = [
            made
            for one in changed
            if (made := self._draft(one.line, max(1, len(one.plan.runs)), now, certain=True)) is not None
        ]
        for line in lines:
            line.state.existing = NOTHING
        self._commit(drafts, now)

    def _settle(self, one: Draft, existing: Collection[str], now: Instant) -> None:
        line, result = one.line, one.plan
        line.state.decided = result.watermark
        if result.complete:
            line.state.paused_at, line.state.pauses, line.state.removed = None, (), None
            self.tracked.wake(line.entry.name, result.wake_at)
        else:
            line.wake_at = now
            self.tracked.queue(line)
        self.tracked.note(line)
        for run, identity in zip(result.runs, one.ids, strict=True):
            if identity not in existing:
                self.services.events.emit(RunDispatched(line.entry.name, run, identity))
        for skip in result.skips:
            self.services.events.emit(
                RunSkipped(line.entry.name, skip, one.catches_up, _listed(line.entry, skip))
            )


def _listed(entry: Entry, skip: Skip) -> tuple[Instant, ...]:
    """The slots of a span, when they are few."""
    if skip.count > _FEW:
        return ()
    if skip.count <= 2:
        return (skip.first, skip.last)[: skip.count]
    try:
        return tuple(entry.schedules[skip.schedule].timetable.slots(skip.first - 1, skip.last))
    except Exception:  # noqa: BLE001 - what is decided is decided, and is told as a span then
        return ()
