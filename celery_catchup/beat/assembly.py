"""Assemble the parts of a beat for one app: store, dispatcher, engine, metrics."""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celery.beat import ScheduleEntry

from celery_catchup.beat.resolved_entries import ResolvedEntries, destination_of
from celery_catchup.beat.stored_source import StoredSource
from celery_catchup.beat.worker_inspection import WorkerInspection
from celery_catchup.clock import Clock
from celery_catchup.config.configuration import Configuration
from celery_catchup.config.policy import Policy
from celery_catchup.config.settings import Settings
from celery_catchup.dispatch import Dispatcher, EntryDispatch, SentEvents
from celery_catchup.engine import Engine, Reaper, Services
from celery_catchup.engine.watermark_file import WatermarkFile
from celery_catchup.errors import UnfitStoreError
from celery_catchup.events import Event, Events, RunDispatched, RunResent
from celery_catchup.events.log_lines import logfmt, process_events
from celery_catchup.metrics import serve_metrics
from celery_catchup.model import Instant, to_milliseconds
from celery_catchup.notifications.notifier import Notifier
from celery_catchup.notifications.sender import Senders
from celery_catchup.store import (
    ActiveLimit,
    Backfills,
    Batch,
    DeadlineRecords,
    EntryRecords,
    Leadership,
    Ledger,
    Notices,
    Recovery,
    Retention,
    States,
    Store,
    Workers,
)
from celery_catchup.store.batches import Committed
from celery_catchup.store.connection import evicted
from celery_catchup.store.listing import Listing
from celery_catchup.store.opening import left_behind, open_store

logger = logging.getLogger(__name__)


@dataclass
class Assembly:
    """The parts of a beat; nothing is sent before the first tick."""

    store: Store
    states: States
    engine: Engine
    sender: Dispatcher
    stored_entries: StoredSource
    worker_inspection: WorkerInspection
    watermark_file: WatermarkFile | None
    allow_eviction: bool
    notifier: Notifier | None = None
    _metrics: Any = None
    _logged_dispatch: str = ""
    _logged_eviction: str | None = None

    def serve_metrics(self, app: Any, settings: Settings) -> None:
        """Serve Prometheus metrics until the end, if the settings say so."""
        self._metrics = serve_metrics(app, settings, clock=self.engine.services.clock)

    def check_namespace(self) -> None:
        """Refuse to start from nothing beside state that version 0.1 left in another namespace."""
        found = left_behind(self.store)
        if found is not None:
            raise UnfitStoreError(found)

    def probe(self, *, strict: bool = False) -> None:
        """Find out whether the server may evict state, and how messages reach the broker; log changes.

        When ``strict``, raise `UnfitStoreError` for a server that may evict our state.
        """
        danger = evicted(self.store.client)
        if danger is not None and danger.deadly and strict and not self.allow_eviction:
            raise UnfitStoreError(f"{danger.says}, or catchup_allow_eviction to True")
        if danger is not None and self._logged_eviction != danger.says:
            logger.warning(logfmt("State may be evicted", detail=danger.says))
        self._logged_eviction = None if danger is None else danger.says
        self.sender.probe()
        if self._logged_dispatch != self.sender.reason:
            self._logged_dispatch = self.sender.reason
            logger.info(logfmt("Dispatch", mode=self.sender.mode, detail=self.sender.reason))

    def write_watermark_file(self) -> None:
        """Write the decided watermarks to the local file, if there is one."""
        if self.watermark_file is not None and self.engine.leading:
            self.watermark_file.keep(self.engine.certain)

    def close(self, *, interrupted: bool = False) -> None:
        """Close all connections; ``interrupted`` as for `Dispatcher.close`."""
        if self.notifier is not None:
            self.notifier.close()
        if self._metrics is not None:
            self._metrics.close()
        self.engine.services.leadership.close()
        self.sender.close(interrupted=interrupted)
        self.store.close()


