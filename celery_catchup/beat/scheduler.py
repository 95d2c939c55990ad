"""Connect Celery's hooks to the engine: ``celery -A proj beat -S celery_catchup.Scheduler``."""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NoReturn

from celery import beat

from celery_catchup.beat.assembly import Assembly, assemble
from celery_catchup.beat.catchup_entry import CatchupEntry, StoredScheduleEntry, begun_at, build_entries
from celery_catchup.beat.celery_internals import build_entry, missing_internals
from celery_catchup.beat.config_cache import load_entries
from celery_catchup.beat.entry_sources import EntrySource, ExpandingSource, SettingsSource, open_source
from celery_catchup.beat.for_each_values import AskedValues
from celery_catchup.beat.resolved_entries import ResolvedEntries
from celery_catchup.beat.simulated_schedules import class_path
from celery_catchup.beat.startup_checks import app_warnings
from celery_catchup.beat.unmanaged import UnmanagedEntries
from celery_catchup.clock import Clock, SystemClock
from celery_catchup.config.app_settings import misplaced_settings, raw_settings, read_settings
from celery_catchup.config.configuration import BACKEND_CLEANUP, Configuration, mistakes_by_entry
from celery_catchup.config.mistakes import Mistakes
from celery_catchup.engine import DispatchFailedError
from celery_catchup.errors import ConfigurationError, DriftError, SourceError, StoreError, UnfitStoreError
from celery_catchup.events import Event, RunDispatched, Ticked
from celery_catchup.events.log_lines import log_at_info, log_configuration_warnings, logfmt
from celery_catchup.events.recurring_problems import BeatProblems
from celery_catchup.model import Instant, Trigger, to_instant
from celery_catchup.store import UnmanagedBatch
from celery_catchup.store.connection import STORE_FAILS, explain, is_refusal, unverified
from celery_catchup.store.opening import masked_url, open_store, why_unusable

# Not Celery's get_logger: it would put the logger under "celery", where our own level has no effect.
logger = logging.getLogger(__name__)

_ZONE = "plain_zone"
"""The field in the scheduler's state that holds the time zone of the last beat."""
_SENDING = ("apply_entry", "apply_async", "send_task")
"""Methods by which Celery's scheduler sends. A subclass that overrides one sends by itself."""
_MOMENT = 0.02
"""Seconds that a standby waits at least before it looks at the leader again."""
EX_CONFIG = 2
"""Exit code for a configuration that beat does not start with."""


