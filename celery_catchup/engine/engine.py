"""The engine itself: one object per beat, driven tick by tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from celery_catchup.clock import Clock
from celery_catchup.engine.backfills import BackfillWork
from celery_catchup.engine.catchup import Catchup
from celery_catchup.engine.drafts import Dispatch, DispatchFailedError, Draft, draft
from celery_catchup.engine.memory import ELSEWHERE, EMPTIED, WENT_BACK, Memory
from celery_catchup.engine.office import adopt, check_drift, read_roster, read_store
from celery_catchup.engine.previews import has_missed
from celery_catchup.engine.reaper import Reaper
from celery_catchup.engine.release import Releases
from celery_catchup.engine.roster import Declared, Line, Roster, with_state
from celery_catchup.engine.standby import Standby, digest
from celery_catchup.events import EntryFailed, Events, Leading, RunDispatched, RunSkipped
from celery_catchup.model import Instant, to_instant, to_milliseconds
from celery_catchup.pacing import REPLACING
from celery_catchup.planner import plan
from celery_catchup.policy import OverlapPolicy
from celery_catchup.settings import FirstStart, Settings
from celery_catchup.store import (
    Backfills,
    Batch,
    FencedError,
    Leadership,
    Ledger,
    PlainBatch,
    StaleWatermarkError,
    States,
    Term,
)

_LONGEST_RETRY = 60_000
"""Milliseconds between two tries of an entry that cannot be dispatched, at the most."""
_FEW = 100
"""Skipped slots of one span that are told one by one."""


@dataclass(frozen=True)
class Office:
    """What the engine works with."""

    leadership: Leadership
    states: States
    ledger: Ledger
    dispatch: Dispatch
    clock: Clock
    events: Events
    reaper: Reaper
    backfills: Backfills


class Engine:
    """Leads when it may, and then decides and dispatches every slot that is due.

    Every method may raise a Redis error: nothing is lost then, the next tick goes on at
    the very slot. `FencedError` never leaves it: a beat that lost the lead stands by.
    """

    def __init__(
        self, office: Office, declared: Sequence[Declared], *, settings: Settings, namespace: str
    ) -> None:
        self.office, self.declared, self.settings, self.namespace = office, declared, settings, namespace
        self.roster = Roster({})
        self.leading = False
        self.epoch = self._version = -1
        self._watermark: Instant = 0
        self._standby = Standby(office.states, office.events)
        self.terms = 0
        self._memory = Memory(office.events)
        self._pending: Term
        self._unpublished = False
        self._backfills = BackfillWork(
            office.backfills,
            office.states,
            office.leadership,
            office.dispatch,
            office.events,
            namespace=namespace,
        )
        self._releases = Releases(
            office.leadership, office.ledger, office.dispatch, office.reaper, office.events, settings
        )
        pause = None if settings.rate_limit is None else to_milliseconds(settings.rate_limit)
        self.catchup = Catchup(office.states, office.events, office.clock.monotonic, settings.max_runs, pause)

    def now(self) -> Instant:
        """The present as slots are compared with it."""
        return to_instant(self.office.clock.now())

    # -- lead ------------------------------------------------------------------------------

    def lead(self, now: Instant) -> bool:
        """Renew the lease or try to get it; take office when it is new or something changed."""
        # Entries that were declared anew may have slots since the last tick.
        settled = self.leading and self._version >= 0 and self.roster.settled(now)
        watermark = now if settled else None
        term = self.office.leadership.lead(now=now, watermark=watermark)
        if term.lost:
            self._memory.keep(self.roster, self._watermark, leading=self.leading)
            self.epoch = -1
        if not term.leads:
            self._memory.tell(ELSEWHERE)
            self._stand_by(term.owner)
            return False
        if watermark is not None:
            self._watermark = watermark
        self._pending = term
        if (term.epoch, term.version) != (self.epoch, self._version):
            self._take_office(term.epoch, term.version, now)
        return self.leading

    def _take_office(self, epoch: int, version: int, now: Instant) -> None:
        office = self.office
        stored = read_store(office.states, otherwise=self.resign)
        match = self.settings.first_start is FirstStart.MATCH
        kept = self._memory.decided
        known = read_roster(
            self.declared, stored, now=now, match_first=match, events=office.events, remembered=kept
        )
        if epoch != self.epoch:
            check_drift(known, stored, self.settings.on_drift, office.events)
        if not adopt(office.states, office.leadership, known, stored, declares=digest(self.declared)):
            self._stand_by("another beat")
            return
        new_term = epoch != self.epoch
        self._backfills.load()
        self.catchup.carry(known.roster if not new_term else Roster({}), now)
        self.roster, self._watermark = known.roster, known.watermark
        self.epoch, self._version, self.leading = epoch, version, True
        self._standby.over()
        self._memory.tell(EMPTIED if stored.fresh else WENT_BACK)
        if new_term:
            self.terms += 1
            office.events.emit(Leading(epoch))

    def _stand_by(self, leader: str) -> None:
        self.leading, self.epoch = False, -1
        self.catchup.forget()
        self._standby.watch(leader, self.declared)

    def redeclare(self, declared: Sequence[Declared]) -> None:
        """Other entries from the next tick on; what is being caught up goes on."""
        self.declared, self._version = declared, -1

    def resign(self) -> None:
        """Stop leading, so that a standby can begin at once."""
        self.leading, self.epoch = False, -1
        self.office.leadership.resign()

    # -- advance ---------------------------------------------------------------------------

    def advance(self, now: Instant) -> None:
        """Decide the slots that are due: live ones of all entries first, then a bounded part of
        what is being caught up."""
        due = self.roster.due(now)
        try:
            self._advance(due, now)
        except (FencedError, StaleWatermarkError):
            self.leading, self.epoch = False, -1
        except BaseException:
            for line in due:
                self.roster.wake(line.entry.name, line.wake_at)
            raise

    def _advance(self, due: list[Line], now: Instant) -> None:
        missed = [line for line in due if has_missed(line, now)]
        if missed:
            self.catchup.open(missed, watermark=self._watermark, now=now)
            for line in missed:
                self.roster.note(line)
        live = [line for line in due if line.session is None]
        behind = [line for line in due if line.session is not None]
        left = self.settings.batch_size
        for lines, allowed in ((live, None), (behind, self.catchup.allowed(now))):
            limit = left if allowed is None else min(left, allowed)
            left -= self._decide(lines, limit, now)
        self.catchup.close_if_done()

    def _decide(self, lines: list[Line], limit: int, now: Instant) -> int:
        """Plan and commit these entries within the limit of runs; what does not fit comes next tick."""
        self._refresh(lines[:limit])
        drafts: list[Draft] = []
        left = limit
        for index, line in enumerate(lines):
            if left <= 0:
                self.roster.wake(line.entry.name, self._later(line, now))
                continue
            fair = max(1, left // (len(lines) - index))
            one = self._draft(line, fair, now)
            if one is not None:
                drafts.append(one)
                left -= len(one.plan.runs)
        self._commit(drafts, now)
        return limit - left

    def _later(self, line: Line, now: Instant) -> Instant:
        """When an entry whose turn did not come is looked at again; never before its slot."""
        return now if line.session is None else max(now, self.catchup.next_send(now))

    def _refresh(self, lines: list[Line]) -> None:
        """Ask which entries are busy, where their overlap policy wants to know."""
        asking = [line for line in lines if line.asks_who_is_busy]
        if asking:
            busy = self.office.states.busy(line.entry.name for line in asking)
            for line in asking:
                with_state(line, active=busy[line.entry.name].active, waiting=busy[line.entry.name].waiting)

    def _draft(self, line: Line, limit: int, now: Instant) -> Draft | None:
        scope = line.scope(self._watermark, now)
        result = plan(line.entry, self.catchup.state_of(line), scope, limit=limit)
        try:
            made = draft(line, result, namespace=self.namespace, dispatch=self.office.dispatch)
        except DispatchFailedError as error:
            self._failed(line, str(error), now)
            return None
        line.failures = 0
        self.roster.note(line)
        return made

    def _failed(self, line: Line, reason: str, now: Instant) -> None:
        """Keep the slot undecided and try again, less and less often; the others go on."""
        line.failures += 1
        delay = min(1000 * 2 ** min(line.failures - 1, 10), _LONGEST_RETRY)
        self.roster.note(line)
        self.office.events.emit(EntryFailed(line.entry.name, reason, delay / 1000))
        self.roster.wake(line.entry.name, now + delay)

    def _commit(self, drafts: list[Draft], now: Instant) -> None:
        writing = [one for one in drafts if one.matters]
        for one in drafts:
            if not one.matters:
                self.roster.wake(one.line.entry.name, one.plan.wake_at)
        if not writing:
            return
        batch = Batch(
            entries=[one.batch for one in writing],
            templates={name: text for one in writing for name, text in one.templates.items()},
            progress=self.catchup.upcoming(writing, now=now),
        )
        self._unpublished |= any(template.queue is None for template in batch.templates.values())
        self._end_others(writing)
        outcomes = self.office.ledger.commit(self.office.leadership, batch, now=now)
        self.catchup.committed(writing, now=now)
        for one, outcome in zip(writing, outcomes, strict=True):
            self._settle(one, set(outcome.existing), now)

    def _settle(self, one: Draft, existing: set[str], now: Instant) -> None:
        line, result = one.line, one.plan
        with_state(
            line, decided=result.watermark, paused_at=None if result.complete else line.state.paused_at
        )
        self.roster.wake(line.entry.name, result.wake_at if result.complete else self._later(line, now))
        self.roster.note(line)
        for run, identity in zip(result.runs, one.ids, strict=True):
            if identity not in existing:
                self.office.events.emit(RunDispatched(line.entry.name, run, identity))
        for skip in result.skips:
            slots = line.entry.schedules[skip.schedule].timetable.slots(skip.first - 1, skip.last)
            listed = tuple(slots) if skip.count <= _FEW else ()
            self.office.events.emit(RunSkipped(line.entry.name, skip, one.catches_up, listed))

    def _end_others(self, drafts: list[Draft]) -> None:
        """Restarts, stops and replacing policies end what is active before the new run starts."""
        for one in drafts:
            policy = one.line.entry.policy.overlap_policy
            ends = any(run.ends_active for run in one.plan.runs) or one.plan.stops
            if ends or (policy in REPLACING and one.plan.runs):
                active = self.office.ledger.active(one.line.entry.name)
                terminate = bool(ends) or policy is OverlapPolicy.TERMINATE_OTHER
                if active:
                    self.office.dispatch.end(active, terminate=terminate)

    # -- release ---------------------------------------------------------------------------

    def release(self, now: Instant) -> None:
        """Go on with backfills, and send what was decided but is not with the broker yet."""
        try:
            self._backfills.advance(self.roster.lines, now)
            self._releases.release(self._pending, self.roster, now, outbox=self._unpublished)
            self._unpublished = False
        except FencedError:
            self.leading, self.epoch = False, -1

    def send_plain(self, batches: Sequence[PlainBatch], now: Instant) -> bool:
        """Send what entries without a policy have due, together with what is then known of them;
        False when another beat leads by now, or has sent it."""
        try:
            self.office.ledger.commit(self.office.leadership, Batch(plain=batches), now=now)
        except (FencedError, StaleWatermarkError):
            self.leading, self.epoch = False, -1
            return False
        return True
