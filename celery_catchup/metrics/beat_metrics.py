"""Count the events of a beat, and serve all metrics on its port."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from celery_catchup.clock import Clock
from celery_catchup.events import EntryFailed, Event, Ticked, TickFailed, subscribe
from celery_catchup.events.recurring_problems import BEAT_PROBLEMS
from celery_catchup.metrics.catalogue import METRICS, TICK_BOUNDS
from celery_catchup.metrics.store_collector import StoreCollector

_MOST_ENTRIES = 1000
"""Failing entries that are counted by name; further ones are counted together, without a name."""


class BeatMetrics:
    """Subscribes to the events of this beat and counts them."""

    def __init__(self, app: Any, *, clock: Clock) -> None:
        self.registry = CollectorRegistry()
        self._store = StoreCollector(app, clock=clock)
        self.registry.register(self._store)
        self._leading = self._metric(Gauge, "beat_leading")
        self._ticks = self._metric(Histogram, "tick_duration_seconds", buckets=TICK_BOUNDS)
        self._tick_errors = self._metric(Counter, "tick_errors")
        for what in BEAT_PROBLEMS:
            self._tick_errors.labels(what)  # Prometheus sees no increase in a series that begins with 1
        self._dispatch_errors = self._metric(Counter, "dispatch_errors")
        self._failed: set[str] = set()
        self._server: Any = None
        self._unsubscribe: Callable[[], None] = lambda: None

    def _metric(self, kind: Any, name: str, **options: Any) -> Any:
        metric = METRICS[name]
        return kind(metric.family, metric.help, metric.labels, registry=self.registry, **options)

    def __call__(self, event: Event) -> None:
        """Count an event."""
        match event:
            case Ticked(seconds, leading):
                self._ticks.observe(seconds)
                self._leading.set(leading)
            case TickFailed(what):
                self._tick_errors.labels(what).inc()
            case EntryFailed(entry):
                self._dispatch_errors.labels(self._name(entry)).inc()
            case _:
                pass

    def _name(self, entry: str) -> str:
        if len(self._failed) < _MOST_ENTRIES:
            self._failed.add(entry)
        return entry if entry in self._failed else ""

    def listen(self) -> None:
        """Subscribe to the events of this process."""
        self._unsubscribe = subscribe(self, Ticked, TickFailed, EntryFailed)

    def serve(self, port: int, address: str) -> None:
        """Serve the metrics; raise `OSError` if the port is not available."""
        self._server, _ = start_http_server(port, address, registry=self.registry)

    def close(self) -> None:
        """Unsubscribe, and stop serving."""
        self._unsubscribe()
        server, self._server = self._server, None
        if server is not None:
            with contextlib.suppress(OSError):
                server.shutdown()
                server.server_close()
        self._store.close()
