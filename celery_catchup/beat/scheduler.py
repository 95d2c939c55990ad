"""The scheduler: Celery's hooks on one side, the engine on the other.

``celery -A proj beat -S celery_catchup.Scheduler``
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NoReturn

from celery import beat

from celery_catchup.beat.assembly import Assembly, assemble
from celery_catchup.beat.config_cache import read
from celery_catchup.beat.declared_entries import (
    BACKEND_CLEANUP,
    CatchupEntry,
    ResolvedEntries,
    build_entries,
    declaration_of,
    mistakes_by_entry,
)
from celery_catchup.beat.entry_sources import EntrySource, SettingsSource, open_source
from celery_catchup.beat.garbage_collection import collected_later, keep_what_is_there, let_go_of_it
from celery_catchup.beat.simulated_schedules import class_path
from celery_catchup.beat.startup_checks import app_warnings
from celery_catchup.beat.unmanaged import UnmanagedEntries
from celery_catchup.clock import Clock, SystemClock
from celery_catchup.config.app_settings import misplaced_settings, raw_settings, read_settings
from celery_catchup.config.configuration import Configuration
from celery_catchup.config.mistakes import Mistakes
from celery_catchup.engine import DispatchFailedError, Engine
from celery_catchup.errors import ConfigurationError, DriftError, SourceError, StoreError, UnfitStoreError
from celery_catchup.events import Event, RunDispatched, Ticked
from celery_catchup.events.log_lines import log_at_info, log_configuration_warnings, logfmt
from celery_catchup.events.recurring_problems import BeatProblems
from celery_catchup.model import Instant, Trigger, to_instant
from celery_catchup.store import UnmanagedBatch
from celery_catchup.store.connection import STORE_FAILS, explain, is_refusal, unverified
from celery_catchup.store.opening import masked_url, open_store

# Not Celery's get_logger: it would put the logger under "celery", out of reach of our own level.
logger = logging.getLogger(__name__)

_ZONE = "plain_zone"
"""Where the zone of the last beat stands, among what is known of the scheduler."""
_SENDING = ("apply_entry", "apply_async", "send_task")
"""Methods by which Celery's scheduler sends; a subclass that replaces one of them sends by itself."""
EX_CONFIG = 2
"""Exit code for a configuration that is not started with."""


