"""The engine: one object per beat, driven tick by tick."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from celery_catchup.config.drift import digest
from celery_catchup.config.settings import FirstStart, Settings
from celery_catchup.engine.advance import Advance
from celery_catchup.engine.backfill_runner import BackfillRunner
from celery_catchup.engine.catchup import Catchup
from celery_catchup.engine.deadlines import Deadlines
from celery_catchup.engine.failures import Failures, describe
from celery_catchup.engine.housekeeping import Housekeeping
from celery_catchup.engine.releases import Releases
from celery_catchup.engine.revocations import Revocations
from celery_catchup.engine.services import DispatchFailedError, Services, StoredChanges
from celery_catchup.engine.standby import Standby
from celery_catchup.engine.state_loss import ELSEWHERE, EMPTIED, WENT_BACK, StateLoss
from celery_catchup.engine.takeover import (
    SKEW,
    LoadedEntries,
    adopt,
    check_drift,
    load_entries,
    read_store,
    report_moved_schedules,
)
from celery_catchup.engine.tracked_entries import Declared, TrackedEntries
from celery_catchup.errors import StoreError
from celery_catchup.events import Leading
from celery_catchup.model import Instant, to_instant, to_milliseconds
from celery_catchup.store import Batch, FencedError, StaleWatermarkError, StoredState, Term, UnmanagedBatch
from celery_catchup.store.error_advice import STORE_FAILS
from celery_catchup.store.states import held_entries
from celery_catchup.store.store import portions, read_json

_REPORTED_AFTER = 10_000
"""Milliseconds after which an undecided due slot is reported to the store."""


class Engine:
    """Leads when it may, and then decides and dispatches every slot that is due.

    Every method may raise a Redis error. Nothing is lost then: the next tick continues at the same slot.
    `FencedError` is handled here: a beat that lost the lead stands by.
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
        self.services, self.settings, self.namespace = services, settings, namespace
        self._declared = {one.name: one for one in declared}
        self._stored: dict[str, Declared] = {}
        self._reload_stored = False
        """Whether the server has lost writes since the stored entries were read."""
        self._refused: dict[str, str] = {}
        self.records, self._destination, self._redeclared = records, destination, False
        self._declares = digest(records, destination)
        self.leading, self.epoch, self.terms = False, -1, 0
        self._version = -1
        self.generation = 0
        """Grows whenever entries are read again."""
        self._latest: Instant = 0
        self._reread_at: Instant | None = None
        self._settled_at: Instant | None = None
        """The last tick, if it has decided every slot up to then."""
        self._unreadable: frozenset[str] = frozenset()
        self._reported: tuple[Mapping[str, str], Instant | None] | None = None
        self._term: Term
        self.failures = Failures(services.events)
        self._standby = Standby(services, namespace=namespace)
        self._loss = StateLoss(services.events, services.read_watermark_file)
        self._backfills = BackfillRunner(services, self.failures, namespace=namespace)
        self._releases = Releases(services, settings)
        self.housekeeping = Housekeeping(services, settings)
        self.deadlines = Deadlines(services.deadlines, services.leadership, services.events)
        self._revocations = Revocations(services)
        self.catchup = Catchup(
            services.states,
            services.events,
            services.clock.monotonic,
            settings.max_runs,
            None if settings.rate_limit is None else to_milliseconds(settings.rate_limit),
            namespace,
            services.leadership.keep,
        )
        self._advance = Advance(services, self.catchup, self._revocations, settings, namespace, self.failures)

    @property
    def declared(self) -> Sequence[Declared]:
        """Every entry with a policy; a declared one wins over a stored one of the same name."""
        return tuple((self._stored | self._declared).values())

    @property
    def entries(self) -> TrackedEntries:
        """Every entry with its state."""
        return self._advance.entries

    def now(self) -> Instant:
        """Return the present as an instant."""
        return to_instant(self.services.clock.now())

    def certain(self) -> dict[str, Instant]:
        """Return up to where each entry is decided."""
        return self.entries.certain(self._advance.watermark)

    @property
    def server_ms(self) -> int:
        """The server's clock, as of this tick."""
        return self._term.server_ms

    @property
    def died(self) -> int:
        """The number of runs that ever became dead letters, as of this tick."""
        return self._term.died

    # -- lead ------------------------------------------------------------------------------

    def lead(self, now: Instant) -> bool:
        """Renew the lease or try to get it; take over when it is new or something changed."""
        self._check_clock(now)
        # Entries that were declared again, or could not be read, may have slots since the last tick.
        known = self.leading and self._version >= 0 and self._reread_at is None
        watermark = None
        if known:
            watermark = now if self.entries.settled(now) else self._settled_at
        term = self.services.leadership.lead(now=now, watermark=watermark)
        if term.lost:
            self._loss.notice(self.entries, self._advance.watermark, leading=self.leading)
            # Until everything is read again, the store may be behind what this beat has decided.
            self.epoch = self._version = -1
            self._settled_at = watermark = None
            self._reload_stored = True
        changes = self._read_stored_entries(term)
        if not term.leads:
            self._loss.report(ELSEWHERE)
            self._stand_by(term.owner)
            return False
        if watermark is not None:
            self._advance.watermark = watermark
        self._term = term
        if (term.epoch, term.version) != (self.epoch, self._version):
            try:
                self._take_over(term.epoch, term.version, now)
            except FencedError:
                self._stand_by("another beat")
        elif changes is not None:
            self._version = -1  # if this fails, everything is read again
            try:
                self._use(changes, now)
            except FencedError:
                self._stand_by("another beat")
            else:
                self._version = term.version
        return self.leading

    def _read_stored_entries(self, term: Term) -> StoredChanges | None:
        """Read the stored entries that changed since the last tick; a standby does, too, so that it can take
        over at once. Return None without changes."""
        source = self.services.stored_entries
        if term.entries == source.revision and not self._reload_stored:
            return None
        changes = source.read_changes(term.entries, reload=self._reload_stored)
        if self._reload_stored:
            self._refused, self._reload_stored = {}, False
        self._stored |= {one.name: one for one in changes.declared}
        for name in (*changes.gone, *changes.refused):
            self._stored.pop(name, None)
        for name in (*changes.gone, *(one.name for one in changes.declared)):
            self._refused.pop(name, None)
        self._refused |= changes.refused
        self.housekeeping.keep_for(changes.longest_window)
        return changes

    def _use(self, changes: StoredChanges, now: Instant) -> None:
        """Let the changed entries take part, without those that did not change."""
        services, present = self.services, [one for one in changes.declared if one.name not in self._declared]
        gone = [name for name in (*changes.gone, *changes.refused) if name not in self._declared]
        names = [*(one.name for one in present), *gone]
        stored = services.states.load(names=names)
        match = self.settings.first_start is FirstStart.MATCH
        loaded = load_entries(present, stored, now=now, match_first=match, events=services.events)
        if not adopt(services.states, services.leadership, loaded, stored, declares=self._declares):
            self._stand_by("another beat")
            return
        self.entries.replace(loaded.entries.by_name, names)
        self._track_deadlines(now)
        self.catchup.carry_over(self.entries, now, only=set(names))
        for name in names:
            self.failures.over(name)
        for name, reason in changes.refused.items():
            self.failures.record(name, reason, now=now)
        for name, error in loaded.unreadable.items():
            self.failures.record(name, describe(error), now=now)

    def _check_clock(self, now: Instant) -> None:
        """Read everything again when the clock went back, and when an unreadable entry is to be retried.

        An entry that was decided up to a future time would be silent until then.
        """
        if now < self._latest - SKEW:
            self.catchup.clear()
            self._version = -1
        if self._reread_at is not None and self._reread_at <= now:
            self._version = -1
        self._latest = now

    def _take_over(self, epoch: int, version: int, now: Instant) -> None:
        services, new_term = self.services, epoch != self.epoch
        stored = read_store(services.states, resign=self.resign)
        services.leadership.keep()
        loaded = load_entries(
            self.declared,
            stored,
            now=now,
            match_first=self.settings.first_start is FirstStart.MATCH,
            events=services.events,
            remembered=self._loss.remembered(fresh=stored.fresh),
        )
        accepted = services.states.accepted(by_script=True) if new_term else {}
        if new_term:
            check_drift(
                loaded.entries,
                stored,
                self.records,
                accepted=accepted,
                on_drift=self.settings.on_drift,
                events=services.events,
            )
        adopted = adopt(services.states, services.leadership, loaded, stored, declares=self._declares)
        # Entries that change during a term come from a source that was changed on purpose.
        if adopted and (new_term or self._redeclared):
            adopted = accepted == self.records or services.states.accept(self.records, by=services.leadership)
            self._redeclared = False
        if not adopted:
            self._stand_by("another beat")
            return
        if new_term:
            report_moved_schedules(loaded.entries, stored, services.events)
            self.failures.clear()
            self._reported = None
        for name in (name for name in self._refused if name not in self.failures):
            self.failures.record(name, self._refused[name], now=now)
        self._reread_at = self._retry_unreadable(loaded, stored, now)
        if new_term:
            services.active_limit.set(services.leadership, self.settings.max_active)
        self._backfills.load()
        self.catchup.carry_over(loaded.entries if not new_term else TrackedEntries({}), now)
        self._advance.entries, self._advance.watermark = loaded.entries, loaded.watermark
        if new_term:
            self.deadlines.load()
        self._track_deadlines(now)
        self.epoch, self._version, self.leading = epoch, version, True
        self._settled_at = None
        self._standby.over()
        self._loss.report(EMPTIED if stored.fresh else WENT_BACK)
        held = held_entries(stored)
        self._advance.report_holds({name: held[name] for name in held if name in self.entries.by_name})
        if new_term:
            self.terms += 1
            self._revocations.expect()
            services.events.emit(Leading(epoch))

    def _track_deadlines(self, now: Instant) -> None:
        self.generation += 1
        self.deadlines.track(self.entries, (one.name for one in self.declared), now=now)

    def _retry_unreadable(self, loaded: LoadedEntries, stored: StoredState, now: Instant) -> Instant | None:
        """Return when to read unreadable entries again; None without any.

        The watermark stays where it is for them, because their due slots are unknown. Those that are
        paused, or can be read again, do not fail any more.
        """
        paused = {name for name, text in stored.paused.items() if (read_json(text) or {}).get("paused")}
        for name in {*paused, *(self._unreadable - set(loaded.unreadable))}:
            self.failures.over(name)
        self._unreadable = frozenset(loaded.unreadable)
        delays = [
            self.failures.record(name, describe(error), now=now, due=loaded.watermark)
            for name, error in loaded.unreadable.items()
            if name not in paused
        ]
        return now + min(delays) if delays else None

    def _stand_by(self, leader: str) -> None:
        self._stop_leading()
        self.catchup.clear()
        self._standby.watch(leader, self._declares)

    def _stop_leading(self) -> None:
        self.leading, self.epoch, self._settled_at = False, -1, None

    def redeclare(self, declared: Sequence[Declared], records: Mapping[str, str]) -> None:
        """Use other entries from the next tick on; a running catch-up continues."""
        self._declared = {one.name: one for one in declared}
        self.records, self._version, self._redeclared = records, -1, True
        self._declares = digest(records, self._destination)
        self.failures.clear()

    def resign(self) -> None:
        """Stop leading, so that a standby can take over at once."""
        self._stop_leading()
        self.services.leadership.resign()

    # -- advance ---------------------------------------------------------------------------

    def advance(self, now: Instant) -> None:
        """Decide the due slots: live ones of all entries first, then a bounded part of the catch-up."""
        if not self.leading:
            return
        self._settled_at = None
        with self._until_fenced():
            try:
                self._advance.advance(now)
                self._settled_at = now if self.entries.settled(now) else None
            except (FencedError, StaleWatermarkError, StoreError, *STORE_FAILS):
                raise
            except Exception:
                self._report(now)  # the tick ends here, and its undecided slots must be visible
                raise
            self.services.leadership.keep()

    # -- release ---------------------------------------------------------------------------

    def release(self, now: Instant) -> None:
        """Send what was decided but is not with the broker yet, then continue backfills."""
        if not self.leading:
            return
        with self._until_fenced():
            self._revocations.send()
            entries, posted = self.entries.names, self._advance.posted
            outbox = self._advance.unpublished
            try:
                self._releases.release(self._term, entries, now, outbox=outbox, posted=posted)
            except DispatchFailedError:  # while the broker is down, slots become overdue
                self._backfills.advance(self.entries.by_name, now)
                self.deadlines.step(now)
                raise
            self._advance.unpublished = False
            self._backfills.advance(self.entries.by_name, now, live_is_due=self._live_is_due)
            self.housekeeping.step(self.server_ms, now, entries=self.entries.names)
            self.deadlines.step(now)
            self._report(now)

    def _live_is_due(self) -> bool:
        return self.entries.oldest_due(self.now()) is not None

    def has_decided(self, name: str) -> bool:
        """Tell whether an entry has no slot left, missed or to come; one without a policy has none."""
        tracked = self.entries.by_name.get(name)
        if tracked is None:
            return name not in self._unreadable
        return tracked.wake_at is None and tracked.catchup_until is None and not tracked.state.paused

    def has_time(self) -> bool:
        """Tell whether this tick may publish more: this beat leads, and did not just have to renew its lease.

        After a third of the lease the rest is left to the next tick, live slots first.
        """
        in_time = False
        if self.leading:
            with self._until_fenced():
                in_time = not self.services.leadership.keep()
        return in_time

    def _report(self, now: Instant) -> None:
        """Write to the store what fails, and since when the oldest due slot is undecided, if that changed."""
        due = self._advance.oldest_due(now)
        late = None if due is None or now - due < _REPORTED_AFTER else due
        report = (self.failures.encoded(), late)
        if self.leading and report != self._reported:
            self.services.states.report_failures(self.services.leadership, failing=report[0], undecided=late)
            self._reported = report

    def send_unmanaged(
        self, batches: Sequence[UnmanagedBatch], now: Instant, *, progress: Mapping[str, str] | None = None
    ) -> bool:
        """Send the due messages of entries without a policy, then store ``progress``; return False when
        another beat leads or has sent them."""
        commit, leadership = self.services.ledger.commit, self.services.leadership
        with self._until_fenced():
            for some in portions(batches):
                commit(leadership, Batch(unmanaged=some), now=now)
            if progress:
                commit(leadership, Batch(progress=progress), now=now)
        return self.leading

    @contextmanager
    def _until_fenced(self) -> Iterator[None]:
        """Stop leading when another beat does, or may."""
        try:
            yield
        except (FencedError, StaleWatermarkError):
            self._stop_leading()
