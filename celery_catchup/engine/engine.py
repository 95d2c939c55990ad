"""The engine itself: one object per beat, driven tick by tick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from celery_catchup.engine.advance import Advance, Office
from celery_catchup.engine.backfills import BackfillWork
from celery_catchup.engine.catchup import Catchup
from celery_catchup.engine.memory import ELSEWHERE, EMPTIED, WENT_BACK, Memory, certain
from celery_catchup.engine.office import Known, adopt, check_drift, read_roster, read_store
from celery_catchup.engine.release import Releases
from celery_catchup.engine.roster import Declared, Roster
from celery_catchup.engine.standby import Standby, digest
from celery_catchup.events import Leading
from celery_catchup.model import Instant, to_instant, to_milliseconds
from celery_catchup.settings import FirstStart, Settings
from celery_catchup.store import Batch, FencedError, PlainBatch, StaleWatermarkError, Stored, Term


class Engine:
    """Leads when it may, and then decides and dispatches every slot that is due.

    Every method may raise a Redis error: nothing is lost then, the next tick goes on at
    the very slot. `FencedError` never leaves it: a beat that lost the lead stands by.
    """

    def __init__(
        self,
        office: Office,
        declared: Sequence[Declared],
        *,
        settings: Settings,
        namespace: str,
        records: Mapping[str, str],
    ) -> None:
        self.office, self.declared, self.settings, self.namespace = office, declared, settings, namespace
        self.records, self._redeclared = records, False
        self.leading = False
        self.epoch = self._version = -1
        self._standby = Standby(office.states, office.events)
        self.terms = 0
        self._memory = Memory(office.events, office.elsewhere)
        self._pending: Term
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
        self._advance = Advance(office, self.catchup, settings, namespace)

    @property
    def roster(self) -> Roster:
        """Every entry with what is known of it."""
        return self._advance.roster

    def now(self) -> Instant:
        """The present as slots are compared with it."""
        return to_instant(self.office.clock.now())

    def certain(self) -> dict[str, Instant]:
        """Up to where each entry is decided."""
        return certain(self.roster, self._advance.watermark)

    # -- lead ------------------------------------------------------------------------------

    def lead(self, now: Instant) -> bool:
        """Renew the lease or try to get it; take office when it is new or something changed."""
        # Entries that were declared anew may have slots since the last tick.
        settled = self.leading and self._version >= 0 and self.roster.settled(now)
        watermark = now if settled else None
        term = self.office.leadership.lead(now=now, watermark=watermark)
        if term.lost:
            self._memory.keep(self.roster, self._advance.watermark, leading=self.leading)
            self.epoch = -1
        if not term.leads:
            self._memory.tell(ELSEWHERE)
            self._stand_by(term.owner)
            return False
        if watermark is not None:
            self._advance.watermark = watermark
        self._pending = term
        if (term.epoch, term.version) != (self.epoch, self._version):
            self._take_office(term.epoch, term.version, now)
        return self.leading

    def _take_office(self, epoch: int, version: int, now: Instant) -> None:
        office = self.office
        stored = read_store(office.states, otherwise=self.resign)
        match = self.settings.first_start is FirstStart.MATCH
        kept = self._memory.recalled(fresh=stored.fresh)
        known = read_roster(
            self.declared, stored, now=now, match_first=match, events=office.events, remembered=kept
        )
        new_term = epoch != self.epoch
        if new_term:
            self._check_drift(known, stored)
        adopted = adopt(office.states, office.leadership, known, stored, declares=digest(self.declared))
        # Entries that change while it leads come from a source that was changed on purpose.
        if adopted and (new_term or self._redeclared):
            adopted = office.states.accept(self.records, leadership=office.leadership)
            self._redeclared = False
        if not adopted:
            self._stand_by("another beat")
            return
        self._backfills.load()
        self.catchup.carry(known.roster if not new_term else Roster({}), now)
        self._advance.roster, self._advance.watermark = known.roster, known.watermark
        self.epoch, self._version, self.leading = epoch, version, True
        self._standby.over()
        self._memory.tell(EMPTIED if stored.fresh else WENT_BACK)
        if new_term:
            self.terms += 1
            office.events.emit(Leading(epoch))

    def _check_drift(self, known: Known, stored: Stored) -> None:
        on_drift, events = self.settings.on_drift, self.office.events
        accepted = self.office.states.accepted()
        check_drift(known, stored, self.records, accepted=accepted, on_drift=on_drift, events=events)

    def _stand_by(self, leader: str) -> None:
        self.leading, self.epoch = False, -1
        self.catchup.forget()
        self._standby.watch(leader, self.declared)

    def redeclare(self, declared: Sequence[Declared], records: Mapping[str, str]) -> None:
        """Other entries from the next tick on; what is being caught up goes on."""
        self.declared, self.records, self._version, self._redeclared = declared, records, -1, True

    def resign(self) -> None:
        """Stop leading, so that a standby can begin at once."""
        self.leading, self.epoch = False, -1
        self.office.leadership.resign()

    # -- advance ---------------------------------------------------------------------------

    def advance(self, now: Instant) -> None:
        """Decide the slots that are due: live ones of all entries first, then a bounded part of
        what is being caught up."""
        try:
            self._advance.advance(now)
        except (FencedError, StaleWatermarkError):
            self.leading, self.epoch = False, -1

    # -- release ---------------------------------------------------------------------------

    def release(self, now: Instant) -> None:
        """Go on with backfills, and send what was decided but is not with the broker yet."""
        try:
            self._backfills.advance(self.roster.lines, now)
            self._releases.release(self._pending, self.roster, now, outbox=self._advance.unpublished)
            self._advance.unpublished = False
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
