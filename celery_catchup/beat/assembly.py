"""A beat's parts, put together: store, dispatcher and engine for one app."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celery.beat import ScheduleEntry
from kombu.exceptions import OperationalError

from celery_catchup.beat.declared_entries import ResolvedEntries, destination_of
from celery_catchup.beat.worker_inspection import WorkerInspection
from celery_catchup.clock import Clock
from celery_catchup.config.configuration import Configuration
from celery_catchup.config.settings import Settings
from celery_catchup.dispatch import Dispatcher, SentEvents
from celery_catchup.engine import Declared, Engine, Reaper, Services
from celery_catchup.engine.watermark_file import WatermarkFile
from celery_catchup.errors import UnfitStoreError
from celery_catchup.events import Event, Events, RunDispatched, RunResent
from celery_catchup.events.log_lines import logfmt, process_events
from celery_catchup.metrics import serve_metrics
from celery_catchup.model import Instant, PlannedRun, to_milliseconds
from celery_catchup.store import (
    Backfills,
    Batch,
    Leadership,
    Ledger,
    Recovery,
    Retention,
    States,
    Store,
    Template,
    Workers,
)
from celery_catchup.store.batches import Committed
from celery_catchup.store.connection import evicted
from celery_catchup.store.opening import left_behind, open_store

logger = logging.getLogger(__name__)


@dataclass
class Assembly:
    """What a beat works with; nothing is sent before the first tick."""

    store: Store
    states: States
    engine: Engine
    sender: Dispatcher
    fleet: WorkerInspection
    allow_eviction: bool = False
    mirror: WatermarkFile | None = None
    _told: str = ""
    _warned: str | None = None
    _metrics: Any = None

    def serve_metrics(self, app: Any, settings: Settings) -> None:
        """Answer Prometheus until the end, when the settings want it."""
        self._metrics = serve_metrics(app, settings, clock=self.engine.services.clock)

    def check_namespace(self) -> None:
        """Refuse to begin anew beside state that version 0.1 left in another namespace."""
        found = left_behind(self.store)
        if found is not None:
            raise UnfitStoreError(found)

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
    resolved: ResolvedEntries,
    *,
    schedule: Mapping[str, ScheduleEntry],
    clock: Clock,
) -> Assembly:
    """The parts of a beat for this app and its entries."""
    settings = configuration.settings
    store = open_store(app, settings)
    states = States(store)
    ttl = to_milliseconds(settings.lease_ttl)
    sender = Dispatcher(
        app,
        state=store.client,
        state_db=store.db,
        mark_tasks=settings.mark_tasks,
        checkins=settings.checkins,
    )
    run_ttl = to_milliseconds(settings.run_lease_ttl)
    leadership = Leadership(store, clock=clock, ttl_ms=ttl, run_ttl_ms=run_ttl)
    events = process_events()
    workers = Workers(store, ttl_ms=run_ttl)
    fleet = WorkerInspection(
        app, workers, events, needed=any(requires_worker_plugin(one) for one in resolved.declared)
    )
    recovery = Recovery(store, run_ttl_ms=run_ttl)
    retention = Retention(store)
    where = settings.mirror_file and Path(settings.mirror_file)
    mirror = WatermarkFile(where, namespace=store.namespace, monotonic=clock.monotonic) if where else None

    ledger = Ledger(store)
    if sender.sent_events.wanted:
        ledger = _announce(sender.sent_events, store, events)
    dispatch = _Dispatch(app, sender, schedule)
    services = Services(
        leadership=leadership,
        states=states,
        ledger=ledger,
        dispatch=dispatch,
        clock=clock,
        events=events,
        reaper=Reaper(recovery, leadership, events, presence=fleet.presence, depth=dispatch.depth),
        backfills=Backfills(store),
        retention=retention,
        schedule=schedule.keys(),
        elsewhere=mirror.recall if mirror else lambda: None,
    )
    engine = Engine(
        services,
        resolved.declared,
        settings=settings,
        namespace=store.namespace,
        records=resolved.records,
        destination=destination_of(app),
    )
    return Assembly(store, states, engine, sender, fleet, settings.allow_eviction, mirror)


def requires_worker_plugin(declared: Declared) -> bool:
    """Whether the entry's policy counts on workers to say when a run has ended."""
    policy = declared.build(0).policy
    return not policy.overlap_policy.rule.independent or policy.max_attempts > 1


def _announce(sent_events: SentEvents, store: Store, events: Events) -> Ledger:
    """Have the messages announced that the leader's scripts push; the ledger to use."""
    ledger = _AnnouncedLedger(store)
    ledger.sent_events = sent_events

    def on_event(event: Event) -> None:
        if isinstance(event, RunDispatched | RunResent):
            sent_events.pushed_runs(ledger, [event.run_id])

    events.subscribe(on_event)
    return ledger


class _AnnouncedLedger(Ledger):
    """Announces what no event tells of: entries without a policy, and delayed runs that are admitted."""

    sent_events: SentEvents

    def commit(self, leadership: Leadership, batch: Batch, *, now: Instant) -> Committed:
        """As `Ledger.commit`."""
        outcome = super().commit(leadership, batch, now=now)
        for plain in batch.unmanaged:
            self.sent_events.pushed(plain.queue, plain.messages)
        return outcome

    def release(self, leadership: Leadership, *, limit: int, now: Instant) -> tuple[int, list[str]]:
        """As `Ledger.release`."""
        looked_at, pushed = super().release(leadership, limit=limit, now=now)
        self.sent_events.pushed_runs(self, pushed)
        return looked_at, pushed


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

    def depth(self, queue: str, routing_key: str) -> int | None:
        """Count what a queue holds."""
        return self._sender.depth(queue, routing_key)

    def end(self, task_ids: list[str], *, terminate: bool) -> bool:
        """Revoke these tasks; False when the broker fails, and it is to be tried again."""
        try:
            self._app.control.revoke(task_ids, terminate=terminate)
        except (OperationalError, OSError) as error:
            logger.warning(logfmt("Active runs could not be ended", runs=len(task_ids), error=str(error)))
            return False
        return True