def assemble(
    app: Any,
    configuration: Configuration,
    resolved: ResolvedEntries,
    *,
    schedule: MutableMapping[str, ScheduleEntry],
    clock: Clock,
) -> Assembly:
    """Assemble the parts of a beat for this app and its entries; stored entries join and leave the schedule
    during its ticks."""
    settings, events = configuration.settings, process_events()
    store = open_store(app, settings)
    stored_entries = StoredSource(app, EntryRecords(store), schedule)
    ttl, run_ttl = to_milliseconds(settings.lease_ttl), to_milliseconds(settings.run_lease_ttl)
    sender = Dispatcher(
        app, state=store.client, state_db=store.db, mark_tasks=settings.mark_tasks, checkins=settings.checkins
    )
    dispatch = EntryDispatch(app, sender, schedule)
    # A clock that does not run by itself calls nothing back: ticks renew the lease.
    every = getattr(clock, "every", None)
    leadership = Leadership(store, clock=clock, ttl_ms=ttl, run_ttl_ms=run_ttl, every=every)

    def policies() -> Iterator[Policy]:
        return (one.build(0).policy for one in engine.declared)

    inspection = WorkerInspection(
        app,
        Workers(store, ttl_ms=run_ttl),
        events,
        needed=lambda: any(map(_needs_worker_plugin, policies())),
        lanes=lambda: {one.catch_up.queue for one in policies() if one.catch_up.queue is not None},
        schedule=schedule,
    )
    recovery = Recovery(store, run_ttl_ms=run_ttl)
    retention = Retention(store)
    file = None
    if settings.mirror_file:
        path = Path(settings.mirror_file)
        file = WatermarkFile(path, namespace=store.namespace, monotonic=clock.monotonic)
    notifier = _notifier(settings, store, leadership, threads=every is not None)
    if notifier is not None:
        events.subscribe(notifier)
    services = Services(
        leadership=leadership,
        states=States(store),
        ledger=_AnnouncingLedger(store, sender.sent_events, events)
        if sender.sent_events.wanted
        else Ledger(store),
        dispatch=dispatch,
        clock=clock,
        events=events,
        reaper=Reaper(recovery, leadership, events, presence=inspection.presence, depth=sender.depth),
        backfills=Backfills(store),
        active_limit=ActiveLimit(store),
        retention=retention,
        deadlines=DeadlineRecords(store),
        schedule=schedule.keys(),
        stored_entries=stored_entries,
        note_missed=notifier.note_missed if notifier is not None else lambda _: None,
        read_watermark_file=file.recall if file else lambda: None,
    )
    engine = Engine(
        services,
        resolved.declared,
        settings=settings,
        namespace=store.namespace,
        records=resolved.records,
        destination=destination_of(app),
    )
    return Assembly(
        store,
        services.states,
        engine,
        sender,
        stored_entries,
        inspection,
        file,
        settings.allow_eviction,
        notifier,
    )


def _notifier(settings: Settings, store: Store, leadership: Leadership, *, threads: bool) -> Notifier | None:
    """Return what queues and sends notifications; None without receivers."""
    if not settings.notify:
        return None
    notices = Notices(store)
    senders = Senders(settings.notify, notices, leadership) if threads else None
    return Notifier(
        settings.notify, notices, leadership, Listing(store), namespace=store.namespace, senders=senders
    )


def _needs_worker_plugin(policy: Policy) -> bool:
    """Return whether the policy relies on workers to report the end of a run."""
    rule = policy.overlap_policy.rule
    return not rule.independent or policy.max_attempts > 1 or policy.expect_within is not None


class _AnnouncingLedger(Ledger):
    """Sends Celery's ``task-sent`` events for the messages that the leader's scripts push."""

    def __init__(self, store: Store, sent_events: SentEvents, events: Events) -> None:
        super().__init__(store)
        self._sent_events = sent_events
        events.subscribe(self._on_event)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, RunDispatched | RunResent):
            self._sent_events.pushed_runs(self, [event.run_id])

    def commit(self, leadership: Leadership, batch: Batch, *, now: Instant) -> Committed:
        """Commit, and announce entries without a policy, which have no event."""
        outcome = super().commit(leadership, batch, now=now)
        for unmanaged in batch.unmanaged:
            self._sent_events.pushed(unmanaged.queue, unmanaged.messages)
        return outcome

    def release(self, leadership: Leadership, *, limit: int, now: Instant) -> tuple[int, list[str]]:
        """Release, and announce delayed runs that are admitted, which have no event."""
        examined, pushed = super().release(leadership, limit=limit, now=now)
        self._sent_events.pushed_runs(self, pushed)
        return examined, pushed