class Scheduler(beat.Scheduler):  # type: ignore[misc]
    """A drop-in for Celery's scheduler that catches up what was missed.

    Entries without a policy behave as under Celery's `PersistentScheduler`; their state is
    in Redis. Nothing that Redis or the broker does ends a beat: it waits and goes on. Only one that
    has never been let in (a wrong password, missing rights, state of a newer version) does not start.
    """

    Entry = CatchupEntry
    clock: ClassVar[Clock] = SystemClock()
    # sentry-sdk takes a scheduler with this attribute for redbeat's and looks at the lock.
    lock_key = None

    def __init__(self, app: Any, *args: Any, lazy: bool = False, **kwargs: Any) -> None:
        self._work: Assembly | None = None
        self._plain: UnmanagedEntries | None = None
        self._source: EntrySource | None = None
        self._seen: dict[str, beat.ScheduleEntry] = {}
        self._refused: dict[str, str] = {}
        self._given: set[str] = set()
        self._ticking, self._interrupted, self._exit_code = False, False, 0
        self._term, self._welcome = -1, False
        self._troubles = BeatProblems(self._tell, logger=logger, monotonic=self.clock.monotonic)
        with collected_later():
            super().__init__(app, *args, lazy=lazy, **kwargs)
            if lazy:
                # The banner's: wrong configuration shows before anything starts, and without I/O.
                with _mistakes_end_it():
                    self._fill(app.conf.beat_schedule)
                    self._checked_configuration(keep=True)

    # -- set-up ----------------------------------------------------------------------------

    def setup_schedule(self) -> None:
        """Read the declared entries; nothing is asked of Redis before the first tick."""
        log_at_info()
        try:
            self._prepare()
        except SourceError as error:
            self._troubles.report("source", str(error))

    def _prepare(self, *, kept: Mapping[str, Any] | None = None) -> None:
        """Everything a tick needs; `SourceError` when the entries cannot be read now. ``kept`` are entries
        that a subclass has put there by itself."""
        with _mistakes_end_it():
            self._source = open_source(self.app, read_settings(self.app, only=["source"]).source)
            entries = self._source.entries() if kept is None else kept
            self._fill(entries, lenient=not isinstance(self._source, SettingsSource))
        self.install_default_entries(self.schedule)
        configuration, resolved = self._read_configuration()
        self._batch_size = configuration.settings.batch_size
        self._renewal = configuration.settings.lease_ttl.total_seconds() / 3
        poll = configuration.settings.poll_interval.total_seconds()
        self._longest = float(min(poll, self.max_interval, self._renewal))
        work = assemble(self.app, configuration, resolved, schedule=self.schedule, clock=self.clock)
        doubt = unverified(work.store.client)
        if doubt is not None:
            logger.warning(logfmt("Redis is not verified", detail=doubt))
        now = to_instant(self.clock.now())
        log_configuration_warnings(app_warnings(self.app, self.schedule, configuration, now=now))
        replaced = self._overridden(*_SENDING, "reserve")
        if resolved.declared and replaced:
            logger.warning(
                logfmt(
                    "Scheduler methods are not called for entries with a policy",
                    scheduler=class_path(self),
                    methods=", ".join(replaced),
                    entries=len(resolved.declared),
                )
            )
        self._declare(resolved, work)
        work.engine.services.events.subscribe(self._on_dispatched)
        work.serve_metrics(self.app, configuration.settings)
        self._work = work

    def _overridden(self, *names: str) -> list[str]:
        """Those of these methods of Celery's scheduler that a subclass has replaced."""
        return [
            name
            for name in names
            if name in vars(self) or getattr(type(self), name) is not getattr(beat.Scheduler, name)
        ]

    def _fill(self, entries: Mapping[str, Any], *, lenient: bool = False) -> None:
        """Let these be the schedule; the mapping itself stays, because others hold it. When ``lenient``,
        entries that cannot be used are left out, and fail."""
        refused: dict[str, str] | None = {} if lenient else None
        made = build_entries(entries, self._maybe_entry, refused=refused)
        self._refused = refused or {}
        self._given = {
            name for name, one in entries.items() if isinstance(one, Mapping) and one.get("last_run_at")
        }
        self.schedule = made

    def set_schedule(self, schedule: Mapping[str, beat.ScheduleEntry]) -> None:
        """Replace the entries; the mapping itself stays."""
        entries = dict(schedule)
        self.data.clear()
        self.data.update(entries)

    schedule = property(beat.Scheduler.get_schedule, set_schedule)

    def _declare(self, resolved: ResolvedEntries, work: Assembly, *, fresh: Collection[str] = ()) -> None:
        for warning in resolved.not_replayable:
            logger.warning(logfmt("Catch-up is off for an entry", detail=warning))
        log_configuration_warnings(resolved.warnings)
        plain = {name: self.schedule[name] for name in resolved.unmanaged}
        self._plain = UnmanagedEntries(
            plain,
            longest=self.max_interval,
            monotonic=self.clock.monotonic,
            failures=work.engine.failures,
            reserve=self._reserved,
            fresh=fresh,
            given=self._given,
            refused=self._refused,
        )
        self._seen = dict(self.schedule)
        self._term = -1

    def _reserved(self, entry: beat.ScheduleEntry) -> beat.ScheduleEntry:
        """The next instance of an entry, also in the schedule."""
        following = self.reserve(entry)
        if entry.name in self.schedule:
            self._seen[entry.name] = self.schedule[entry.name]
        return following

    def _follow_changes(self, work: Assembly) -> None:
        """Go on with other entries when the source has some, or somebody has changed the schedule at run
        time; what is wrong with an entry is its own trouble."""
        assert self._source is not None
        anew = self._source.has_changed()
        if not anew and self.schedule == self._seen:
            return
        before = self._seen
        try:
            changed = self._source.entries() if anew else dict(self.schedule)
            self._fill(changed, lenient=True)
            if anew:
                self.install_default_entries(self.schedule)
            _, resolved = self._lenient_configuration()
        except (SourceError, ConfigurationError) as error:
            self.schedule = before
            logger.error(logfmt("Entries changed, but cannot be used", error=str(error)))
            return
        logger.info(logfmt("Entries changed", entries=len(self.schedule)))
        # An entry that is put there at run time counts from its own last run, which is now, as Celery's does.
        put = {name for name, entry in self.schedule.items() if before.get(name) is not entry}
        self._declare(resolved, work, fresh=put if self._welcome and not anew else ())
        work.engine.redeclare(resolved.declared, resolved.records)

    def _on_dispatched(self, event: Event) -> None:
        if isinstance(event, RunDispatched):
            if event.run.trigger is Trigger.SCHEDULER:
                self._log_sent(event.entry)
            assert self._source is not None
            self._source.sent(event.entry, to_instant(self.clock.now()))

    def _log_sent(self, name: str) -> None:
        """The line of Celery's own scheduler; where sentry-sdk watches, that has written it already."""
        if self._work is not None and not self._work.sender.announced(Trigger.SCHEDULER):
            entry = self.schedule.get(name)
            beat.logger.info("Scheduler: Sending due task %s (%s)", name, entry.task if entry else "")

    def _read_configuration(self) -> tuple[Configuration, ResolvedEntries]:
        """The configuration and what it makes of the entries; with mistakes beat does not start."""
        with _mistakes_end_it():
            if isinstance(self._source, SettingsSource):
                return self._checked_configuration()
            return self._lenient_configuration()

    def _lenient_configuration(self) -> tuple[Configuration, ResolvedEntries]:
        """The same without the entries that have mistakes; those fail. `ConfigurationError` for others."""
        while True:
            try:
                return self._checked_configuration()
            except ConfigurationError as error:
                wrong = mistakes_by_entry(error.mistakes, self.schedule)
                if not wrong:
                    raise
                self._refused |= wrong
                for name in wrong:
                    del self.schedule[name]

    def _checked_configuration(self, *, keep: bool = False) -> tuple[Configuration, ResolvedEntries]:
        """The same; with mistakes a `ConfigurationError` that has all of them."""
        declared = {
            name: declaration_of(entry) for name, entry in self.schedule.items() if name != BACKEND_CLEANUP
        }
        raw, mistakes = raw_settings(self.app), Mistakes(misplaced_settings(self.app))
        with mistakes.collect():
            open_store(self.app, read_settings(self.app, only=["redis_url"])).close()
        with mistakes.collect():
            configuration, resolved = read(self.app, self.schedule, declared, raw, keep=keep)
        if mistakes:
            # A wrong URL is a mistake to both.
            raise ConfigurationError(dict.fromkeys(mistakes))
        housekeeping = (BACKEND_CLEANUP,) if BACKEND_CLEANUP in self.schedule else ()
        return configuration, replace(resolved, unmanaged=resolved.unmanaged + housekeeping)

    # -- ticking ---------------------------------------------------------------------------

    def tick(self, *_: Any, **__: Any) -> float:
        """Do what is due; the seconds to sleep. No trouble of Redis or the broker leaves it."""
        if self._interrupted:
            raise SystemExit  # sentry-sdk swallows the one that Celery raises while it looks at a log line
        self._ticking = True
        begun = self.clock.monotonic()
        try:
            with collected_later():
                wait = self._tick()
        except DriftError as error:
            self._refuse_to_start(str(error))
        except DispatchFailedError as error:
            # The lease wants to be renewed meanwhile, and other slots to be decided.
            return min(self._troubles.report("broker", str(error)), self._renewal)
        except SourceError as error:
            return self._troubles.report("source", str(error))
        except (*STORE_FAILS, StoreError) as error:
            if not self._welcome and (is_refusal(error) or isinstance(error, UnfitStoreError)):
                self._refuse_to_start(f"the store at {masked_url(self.app)} cannot be used: {explain(error)}")
            return self._troubles.report("redis", explain(error))
        except Exception as error:
            # Nobody expected it; a beat that ends for it would lose more than one that goes on.
            logger.debug("Tick failed", exc_info=True)
            return self._troubles.report("inner", explain(error))
        finally:
            self._ticking = False
        if not self._welcome:
            self._welcome = True
            keep_what_is_there(len(self.schedule))
        self._troubles.resolved("redis", "inner")
        leading = self._work is not None and self._work.engine.leading
        self._tell(Ticked(self.clock.monotonic() - begun, leading))
        return wait

    def _tell(self, event: Event) -> None:
        if self._work is not None:
            self._work.engine.services.events.emit(event)

    def _refuse_to_start(self, why: str) -> NoReturn:
        """End before anything was done, in one line: somebody has to mend something first."""
        sys.stderr.write(f"celery_catchup: {why}\n")
        self._exit_code = EX_CONFIG
        raise SystemExit(EX_CONFIG)

    def _tick(self) -> float:
        if self._work is None:
            # Without a source, this is a subclass whose setup_schedule does not call ours.
            self._prepare(kept=None if self._source else dict(self.schedule))
        assert self._work is not None
        work, engine = self._work, self._work.engine
        self._troubles.resolved("source")
        self._follow_changes(work)
        plain = self._plain
        assert plain is not None
        now = engine.now()
        if not self._welcome:
            work.check_namespace()
        if not engine.lead(now):
            return self._longest
        self._take_office(work, plain, now)
        engine.advance(now)
        engine.release(now)
        send = partial(self._send, now=now)
        sender = _AsOverridden(self, work) if self._overridden(*_SENDING) else work.sender
        plain.send_due(now, sender, send, limit=self._batch_size, has_time=engine.has_time)
        if self._source is not None:
            self._source.retire(now, engine.has_decided)
        work.fleet.look(engine.server_ms)
        work.reflect()
        self._troubles.resolved("broker")
        return self._sleep(engine, plain)

    def _send(self, batches: Sequence[UnmanagedBatch], now: Instant) -> bool:
        """Send what entries without a policy have due; False when another beat leads by now."""
        assert self._work is not None
        assert self._source is not None
        try:
            sent = self._work.engine.send_plain(batches, now)
        except BaseException:
            self._term = -1  # the reply may be lost: what is stored decides whether they are due again
            raise
        if sent:
            by_itself = self._overridden(*_SENDING)
            for batch in batches:
                if not by_itself:
                    self._log_sent(batch.name)
                self._source.sent(batch.name, now)
        return sent

    def _take_office(self, work: Assembly, plain: UnmanagedEntries, now: Instant) -> None:
        """Once per term: learn how to dispatch, and what is known of entries without a policy."""
        term = work.engine.terms
        if term == self._term:
            return
        work.probe(strict=not self._welcome)
        stored = work.states.load(names=plain.entries)
        was, zone = work.states.scheduler().get(_ZONE), self._zone()
        if was not in (None, zone):
            logger.warning(
                logfmt("Time zone changed, entries without a policy count from now", was=was, now=zone)
            )
        new = plain.load(
            work.states.last_runs(),
            now,
            decided=stored.decided,
            present=self.schedule,
            reset=was not in (None, zone),
        )
        changed = {} if was == zone else {_ZONE: zone}
        if not (new or changed) or work.engine.send_plain(new, now, progress=changed):
            plain.noted(new)
            self._term = term

    def _zone(self) -> str:
        """The zone that schedules are read in, as Celery's own scheduler compares it with the last one."""
        conf = self.app.conf
        zone = conf.timezone or ("UTC" if conf.enable_utc else "local")
        return f"{zone}" if conf.enable_utc else f"{zone} (enable_utc is off)"

    def _sleep(self, engine: Engine, plain: UnmanagedEntries) -> float:
        wakes = (engine.entries.next_wake(), plain.next_wake())
        following = min((wake for wake in wakes if wake is not None), default=None)
        if following is None:
            return self._longest
        return max(0.0, min((following - engine.now()) / 1000, self._longest))

    # -- the end ---------------------------------------------------------------------------

    def sync(self) -> None:
        """Nothing to do: everything decided is stored already."""

    def close(self) -> None:
        """Hand over and let go. Called twice on SIGTERM, the first time in the midst of a tick: what
        that is reading from is left to the second time."""
        work = self._work
        if work is not None:
            with contextlib.suppress(*STORE_FAILS):
                work.engine.resign()
            if self._source is not None:
                self._source.flush()
            if self._ticking:
                self._interrupted = True
            else:
                self._work = None
                work.close(interrupted=self._interrupted)
                let_go_of_it(len(self.schedule))
        super().close()
        if self._exit_code:
            # Celery takes an exit in a tick for the end of its loop, which would be a success.
            raise SystemExit(self._exit_code)

    @property
    def info(self) -> str:
        """What the banner shows below the scheduler's name."""
        return f"    . store -> {masked_url(self.app)}"


class _AsOverridden:
    """Sends through the methods of Celery's scheduler, for subclasses that have replaced some."""

    def __init__(self, scheduler: Scheduler, work: Assembly) -> None:
        self._scheduler, self._work = scheduler, work

    def unmanaged_messages(
        self, entry: beat.ScheduleEntry, *, slot: Instant, now: Instant
    ) -> tuple[str, int, list[str]]:
        """Send it now, as Celery would; nothing is left to be pushed."""
        self._scheduler.apply_entry(entry, producer=self._work.sender.producer())
        return "", 0, []


@contextlib.contextmanager
def _mistakes_end_it() -> Iterator[None]:
    """Mistakes in the configuration are written for people, and beat does not start."""
    try:
        yield
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(EX_CONFIG) from None
