"""One process of a worker: its leases, its heartbeat, its reports to the store."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from celery_catchup.clock import Clock, SystemClock
from celery_catchup.config.app_settings import read_settings
from celery_catchup.config.settings import Settings
from celery_catchup.events import AttemptEnded, ReportRefused, RunDied
from celery_catchup.events.log_lines import process_events
from celery_catchup.model import RunState, to_milliseconds
from celery_catchup.store import Leases, Notes
from celery_catchup.store.leases import ReportOutcome, ReportResult
from celery_catchup.store.opening import open_store
from celery_catchup.store.workers import Workers
from celery_catchup.worker_plugin.deliveries import Arrivals
from celery_catchup.worker_plugin.failure_categories import ERROR_SETTINGS, Categories
from celery_catchup.worker_plugin.heartbeat import Heartbeat
from celery_catchup.worker_plugin.publish_released import ReleasedPublisher
from celery_catchup.worker_plugin.reports import UNCLAIMED, Report

logger = logging.getLogger(__name__)

SETTINGS = ("redis_url", "namespace", "run_lease_ttl", "on_store_failure", "export_env", *ERROR_SETTINGS)
"""The settings that a worker reads; beat reports mistakes in the others."""

_RENEW_RECEIVED = 60.0
"""Seconds between two renewals of a message that waits in this worker: its lease lasts five minutes."""

_MOST_WARNINGS = 1000
"""Different warnings that are remembered; a flood of forged names must not fill the memory."""

arrivals = Arrivals()
"""The messages of runs that this process has received."""


def worker_settings(app: Any) -> Settings:
    """Read the settings of workers; raises `ConfigurationError`."""
    return read_settings(app, only=SETTINGS)


class WorkerProcess:
    """Claim, renew and report runs for one process."""

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
            send=self._send,
        )
        self._publisher = ReleasedPublisher(app, store, self.clock)
        self._publishes = not self._publisher.speaks_redis
        """Whether the answer to a report may release a run that this process has to publish."""
        self._warned: set[str] = set()

    def pulse(self, worker: str, queues: Iterable[str] = (), *, solo: bool = False) -> None:
        """Show that the worker consumes these queues, and renew the runs that its children execute."""
        elsewhere = [(delivery.run_id, delivery.token) for delivery in arrivals.executed_now()]
        self.heartbeat.attempt(
            partial(self.workers.record_alive, worker, queues, solo=solo),
            partial(self.heartbeat.beat, elsewhere),
        )

    def leave(self, worker: str) -> None:
        """Deliver the reports that wait, and unregister the worker."""
        self.heartbeat.flush_before_exit()
        self.heartbeat.attempt(partial(self.workers.leave, worker))

    def warn_once(self, about: str, line: str) -> None:
        """Warn once about what a thousand messages may repeat; afterwards log at debug level."""
        level = logging.DEBUG if about in self._warned else logging.WARNING
        if len(self._warned) < _MOST_WARNINGS:
            self._warned.add(about)
        logger.log(level, line)

    # -- reports ---------------------------------------------------------------------------

    def _deliver(self, report: Report) -> None:
        """Record a report in the store, and publish the runs that it released. Idempotent: a run that has
        ended stays as it is."""
        if report.state is not None:
            self._delivered(report, self._finish(report, report.state))
            return
        outcome = self.workers.retry(
            report.run_id, owner=report.owner, delay_ms=report.delay_ms, error=report.error
        )
        self._delivered(report, ReportResult(outcome, run={"state": RunState.QUEUED}))

    def _send(self, report: Report) -> Callable[[], object] | None:
        """Send a success, which is read later: the next message is fetched meanwhile. None for reports that
        are delivered at once, because runs or errors may have to be published after them, or a place passed
        on: this process may have no next message before that."""
        if report.state is not RunState.SUCCEEDED or self._publishes or report.limited:
            return None
        answer = self.leases.send_finish(
            report.run_id, entry=report.lane or report.entry, owner=report.owner, state=report.state
        )
        return lambda: self._delivered(report, answer())

    def _delivered(self, report: Report, result: ReportResult) -> None:
        outcome, released, recorded, pushed = result
        self._publishes = self._publishes or bool(released)
        if released or pushed:
            self._publisher.publish(released, pushed)
        if outcome is ReportOutcome.SUPERSEDED:
            self.events.emit(ReportRefused(report.entry, report.run_id, report.state))
        elif outcome is ReportOutcome.RECORDED:
            self._emit_ended(report, recorded)

    def _finish(self, report: Report, state: RunState) -> ReportResult:
        def finish(owner: str) -> ReportResult:
            return self.leases.finish(
                report.run_id,
                entry=report.lane or report.entry,
                owner=owner,
                state=state,
                error=report.error,
                letter=report.letter,
            )

        ending = finish(report.owner)
        if ending.outcome is ReportOutcome.SUPERSEDED and report.even_unclaimed and report.owner != UNCLAIMED:
            return finish(UNCLAIMED)
        return ending

    def _emit_ended(self, report: Report, recorded: Mapping[str, Any]) -> None:
        state = RunState(recorded["state"])
        self.events.emit(AttemptEnded(report.entry, report.run_id, state, report.error))
        if state is RunState.DEAD:
            decided = recorded.get("decided", {})
            early = decided.get("reason") == "permanent" and decided["failures"] < decided["max_attempts"]
            error = f"{report.error} (permanent: not attempted again)" if early else report.error
            self.events.emit(RunDied(report.entry, report.run_id, recorded["slot"], error))


def _received() -> list[tuple[str, str]]:
    """List the messages that wait in this process, to be renewed."""
    return [(one.run_id, UNCLAIMED) for one in arrivals.waiting_longer_than(_RENEW_RECEIVED)]


_processes: WeakKeyDictionary[Any, tuple[int, WorkerProcess]] = WeakKeyDictionary()
_opening = threading.Lock()


def worker_process(app: Any) -> WorkerProcess:
    """Return this process's own; a forked child opens another."""
    pid = os.getpid()
    with _opening:
        opened = _processes.get(app)
        if opened is None or opened[0] != pid:
            opened = _processes[app] = (pid, WorkerProcess(app))
        return opened[1]


def flush_reports() -> None:
    """Deliver the reports that wait in this process, before it ends; it executes nothing any more."""
    for pid, process in list(_processes.values()):
        if pid == os.getpid():
            process.heartbeat.stop()
            process.heartbeat.flush_before_exit()
