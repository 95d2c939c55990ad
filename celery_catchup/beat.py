"""The scheduler: Celery's hooks on one side, the engine on the other.

``celery -A proj beat -S celery_catchup.Scheduler``
"""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import Any, ClassVar

from celery import beat
from celery.utils.log import get_logger
from redis.exceptions import RedisError

from celery_catchup.beatwork import Beatwork, assemble
from celery_catchup.clock import Clock, SystemClock
from celery_catchup.configuration import Configuration, load
from celery_catchup.declarations import CatchupEntry, Division, divide
from celery_catchup.engine import DispatchFailedError
from celery_catchup.errors import ConfigurationError, DriftError, StoreError
from celery_catchup.logs import logfmt, speak_at_info
from celery_catchup.model import Instant
from celery_catchup.plain import PlainEntries
from celery_catchup.store.connection import explain
from celery_catchup.troubles import Trouble
from celery_catchup.wiring import masked_url, raw_settings

logger: logging.Logger = get_logger("celery_catchup.beat")

EX_CONFIG = 2
"""Exit code for a configuration that is not started with."""

# Celery's own default entry; a policy for "every other entry" does not mean it.
_HOUSEKEEPING = "celery.backend_cleanup"


class Scheduler(beat.Scheduler):  # type: ignore[misc]
    """A drop-in for Celery's scheduler that catches up what was missed.

    Entries without a policy behave as under Celery's `PersistentScheduler`; their state is
    in Redis. Nothing that Redis or the broker does ends a beat: it waits and goes on.
    """

    Entry = CatchupEntry
    clock: ClassVar[Clock] = SystemClock()
    # sentry-sdk takes a scheduler with this attribute for redbeat's and looks at the lock.
    lock_key = None

    def __init__(self, app: Any, *args: Any, lazy: bool = False, **kwargs: Any) -> None:
        self._work: Beatwork | None = None
        self._plain: PlainEntries | None = None
        self._epoch = -1
        self._store_trouble = Trouble("Redis cannot be used", logger=logger, monotonic=self.clock.monotonic)
        self._broker_trouble = Trouble("Broker cannot be used", logger=logger, monotonic=self.clock.monotonic)
        super().__init__(app, *args, lazy=lazy, **kwargs)
        if lazy:
            # The banner's scheduler: wrong configuration shows before anything starts, and without I/O.
            self.merge_inplace(app.conf.beat_schedule)
            self._read_configuration()

    # -- set-up ----------------------------------------------------------------------------

    def setup_schedule(self) -> None:
        """Read the declared entries; nothing is asked of Redis before the first tick."""
        speak_at_info()
        self.merge_inplace(self.app.conf.beat_schedule)
        self.install_default_entries(self.schedule)
        configuration, division = self._read_configuration()
        for warning in division.warnings:
            logger.warning(logfmt("Catch-up is off for an entry", detail=warning))
        self._poll = configuration.settings.poll_interval.total_seconds()
        self._batch_size = configuration.settings.batch_size
        self._work = assemble(self.app, configuration, division, schedule=self.schedule, clock=self.clock)
        self._plain = PlainEntries(
            {name: self.schedule[name] for name in division.plain}, longest=self.max_interval
        )

    def _read_configuration(self) -> tuple[Configuration, Division]:
        """The configuration and what it makes of the entries; with mistakes beat does not start."""
        declared = {
            name: entry.declaration() for name, entry in self.schedule.items() if name != _HOUSEKEEPING
        }
        timezone = self.app.timezone
        try:
            configuration = load(raw_settings(self.app), declared=declared, timezone=timezone)
            division = divide(self.schedule, configuration, timezone=timezone)
        except ConfigurationError as error:
            sys.stderr.write(f"{error}\n")
            raise SystemExit(EX_CONFIG) from None
        housekeeping = (_HOUSEKEEPING,) if _HOUSEKEEPING in self.schedule else ()
        return configuration, Division(division.declared, division.plain + housekeeping, division.warnings)

    # -- ticking ---------------------------------------------------------------------------

    def tick(self, *_: Any, **__: Any) -> float:
        """Do what is due; the seconds to sleep. No trouble of Redis or the broker leaves it."""
        try:
            wait = self._tick()
        except DriftError as error:
            sys.stderr.write(f"celery_catchup: {error}\n")
            raise SystemExit(EX_CONFIG) from None
        except DispatchFailedError as error:
            return self._broker_trouble.happened(str(error))
        except (RedisError, OSError, StoreError) as error:
            return self._store_trouble.happened(explain(error))
        self._store_trouble.over()
        return wait

    def _tick(self) -> float:
        work, plain = self._work, self._plain
        assert work is not None
        assert plain is not None
        engine = work.engine
        now = engine.now()
        if not engine.lead(now):
            return float(min(self._poll, self.max_interval))
        self._take_office(work, plain, now)
        engine.advance(now)
        plain.send_due(
            now, work.sender, lambda batches: engine.send_plain(batches, now), limit=self._batch_size
        )
        engine.release(now)
        work.roll.call()
        self._broker_trouble.over()
        return self._sleep(now)

    def _take_office(self, work: Beatwork, plain: PlainEntries, now: Instant) -> None:
        """Once per term: learn how to dispatch, and what is known of entries without a policy."""
        epoch = work.engine.epoch
        if epoch == self._epoch:
            return
        work.probe()
        new = plain.load(work.states.load().last_runs, now)
        if not new or work.engine.send_plain(new, now):
            plain.noted(new)
            self._epoch = epoch

    def _sleep(self, now: Instant) -> float:
        assert self._work is not None
        assert self._plain is not None
        engine = self._work.engine
        wakes = (engine.roster.next_wake(), self._plain.next_wake())
        following = min((wake for wake in wakes if wake is not None), default=None)
        longest = float(min(self._poll, self.max_interval))
        if following is None:
            return longest
        return max(0.0, min((following - engine.now()) / 1000, longest))

    # -- the end ---------------------------------------------------------------------------

    def sync(self) -> None:
        """Nothing to do: everything decided is stored already."""

    def close(self) -> None:
        """Hand over and let go. Called twice on SIGTERM, the first time in the midst of a tick."""
        work, self._work = self._work, None
        if work is not None:
            with contextlib.suppress(RedisError, OSError):
                work.engine.resign()
            work.close()
        super().close()

    @property
    def info(self) -> str:
        """What the banner shows below the scheduler's name."""
        return f"    . store -> {masked_url(self.app)}"
