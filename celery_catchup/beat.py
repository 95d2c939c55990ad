"""The scheduler: Celery's hooks on one side, the engine on the other.

``celery -A proj beat -S celery_catchup.Scheduler``
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NoReturn

from celery import beat

from celery_catchup.beatwork import Beatwork, assemble
from celery_catchup.clock import Clock, SystemClock
from celery_catchup.collecting import collected_later, keep_what_is_there, let_go_of_it
from celery_catchup.configuration import Configuration
from celery_catchup.declarations import HOUSEKEEPING, CatchupEntry, Division, made_entries
from celery_catchup.engine import DispatchFailedError, Engine
from celery_catchup.errors import ConfigurationError, DriftError, SourceError, StoreError, UnfitStoreError
from celery_catchup.events import Event, RunDispatched, Ticked
from celery_catchup.foresight import app_cautions
from celery_catchup.logs import logfmt, speak_at_info, warn_of
from celery_catchup.mistakes import Mistakes
from celery_catchup.model import Instant, to_instant
from celery_catchup.plain import PlainEntries
from celery_catchup.rereading import read
from celery_catchup.sources import SettingsSource, open_source
from celery_catchup.store import PlainBatch
from celery_catchup.store.connection import STORE_FAILS, explain, is_refusal, unverified
from celery_catchup.troubles import BeatTroubles
from celery_catchup.wiring import masked_url, misplaced_settings, open_store, raw_settings, read_settings

# Not Celery's get_logger: it would put the logger under "celery", out of reach of our own level.
logger = logging.getLogger(__name__)

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
        self._work: Beatwork | None = None
        self._plain: PlainEntries | None = None
        self._ticking, self._interrupted, self._exit_code = False, False, 0
        self._term, self._welcome = -1, False
        self._troubles = BeatTroubles(self._tell, logger=logger, monotonic=self.clock.monotonic)
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
        speak_at_info()
        try:
            self._prepare()
        except SourceError as error:
            self._troubles.happened("source", str(error))

    def _prepare(self) -> None:
        """Everything a tick needs; `SourceError` when the entries cannot be read now."""
        with _mistakes_end_it():
            self._source = open_source(self.app, read_settings(self.app, only=["source"]).source)
            self._fill(self._source.entries())
        self.install_default_entries(self.schedule)
        configuration, division = self._read_configuration()
        self._batch_size = configuration.settings.batch_size
        self._renewal = configuration.settings.lease_ttl.total_seconds() / 3
        poll = configuration.settings.poll_interval.total_seconds()
        self._longest = float(min(poll, self.max_interval, self._renewal))
        work = assemble(self.app, configuration, division, schedule=self.schedule, clock=self.clock)
        doubt = unverified(work.store.client)
        if doubt is not None:
            logger.warning(logfmt("Redis is not verified", detail=doubt))
        now = to_instant(self.clock.now())
        warn_of(app_cautions(self.app, self.schedule, configuration, now=now))
        self._declare(division, work)
        if not isinstance(self._source, SettingsSource):
            work.engine.office.events.subscribe(self._tell_source)
        work.serve_metrics(self.app, configuration.settings)
        self._work = work

    def _fill(self, entries: Mapping[str, Any]) -> None:
        """Let these be the schedule; the mapping itself stays, because others hold it."""
        made = made_entries(entries, self._maybe_entry)
        self.schedule.clear()
        self.schedule.update(made)

    def _declare(self, division: Division, work: Beatwork) -> None:
        for warning in division.warnings:
            logger.warning(logfmt("Catch-up is off for an entry", detail=warning))
        warn_of(division.cautions)
        plain = {name: self.schedule[name] for name in division.plain}
        self._plain = PlainEntries(
            plain,
            longest=self.max_interval,
            monotonic=self.clock.monotonic,
            failures=work.engine.failures,
        )
        self._term = -1

    def _follow_source(self, work: Beatwork) -> None:
        """Go on with other entries when the source has some; with mistakes in them, as before."""
        if not self._source.has_changed():
            return
        before = dict(self.schedule)
        try:
            self._fill(self._source.entries())
            self.install_default_entries(self.schedule)
            _, division = self._checked_configuration()
        except (SourceError, ConfigurationError) as error:
            self.schedule.clear()
            self.schedule.update(before)
            logger.error(logfmt("Entries changed, but cannot be used", error=str(error)))
            return
        logger.info(logfmt("Entries changed", entries=len(self.schedule)))
        self._declare(division, work)
        work.engine.redeclare(division.declared, division.records)

    def _tell_source(self, event: Event) -> None:
        if isinstance(event, RunDispatched):
            self._source.sent(event.entry, to_instant(self.clock.now()))

    def _read_configuration(self) -> tuple[Configuration, Division]:
        """The configuration and what it makes of the entries; with mistakes beat does not start."""
        with _mistakes_end_it():
            return self._checked_configuration()

    def _checked_configuration(self, *, keep: bool = False) -> tuple[Configuration, Division]:
        """The same; with mistakes a `ConfigurationError` that has all of them."""
        declared = {
            name: entry.declaration() for name, entry in self.schedule.items() if name != HOUSEKEEPING
        }
        raw, mistakes = raw_settings(self.app), Mistakes(misplaced_settings(self.app))
        with mistakes.gathered():
            open_store(self.app, read_settings(self.app, only=["redis_url"])).close()
        with mistakes.gathered():
            configuration, division = read(self.app, self.schedule, declared, raw, keep=keep)
        if mistakes:
            # A wrong URL is a mistake to both.
            raise ConfigurationError(dict.fromkeys(mistakes))
        housekeeping = (HOUSEKEEPING,) if HOUSEKEEPING in self.schedule else ()
        return configuration, replace(division, plain=division.plain + housekeeping)

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
            return min(self._troubles.happened("broker", str(error)), self._renewal)
        except SourceError as error:
            return self._troubles.happened("source", str(error))
        except (*STORE_FAILS, StoreError) as error:
            if not self._welcome and (is_refusal(error) or isinstance(error, UnfitStoreError)):
                self._refuse_to_start(f"the store at {masked_url(self.app)} cannot be used: {explain(error)}")
            return self._troubles.happened("redis", explain(error))
        except Exception as error:
            # Nobody expected it; a beat that ends for it would lose more than one that goes on.
            logger.debug("Tick failed", exc_info=True)
            return self._troubles.happened("inner", explain(error))
        finally:
            self._ticking = False
        if not self._welcome:
            self._welcome = True
            keep_what_is_there(len(self.schedule))
        self._troubles.over("redis", "inner")
        leading = self._work is not None and self._work.engine.leading
        self._tell(Ticked(self.clock.monotonic() - begun, leading))
        return wait

    def _tell(self, event: Event) -> None:
        if self._work is not None:
            self._work.engine.office.events.emit(event)

    def _refuse_to_start(self, why: str) -> NoReturn:
        """End before anything was done, in one line: somebody has to mend something first."""
        sys.stderr.write(f"celery_catchup: {why}\n")
        self._exit_code = EX_CONFIG
        raise SystemExit(EX_CONFIG)

    def _tick(self) -> float:
        if self._work is None:
            self._prepare()
        assert self._work is not None
        work, engine = self._work, self._work.engine
        self._troubles.over("source")
        self._follow_source(work)
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
        plain.send_due(now, work.sender, send, limit=self._batch_size, has_time=engine.has_time)
        self._source.retire(now, engine.has_decided)
        work.fleet.look(engine.server_ms)
        work.reflect()
        self._troubles.over("broker")
        return self._sleep(engine, plain)

    def _send(self, batches: Sequence[PlainBatch], now: Instant) -> bool:
        """Send what entries without a policy have due; False when another beat leads by now."""
        assert self._work is not None
        try:
            sent = self._work.engine.send_plain(batches, now)
        except BaseException:
            self._term = -1  # the reply may be lost: what is stored decides whether they are due again
            raise
        if sent:
            for batch in batches:
                self._source.sent(batch.name, now)
        return sent

    def _take_office(self, work: Beatwork, plain: PlainEntries, now: Instant) -> None:
        """Once per term: learn how to dispatch, and what is known of entries without a policy."""
        term = work.engine.terms
        if term == self._term:
            return
        work.probe(strict=not self._welcome)
        stored = work.states.load(names=plain.entries)
        new = plain.load(stored.last_runs, now, decided=stored.decided)
        if not new or work.engine.send_plain(new, now):
            plain.noted(new)
            self._term = term

    def _sleep(self, engine: Engine, plain: PlainEntries) -> float:
        wakes = (engine.roster.next_wake(), plain.next_wake())
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


@contextlib.contextmanager
def _mistakes_end_it() -> Iterator[None]:
    """Mistakes in the configuration are written for people, and beat does not start."""
    try:
        yield
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(EX_CONFIG) from None