class Scheduler(beat.Scheduler):  # type: ignore[misc]
    """A drop-in for Celery's scheduler that catches up missed slots.

    Entries without a policy behave as under Celery's `PersistentScheduler`; their state is in Redis.
    No failure of Redis or the broker ends a running beat: it waits and retries. A beat that could never
    use its store (a wrong password, missing rights, state of a newer version) does not start.
    """

    Entry = CatchupEntry
    clock: ClassVar[Clock] = SystemClock()
    # sentry-sdk takes a scheduler with this attribute for redbeat's and looks at the lock.
    lock_key = None

    def __init__(self, app: Any, *args: Any, lazy: bool = False, **kwargs: Any) -> None:
        self._work: Assembly | None = None
        self._unmanaged: UnmanagedEntries | None = None
        self._source: ExpandingSource | None = None
        self._seen: dict[str, beat.ScheduleEntry] = {}
        self._refused: dict[str, str] = {}
        self._with_last_run: set[str] = set()
        self._ticking, self._interrupted, self._exit_code = False, False, 0
        self._term, self._started, self._ticked_at = -1, False, 0
        self._problems = BeatProblems(self._emit, logger=logger, monotonic=self.clock.monotonic)
        with _garbage_collector_paused():
            super().__init__(app, *args, lazy=lazy, **kwargs)
            if lazy:
                # For the banner: mistakes show before anything starts, and without I/O.
                with _exit_on_mistakes():
                    source = ExpandingSource(app, SettingsSource(app))
                    self._fill(source.entries())
                    self._checked_configuration(source, keep=True)

    # -- set-up ----------------------------------------------------------------------------

    def setup_schedule(self) -> None:
        """Read the declared entries; Redis is not used before the first tick."""
        log_at_info()
        try:
            self._prepare()
        except SourceError as error:
            self._problems.report("source", str(error))

    def _prepare(self, *, kept: Mapping[str, Any] | None = None) -> None:
        """Build everything a tick needs, from ``kept`` entries or those of the source; `SourceError` when
        that cannot be read now."""
        with _exit_on_mistakes():
            values = AskedValues(self.app, self.clock)
            source = open_source(self.app, read_settings(self.app, only=["source"]).source, values)
            self._source, lenient = source, not source.strict
            self._fill(source.entries() if kept is None else kept, lenient=lenient)
            self.install_default_entries(self.schedule)
            configuration, resolved = self._load_configuration(source, lenient=lenient)
        settings = configuration.settings
        self._batch_size = settings.batch_size
        self._renewal = settings.lease_ttl.total_seconds() / 4
        self._longest_sleep = float(
            min(settings.poll_interval.total_seconds(), self.max_interval, self._renewal)
        )
        work = assemble(self.app, configuration, resolved, schedule=self.schedule, clock=self.clock)
        values.failures = work.engine.failures
        self._log_warnings(configuration, resolved, work)
        self._declare(resolved, work)
        work.engine.services.events.subscribe(self._on_dispatched)
        work.serve_metrics(self.app, settings)
        self._work = work

    def _log_warnings(self, configuration: Configuration, resolved: ResolvedEntries, work: Assembly) -> None:
        if doubt := unverified(work.store.client):
            logger.warning(logfmt("Redis is not verified", detail=doubt))
        now = to_instant(self.clock.now())
        log_configuration_warnings(missing_internals())
        log_configuration_warnings(app_warnings(self.app, self.schedule, configuration, now=now))
        methods = self._overridden(*_SENDING, "reserve")
        if resolved.declared and methods:
            logger.warning(
                logfmt(
                    "Scheduler methods are not called for entries with a policy",
                    scheduler=class_path(self),
                    methods=", ".join(methods),
                    entries=len(resolved.declared),
                )
            )

    def _overridden(self, *names: str) -> list[str]:
        """Return those of these methods of Celery's scheduler that a subclass overrides."""
        return [
            name
            for name in names
            if name in vars(self) or getattr(type(self), name) is not getattr(beat.Scheduler, name)
        ]

    def _fill(self, entries: Mapping[str, Any], *, lenient: bool = False) -> None:
        """Fill the schedule. When ``lenient``, leave out entries that cannot be used; these fail alone."""
        refused: dict[str, str] | None = {} if lenient else None
        now = self.app.now()
        built = build_entries(
            entries, lambda name, fields: build_entry(self, name, begun_at(now, fields)), refused=refused
        )
        self._refused = refused or {}
        self._with_last_run = {
            name for name, one in entries.items() if isinstance(one, Mapping) and one.get("last_run_at")
        }
        self.schedule = built

    def set_schedule(self, schedule: Mapping[str, beat.ScheduleEntry]) -> None:
        """Replace the entries; the mapping itself stays, because others refer to it."""
        entries = dict(schedule)
        self.data.clear()
        self.data.update(entries)

    schedule = property(beat.Scheduler.get_schedule, set_schedule)

    def _declare(self, resolved: ResolvedEntries, work: Assembly, *, fresh: Collection[str] = ()) -> None:
        for reason in resolved.not_replayable:
            logger.warning(logfmt("Catch-up is off for an entry", detail=reason))
        log_configuration_warnings(resolved.warnings)
        self._unmanaged = UnmanagedEntries(
            {name: self.schedule[name] for name in resolved.unmanaged},
            self.max_interval,
            work.engine.failures,
            self.clock.monotonic,
            reserve=self._reserve_next,
            fresh=fresh,
            given=self._with_last_run,
            refused=self._refused,
        )
        self._seen = dict(self.schedule)
        self._term = -1

    def _reserve_next(self, entry: beat.ScheduleEntry) -> beat.ScheduleEntry:
        """Advance an entry to its next instance, which is not a change of the schedule."""
        following = self.reserve(entry)
        if entry.name in self.schedule:
            self._seen[entry.name] = self.schedule[entry.name]
        return following

    def _apply_changes(self, source: ExpandingSource, work: Assembly) -> None:
        """Replace the entries if the source has others, or the schedule was changed at run time; an entry
        with mistakes fails alone."""
        reload = source.has_changed()
        if not reload and self.schedule == self._seen:
            return
        before = self._seen
        try:
            self._fill(source.entries() if reload else dict(self.schedule), lenient=True)
            if reload:
                self.install_default_entries(self.schedule)
            _, resolved = self._load_configuration(source, lenient=True)
            work.stored_entries.rejoin()
        except (SourceError, ConfigurationError) as error:
            self.schedule = before
            logger.error(logfmt("Entries changed, but cannot be used", error=str(error)))
            return
        logger.info(logfmt("Entries changed", entries=len(self.schedule)))
        # An entry that is added at run time counts from its own last run, which is now, as Celery's does.
        added = {name for name, entry in self.schedule.items() if before.get(name) is not entry}
        self._declare(resolved, work, fresh=added if self._started and not reload else ())
        work.engine.redeclare(resolved.declared, resolved.records)

    def _load_configuration(
        self, source: ExpandingSource, *, lenient: bool
    ) -> tuple[Configuration, ResolvedEntries]:
        """Load the configuration; `ConfigurationError` with all mistakes. When ``lenient``, leave out the
        entries that have mistakes; these fail alone."""
        while True:
            try:
                return self._checked_configuration(source)
            except ConfigurationError as error:
                names = {**self.schedule, **source.templates}
                wrong = mistakes_by_entry(error.mistakes, names) if lenient else {}
                if not wrong:
                    raise
                self._refused |= wrong
                for name in wrong:
                    for one in source.refuse(name) if name in source.templates else [name]:
                        self.schedule.pop(one, None)

    def _checked_configuration(
        self, source: ExpandingSource, *, keep: bool = False
    ) -> tuple[Configuration, ResolvedEntries]:
        declared = source.declarations(
            {
                name: entry
                for name, entry in self.schedule.items()
                if name != BACKEND_CLEANUP and not isinstance(entry, StoredScheduleEntry)
            }
        )
        raw, mistakes = raw_settings(self.app), Mistakes(misplaced_settings(self.app))
        with mistakes.collect():
            open_store(self.app, read_settings(self.app, only=["redis_url"])).close()
        with mistakes.collect():
            configuration, resolved = load_entries(
                self.app, self.schedule, declared, raw, templates=source.templates, keep=keep
            )
        if mistakes:
            # Both report a wrong URL.
            raise ConfigurationError(dict.fromkeys(mistakes))
        cleanup = (BACKEND_CLEANUP,) if BACKEND_CLEANUP in self.schedule else ()
        return configuration, replace(resolved, unmanaged=resolved.unmanaged + cleanup)

    # -- ticking ---------------------------------------------------------------------------

    def tick(self, *_: Any, **__: Any) -> float:
        """Send what is due; return the seconds to sleep. No failure of Redis or the broker is raised."""
        if self._interrupted:
            raise SystemExit  # sentry-sdk swallows the one that Celery raises while it logs
        self._ticking = True
        begun = self.clock.monotonic()
        try:
            with _garbage_collector_paused():
                wait = self._tick()
        except DriftError as error:
            self._refuse_to_start(str(error))
        except DispatchFailedError as error:
            # The lease has to be renewed meanwhile, and other slots decided.
            return min(self._problems.report("broker", str(error)), self._renewal)
        except SourceError as error:
            return self._problems.report("source", str(error))
        except (*STORE_FAILS, StoreError) as error:
            if not self._started and (is_refusal(error) or isinstance(error, UnfitStoreError)):
                self._refuse_to_start(why_unusable(self.app, error))
            return self._problems.report("redis", explain(error))
        except Exception as error:
            # Unexpected; a beat that ended here would lose more slots than one that goes on.
            logger.debug("Tick failed", exc_info=True)
            return self._problems.report("inner", explain(error))
        finally:
            self._ticking = False
        self._started = True
        self._problems.resolved("redis", "inner")
        leading = self._work is not None and self._work.engine.leading
        self._emit(Ticked(self.clock.monotonic() - begun, leading))
        return wait

    def _emit(self, event: Event) -> None:
        if self._work is not None:
            self._work.engine.services.events.emit(event)

    def _refuse_to_start(self, why: str) -> NoReturn:
        """Exit before anything was done, with one line: waiting would not help."""
        sys.stderr.write(f"celery_catchup: {why}\n")
        self._exit_code = EX_CONFIG
        raise SystemExit(EX_CONFIG)

    def _tick(self) -> float:
        if self._work is None:
            # Without a source, this is a subclass whose setup_schedule does not call ours.
            self._prepare(kept=None if self._source else dict(self.schedule))
        assert self._work is not None
        assert self._source is not None
        work, engine, source = self._work, self._work.engine, self._source
        self._problems.resolved("source")
        self._apply_changes(source, work)
        assert self._unmanaged is not None
        unmanaged = self._unmanaged
        self._ticked_at = now = engine.now()
        if not self._started:
            work.check_namespace()
        revision = work.stored_entries.revision
        leads = engine.lead(now)
        if work.stored_entries.revision != revision:
            self._seen = dict(self.schedule)
        if not leads:
            return max(_MOMENT, min(self._longest_sleep, engine.services.leadership.until_stale()))
        self._start_term(work, unmanaged, now)
        engine.advance(now)
        try:
            engine.release(now)
        finally:  # receivers hear of overdue slots while the broker is down, too
            if work.notifier is not None:
                work.notifier.step(engine, now)
        send = partial(self._send, work, source, now=now)
        prepare = self._send_as_celery if self._overridden(*_SENDING) else work.sender.unmanaged_messages
        unmanaged.send_due(now, prepare, send, limit=self._batch_size, has_time=engine.has_time)
        source.disable_expired(now, engine.has_decided)
        work.worker_inspection.poll(engine.server_ms)
        work.write_watermark_file()
        self._problems.resolved("broker")
        wakes = [wake for wake in (engine.entries.next_wake(), unmanaged.next_wake()) if wake is not None]
        until_next = (min(wakes) - engine.now()) / 1000 if wakes else self._longest_sleep
        return max(0.0, min(until_next, self._longest_sleep))

    def _send_as_celery(
        self, entry: beat.ScheduleEntry, *, slot: Instant, now: Instant
    ) -> tuple[str, int, list[str]]:
        """Send through Celery's methods, for subclasses that override some; no message is left to push."""
        assert self._work is not None
        self.apply_entry(entry, producer=self._work.sender.producer())
        return "", 0, []

    def _send(
        self, work: Assembly, source: EntrySource, batches: Sequence[UnmanagedBatch], *, now: Instant
    ) -> bool:
        """Send the runs of entries without a policy; False when another beat leads."""
        try:
            sent = work.engine.send_unmanaged(batches, now)
        except BaseException:
            self._term = -1  # the reply may be lost: the stored state decides whether they are due again
            raise
        if sent:
            logged_by_celery = self._overridden(*_SENDING)
            for batch in batches:
                if not logged_by_celery:
                    self._log_sent(batch.name)
                source.record_sent(batch.name, now)
        return sent

    def _start_term(self, work: Assembly, unmanaged: UnmanagedEntries, now: Instant) -> None:
        """Once per term: probe the server, and load the state of entries without a policy."""
        term = work.engine.terms
        if term == self._term:
            return
        work.probe(strict=not self._started)
        stored = work.states.load(names=unmanaged.entries)
        was, zone = work.states.scheduler().get(_ZONE), self._zone()
        reset = was not in (None, zone)
        if reset:
            logger.warning(
                logfmt("Time zone changed, entries without a policy count from now", was=was, now=zone)
            )
        new = unmanaged.load(
            work.states.last_runs(), now, decided=stored.decided, present=self.schedule, reset=reset
        )
        changed = {} if was == zone else {_ZONE: zone}
        if not (new or changed) or work.engine.send_unmanaged(new, now, progress=changed):
            unmanaged.mark_stored(new)
            self._term = term

    def _zone(self) -> str:
        """Return the zone of schedules, which Celery's own scheduler compares with the last one, too."""
        conf = self.app.conf
        zone = conf.timezone or ("UTC" if conf.enable_utc else "local")
        return f"{zone}" if conf.enable_utc else f"{zone} (enable_utc is off)"

    def _on_dispatched(self, event: Event) -> None:
        if isinstance(event, RunDispatched):
            if event.run.trigger is Trigger.SCHEDULER:
                self._log_sent(event.entry)
            assert self._source is not None
            self._source.record_sent(event.entry, self._ticked_at)

    def _log_sent(self, name: str) -> None:
        """Log the line of Celery's own scheduler, unless that has logged it already for sentry-sdk."""
        if self._work is not None and not self._work.sender.announced(Trigger.SCHEDULER):
            entry = self.schedule.get(name)
            beat.logger.info("Scheduler: Sending due task %s (%s)", name, entry.task if entry else "")

    # -- the end ---------------------------------------------------------------------------

    def sync(self) -> None:
        """Do nothing: every decision is stored already."""

    def close(self) -> None:
        """Resign and close the connections. On SIGTERM Celery calls it twice, the first time during a
        tick, whose connections are then left to the second call."""
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
        super().close()
        if self._exit_code:
            # Celery takes an exit in a tick for the end of its loop, which would be a success.
            raise SystemExit(self._exit_code)

    @property
    def info(self) -> str:
        """Return what the banner shows below the scheduler's name."""
        return f"    . store -> {masked_url(self.app)}"


@contextlib.contextmanager
def _exit_on_mistakes() -> Iterator[None]:
    """Print mistakes in the configuration, and do not start."""
    try:
        yield
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(EX_CONFIG) from None


@contextlib.contextmanager
def _garbage_collector_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector; with 10,000 entries the first tick comes a fifth sooner."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
