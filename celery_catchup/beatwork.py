"""A beat's parts, put together: store, dispatcher and engine for one app."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celery.beat import ScheduleEntry
from kombu.exceptions import OperationalError

from celery_catchup.clock import Clock
from celery_catchup.configuration import Configuration
from celery_catchup.declarations import Division
from celery_catchup.dispatch import Dispatcher
from celery_catchup.engine import Declared, Engine, Office, Reaper
from celery_catchup.errors import UnfitStoreError
from celery_catchup.logs import logfmt, process_events
from celery_catchup.metrics import served
from celery_catchup.mirror import Mirror
from celery_catchup.model import Instant, PlannedRun, to_milliseconds
from celery_catchup.policy import OverlapPolicy
from celery_catchup.settings import Settings
from celery_catchup.store import Backfills, Leadership, Ledger, Recovery, Retention, States, Template
from celery_catchup.store.connection import evicted
from celery_catchup.store.workers import Workers
from celery_catchup.wiring import StoreHandle, open_store

logger = logging.getLogger(__name__)

_PATIENCE = 60.0
"""Seconds that workers have to start before beat asks for them."""
_LATELY = 10 * 60 * 1000
"""Milliseconds in which a worker with the plugin must have been seen to count; it says so each minute."""


@dataclass
class Beatwork:
    """What a beat works with; nothing is sent before the first tick."""

    store: StoreHandle
    states: States
    engine: Engine
    sender: Dispatcher
    roll: Roll
    allow_eviction: bool = False
    mirror: Mirror | None = None
    _told: str = ""
    _warned: str | None = None
    _metrics: Any = None

    def serve_metrics(self, app: Any, settings: Settings) -> None:
        """Answer Prometheus until the end, when the settings want it."""
        self._metrics = served(app, settings, clock=self.engine.office.clock)

    def probe(self, *, strict: bool = False) -> None:
        """Find out whether the server keeps what it is given, and how messages reach the broker;
        say it when it is news. When ``strict``, a server that may throw our state away is refused."""
        danger = evicted(self.store.client)
        if danger is not None and danger.deadly and strict and not self.allow_eviction:
            raise UnfitStoreError(f"{danger.says}, or catchup_allow_eviction to True")
        if danger is not None and self._warned != danger.says:
            logger.warning(logfmt("State may be evicted", detail=danger.says))
        self._warned = None if danger is None else danger.says
        self.sender.probe()
        if self._told != self.sender.reason:
            self._told = self.sender.reason
            logger.info(logfmt("Dispatch", mode=self.sender.mode, detail=self.sender.reason))

    def reflect(self) -> None:
        """Write down elsewhere what is decided, if somebody wants that."""
        if self.mirror is not None and self.engine.leading:
            self.mirror.keep(self.engine.certain)

    def close(self, *, interrupted: bool = False) -> None:
        """Let go of all connections; ``interrupted`` as for `Dispatcher.close`."""
        if self._metrics is not None:
            self._metrics.close()
        self.sender.close(interrupted=interrupted)
        self.store.close()


def assemble(
    app: Any,
    configuration: Configuration,
    division: Division,
    *,
    schedule: Mapping[str, ScheduleEntry],
    clock: Clock,
) -> Beatwork:
    """The parts of a beat for this app and its entries."""
    settings = configuration.settings
    store = open_store(app, settings)
    states = States(store.client, store.scripts, store.keys)
    ttl = to_milliseconds(settings.lease_ttl)
    sender = Dispatcher(
        app,
        state=store.client,
        state_db=store.db,
        mark_tasks=settings.mark_tasks,
        checkins=settings.checkins,
    )
    leadership = Leadership(store.scripts, store.keys, clock=clock, ttl_ms=ttl)
    events = process_events()
    workers = Workers(store.client, store.scripts, store.keys)
    roll = Roll(workers, clock, needed=any(needs_the_plugin(one) for one in division.declared))
    recovery = Recovery(store.client, store.scripts, store.keys, db=store.db)
    retention = Retention(store.client, store.scripts, store.keys)
    where = settings.mirror_file and Path(settings.mirror_file)
    mirror = Mirror(where, namespace=store.namespace, monotonic=clock.monotonic) if where else None

    office = Office(
        leadership=leadership,
        states=states,
        ledger=Ledger(store.client, store.scripts, store.keys, db=store.db),
        dispatch=_Dispatch(app, sender, schedule),
        clock=clock,
        events=events,
        reaper=Reaper(recovery, retention, leadership, events, someone_claims=roll.someone_claims),
        backfills=Backfills(store.client, store.scripts, store.keys, db=store.db),
        elsewhere=mirror.recall if mirror else lambda: None,
    )
    engine = Engine(
        office, division.declared, settings=settings, namespace=store.namespace, records=division.records
    )
    return Beatwork(store, states, engine, sender, roll, settings.allow_eviction, mirror)


def needs_the_plugin(declared: Declared) -> bool:
    """Whether the entry's policy counts on workers to say when a run has ended."""
    policy = declared.build(0).policy
    return policy.overlap_policy is not OverlapPolicy.ALLOW or policy.max_attempts > 1


class Roll:
    """Which workers have the plugin, as far as beat needs to know."""

    def __init__(self, workers: Workers, clock: Clock, *, needed: bool) -> None:
        self._workers, self._clock, self._needed = workers, clock, needed
        self._check_at = clock.monotonic() + _PATIENCE

    def someone_claims(self) -> bool:
        """Whether a worker with the plugin was ever seen; one that is down for a while still counts."""
        return bool(self._workers.seen_since(0))

    def call(self) -> None:
        """Now and then, warn when a policy needs the plugin and nobody has it."""
        if self._needed and self._clock.monotonic() >= self._check_at:
            self._check_at = self._clock.monotonic() + _LATELY / 1000
            if not self.someone_claims():
                advice = 'add imports = ["celery_catchup.worker"] to the workers\' settings'
                logger.warning(logfmt("No worker has the plugin", detail=f"runs are not claimed; {advice}"))


class _Dispatch:
    """The engine's way to Celery: entries by name."""

    def __init__(self, app: Any, sender: Dispatcher, schedule: Mapping[str, ScheduleEntry]) -> None:
        self._app, self._sender, self._schedule = app, sender, schedule

    def template(self, entry: str, run: PlannedRun, run_id: str) -> Template:
        """The message of a run."""
        facts = {"slot": run.slot.at, "trigger": str(run.trigger)}
        return self._sender.template(self._schedule[entry], policy_entry=entry, run_id=run_id, run=facts)

    def publish(
        self, template: Mapping[str, Any], run_id: str, run: Mapping[str, Any], *, now: Instant
    ) -> None:
        """Publish a run of the outbox, confirmed."""
        self._sender.publish(template, run_id, run, now=now)

    def end(self, run_ids: list[str], *, terminate: bool) -> None:
        """Revoke the tasks of these runs; when the broker fails the new run starts all the same."""
        try:
            self._app.control.revoke(run_ids, terminate=terminate)
        except (OperationalError, OSError) as error:
            logger.warning(logfmt("Active runs could not be ended", runs=len(run_ids), error=str(error)))
