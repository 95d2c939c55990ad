"""One process of a worker, as the store sees it: its leases, its heartbeat, its place on the roll."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

from celery_catchup.clock import Clock, SystemClock
from celery_catchup.config.settings import Settings
from celery_catchup.events.log_lines import process_events
from celery_catchup.model import to_milliseconds
from celery_catchup.store import Leases, Notes
from celery_catchup.store.opening import open_store, read_settings
from celery_catchup.store.workers import Workers
from celery_catchup.worker_plugin.deliveries import Arrivals
from celery_catchup.worker_plugin.failure_categories import ERROR_SETTINGS, Categories
from celery_catchup.worker_plugin.heartbeat import Heartbeat
from celery_catchup.worker_plugin.publish_released import ReleasedPublisher
from celery_catchup.worker_plugin.reports import NOBODY, Report, deliver

logger = logging.getLogger(__name__)

SETTINGS = ("redis_url", "namespace", "run_lease_ttl", "on_store_failure", "export_env", *ERROR_SETTINGS)
"""What a worker needs to know; mistakes in the rest are beat's to complain about."""

_RENEW_RECEIVED = 60.0
"""Seconds between two renewals of a message that waits in this worker: its lease lasts five minutes."""

_MOST_WARNINGS = 1000
"""Different warnings remembered as said; a flood of forged names must not fill the memory."""


def worker_settings(app: Any) -> Settings:
    """The settings that workers read; raises `ConfigurationError`."""
    return read_settings(app, only=SETTINGS)


class WorkerProcess:
    """What one process needs to claim, renew and report runs."""

    def __init__(self, app: Any, *, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.settings = worker_settings(app)
        self.events = process_events()
        self.categories = Categories(self.settings)
        store = open_store(app, self.settings)
        ttl_ms = to_milliseconds(self.settings.run_lease_ttl)
        self.leases = Leases(store, ttl_ms=ttl_ms)
        self.workers = Workers(store, ttl_ms=ttl_ms)
        self.notes = Notes(store)
        self.heartbeat = Heartbeat(
            self.leases,
            self._deliver,
            clock=self.clock,
            interval=ttl_ms / 3000,
            events=self.events,
            received=_received,
        )
        self._outflow = ReleasedPublisher(app, store, self.clock)
        self._warned: set[str] = set()

    def pulse(self, worker: str, queues: Iterable[str] = ()) -> None:
        """Show that the worker is there and consumes these queues, and renew what its children execute."""
        elsewhere = [(delivery.run_id, delivery.token) for delivery in arrivals.executed_now()]

        def beat() -> None:
            self.workers.attend(worker, queues)
            self.heartbeat.beat(elsewhere)

        self.heartbeat.attempt(beat)

    def leave(self, worker: str) -> None:
        """The worker stops: deliver what waits, and strike it off the roll."""

        def part() -> None:
            self.heartbeat.flush()
            self.workers.leave(worker)

        self.heartbeat.attempt(part)

    def warn_once(self, about: str, line: str) -> None:
        """A warning that one message may cause, and a thousand must not repeat."""
        level = logging.DEBUG if about in self._warned else logging.WARNING
        if len(self._warned) < _MOST_WARNINGS:
            self._warned.add(about)
        logger.log(level, line)

    def _deliver(self, report: Report) -> None:
        deliver(report, self.leases, self.workers, self._outflow.publish, self.events)


arrivals = Arrivals()
"""The messages of runs that this process has received."""


def _received() -> list[tuple[str, str]]:
    """Messages that wait in this process, to be renewed."""
    return [(one.run_id, NOBODY) for one in arrivals.waiting_longer_than(_RENEW_RECEIVED)]


_processes: WeakKeyDictionary[Any, tuple[int, WorkerProcess]] = WeakKeyDictionary()
_opening = threading.Lock()


def worker_process(app: Any) -> WorkerProcess:
    """The station of this process; a forked child opens its own."""
    pid = os.getpid()
    with _opening:
        opened = _processes.get(app)
        if opened is None or opened[0] != pid:
            opened = _processes[app] = (pid, WorkerProcess(app))
        return opened[1]


def flush() -> None:
    """Deliver what waits in this process; for its end."""
    for pid, opened in list(_processes.values()):
        if pid == os.getpid():
            opened.heartbeat.attempt(opened.heartbeat.flush)
