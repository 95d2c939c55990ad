"""The engine itself: one object per beat, driven tick by tick."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from celery_catchup.config.drift import digest
from celery_catchup.config.settings import FirstStart, Settings
from celery_catchup.engine.advance import Advance, Services
from celery_catchup.engine.backfills import BackfillWork
from celery_catchup.engine.catchup import Catchup
from celery_catchup.engine.entry_changes import report_moved
from celery_catchup.engine.failures import Failures, told
from celery_catchup.engine.housekeeping import Housekeeping
from celery_catchup.engine.release import Releases
from celery_catchup.engine.revocations import Revocations
from celery_catchup.engine.standby import Standby
from celery_catchup.engine.state_loss import ELSEWHERE, EMPTIED, WENT_BACK, Memory, certain
from celery_catchup.engine.takeover import SKEW, Known, adopt, check_drift, read_store, read_tracked_entries
from celery_catchup.engine.tracked_entries import Declared, TrackedEntries
from celery_catchup.errors import StoreError
from celery_catchup.events import Leading
from celery_catchup.model import Instant, to_instant, to_milliseconds
from celery_catchup.store import Batch, FencedError, StaleWatermarkError, Stored, Term, UnmanagedBatch
from celery_catchup.store.batches import portions
from celery_catchup.store.error_advice import STORE_FAILS
from celery_catchup.store.records import read_json

_NOTEWORTHY = 10_000
"""Milliseconds after which a due slot that is undecided is worth a line in the store."""


class Engine:
    """Leads when it may, and then decides and dispatches every slot that is due.

    Every method may raise a Redis error: nothing is lost then, the next tick goes on at
    the very slot. `FencedError` never leaves it: a beat that lost the lead stands by.
    """

    def __init__(
        self,
        services: Services,
        declared: Sequence[Declared],
        *,
        settings: Settings,
        namespace: str,
        records: Mapping[str, str],
        destination: str = "",
    ) -> None:
        self.services, self.declared, self.settings, self.namespace = services, declared, settings, namespace
        self.records, self._destination, self._redeclared = records, destination, False
        self._declares = digest(records, destination)
        self.leading = False
        self.epoch = self._version = -1
        self._standby = Standby(services.leadership, services.events, services.clock, namespace=namespace)
        self.terms = 0
        self._memory = Memory(services.events, services.elsewhere)
        self.failures = Failures(services.events)
        self._reported: tuple[Mapping[str, str], Instant | None] | None = None
        self._latest: Instant = 0
        self._reread_at: Instant | None = None
        self._unread: frozenset[str] = frozenset()
        self._pending: Term
        self._backfills = BackfillWork(
            services.backfills,
            services.states,
            services.leadership,
            services.dispatch,
            services.events,
            self.failures,
            namespace=namespace,
        )
        self._releases = Releases(
            services.leadership,
            services.ledger,
            services.dispatch,
            services.reaper,
            services.events,
            settings,
            Housekeeping(services.retention, services.leadership, services.events, settings),
            services.schedule,
        )
        pause = None if settings.rate_limit is None else to_milliseconds(settings.rate_limit)
        keep, monotonic = services.leadership.keep, services.clock.monotonic
        self.catchup = Catchup(
            services.states, services.events, monotonic, settings.max_runs, pause, namespace, keep
        )
        self._revocations = Revocations(services.ledger, services.dispatch, services.clock)
        self._advance = Advance(services, self.catchup, self._revocations, settings, namespace, self.failures)

    @property
    def tracked(self) -> TrackedEntries:
        """Every entry with what is known of it."""
        return self._advance.tracked

    def now(self) -> Instant:
        """The present as slots are compared with it."""
        return to_instant(self.services.clock.now())

    def certain(self) -> dict[str, Instant]:
        """Up to where each entry is decided."""
        return certain(self.tracked, self._advance.watermark)

    @property
    def server_ms(self) -> int:
        """The server's clock, as of this tick."""
        return self._pending.server_ms

    # -- lead ------------------------------------------------------------------------------

    def lead(self, now: Instant) -> bool:
        """Renew the lease or try to get it; take office when it is new or something changed."""
        self._look_at_the_clock(now)
        # Entries that were declared anew, or could not be read, may have slots since the last tick.
        known = self.leading and self._version >= 0 and self._reread_at is None
        settled = known and self.tracked.settled(now)
        watermark = now if settled else None
        term = self.services.leadership.lead(now=now, watermark=watermark)
        if term.lost:
            self._memory.keep(self.tracked, self._advance.watermark, leading=self.leading)
            self.epoch = -1
        if not term.leads:
            self._memory.tell(ELSEWHERE)
            self._stand_by(term.owner)
            return False
        if watermark is not None:
            self._advance.watermark = watermark
        self._pending = term
        if (term.epoch, term.version) != (self.epoch, self._version):
            try:
                self._take_office(term.epoch, term.version, now)
            except FencedError:
                self._stand_by("another beat")
        return self.leading

    def _look_at_the_clock(self, now: Instant) -> None:
        """Read everything anew when the clock went back, and when an entry that could not be read is to be
        tried again. What was decided up to a time to come would keep its entry silent until then."""
        if now < self._latest - SKEW:
            self.catchup.forget()
            self._version = -1
        if self._reread_at is not None and self._reread_at <= now:
            self._version = -1
        self._latest = now

    def _take_office(self, epoch: int, version: int, now: Instant) -> None:
        services = self.services
        stored = read_store(services.states, otherwise=self.resign)
        services.leadership.keep()
        match = self.settings.first_start is FirstStart.MATCH
        kept = self._memory.recalled(fresh=stored.fresh)
        known = read_tracked_entries(
            self.declared, stored, now=now, match_first=match, events=services.events, remembered=kept
        )
        new_term = epoch != self.epoch
        if new_term:
            self._check_drift(known, stored)
        adopted = adopt(services.states, services.leadership, known, stored, declares=self._declares)
        # Entries that change while it leads come from a source that was changed on purpose.
        if adopted and (new_term or self._redeclared):
            adopted = services.states.accept(self.records, leadership=services.leadership)
            self._redeclared = False
        if not adopted:
            self._stand_by("another beat")
            return
        if new_term:
            report_moved(known.tracked, stored, services.events)
            self.failures.clear()
            self._reported = None
        self._reread_at = self._retry_unread(known, stored, now)
        self._backfills.load()
        self.catchup.carry(known.tracked if not new_term else TrackedEntries({}), now)
        self._advance.tracked, self._advance.watermark = known.tracked, known.watermark
        self.epoch, self._version, self.leading = epoch, version, True
        self._standby.over()
        self._memory.tell(EMPTIED if stored.fresh else WENT_BACK)
        if new_term:
            self.terms += 1
            self._revocations.expect()
            services.events.emit(Leading(epoch))

    def _retry_unread(self, known: Known, stored: Stored, now: Instant) -> Instant | None:
        """When to read again, if there are entries that cannot be read. The watermark stays where it is for
        them, because nobody knows which of their slots are due. Those that are paused, or can be read
        again, do not fail any more."""
        paused = {name for name, text in stored.paused.items() if (read_json(text) or {}).get("paused")}
        for name in {*paused, *(self._unread - set(known.unread))}:
            self.failures.over(name)
        self._unread = frozenset(known.unread)
        delays = [
            self.failures.record(name, told(error), now=now, due=known.watermark)
            for name, error in known.unread.items()
            if name not in paused
        ]
        return now + min(delays) if delays else None

    def _check_drift(self, known: Known, stored: Stored) -> None:
        on_drift, events = self.settings.on_drift, self.services.events
        accepted = self.services.states.accepted()
        check_drift(known, stored, self.records, accepted=accepted, on_drift=on_drift, events=events)

    def _stand_by(self, leader: str) -> None:
        self.leading, self.epoch = False, -1
        self.catchup.forget()
        self._standby.watch(leader, self._declares)

    def redeclare(self, declared: Sequence[Declared], records: Mapping[str, str]) -> None:
        """Other entries from the next tick on; what is being caught up goes on."""
        self.declared, self.records, self._version, self._redeclared = declared, records, -1, True
        self._declares = digest(records, self._destination)
        self.failures.clear()

    def resign(self) -> None:
        """Stop leading, so that a standby can begin at once."""
        self.leading, self.epoch = False, -1
        self.services.leadership.resign()

    # -- advance ---------------------------------------------------------------------------

    def advance(self, now: Instant) -> None:
        """Decide the slots that are due: live ones of all entries first, then a bounded part of
        what is being caught up."""
        if not self.leading:
            return
        with self._until_fenced():
            try:
                self._advance.advance(now)
            except (FencedError, StaleWatermarkError, StoreError, *STORE_FAILS):
                raise
            except Exception:
                self._report(now)  # the tick ends here, and what it leaves undecided has to be seen
                raise
            self.services.leadership.keep()

    # -- release ---------------------------------------------------------------------------

    def release(self, now: Instant) -> None:
        """Go on with backfills, and send what was decided but is not with the broker yet."""
        if not self.leading:
            return
        with self._until_fenced():
            self._revocations.send()
            self._backfills.advance(self.tracked.lines, now)
            self._releases.release(self._pending, self.tracked, now, outbox=self._advance.unpublished)
            self._advance.unpublished = False
            self._report(now)

    def has_decided(self, name: str) -> bool:
        """Whether an entry has no slot left: none missed, none to come. One without a policy has none."""
        line = self.tracked.lines.get(name)
        if line is None:
            return name not in self._unread
        return line.wake_at is None and line.session is None and not line.state.paused

    def has_time(self) -> bool:
        """Whether this tick may publish more: this beat leads, and the lease did not have to be renewed
        just now. After a third of the lease the rest is left to the next tick, live slots first."""
        in_time = False
        if self.leading:
            with self._until_fenced():
                in_time = not self.services.leadership.keep()
        return in_time

    def _report(self, now: Instant) -> None:
        """Let the store know what fails, and how long the oldest due slot has been undecided; it is
        written only when it is news."""
        due = self._advance.oldest_due(now)
        late = None if due is None or now - due < _NOTEWORTHY else due
        report = (self.failures.encoded(), late)
        if self.leading and report != self._reported:
            self.services.states.report(self.services.leadership, failing=report[0], undecided=late)
            self._reported = report

    def send_plain(
        self, batches: Sequence[UnmanagedBatch], now: Instant, *, progress: Mapping[str, str] | None = None
    ) -> bool:
        """Send what entries without a policy have due, together with what is then known of them, and note
        ``progress`` when all of it is; False when another beat leads by now, or has sent it."""
        with self._until_fenced():
            for some in portions(batches):
                self.services.ledger.commit(self.services.leadership, Batch(unmanaged=some), now=now)
            if progress:
                self.services.ledger.commit(self.services.leadership, Batch(progress=progress), now=now)
        return self.leading

    @contextmanager
    def _until_fenced(self) -> Iterator[None]:
        """Stop leading when another beat does, or may."""
        try:
            yield
        except (FencedError, StaleWatermarkError):
            self.leading, self.epoch = False, -1
