"""The collector: what Prometheus is told of the store, each time it asks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLateError
from typing import Any

from celery import current_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from celery_catchup.clock import Clock, SystemClock
from celery_catchup.errors import CatchupError
from celery_catchup.events.log_lines import logfmt
from celery_catchup.metrics.catalogue import LAG_BOUNDS, METRICS, MetricType
from celery_catchup.metrics.samples import Samples, read
from celery_catchup.store import Store
from celery_catchup.store.connection import STORE_FAILS, explain
from celery_catchup.store.opening import open_store

logger = logging.getLogger(__name__)

PATIENCE = 2.0
"""Seconds that a scrape waits for the store; Flower serves nobody else meanwhile."""

_NAMESPACE = "namespace"


class StoreCollector(Collector):
    """Reads the store in a thread of its own. A store that does not answer is ``store_up 0``, and no error:
    whoever serves it serves other metrics too."""

    def __init__(self, app: Any = None, *, clock: Clock | None = None) -> None:
        self.app, self._clock = app, clock or SystemClock()
        self._store: Store | None = None
        self._opened: Any = None
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="catchup-metrics")
        self._asked: Future[Samples] | None = None
        self._fresh: tuple[Samples, str] | None = None
        self._complained = ""

    def describe(self) -> Iterator[Metric]:
        """What there will be; the store is not asked for it."""
        return _families({}, "")

    def refresh(self) -> None:
        """Read what the next `collect` tells; for whoever must not wait there."""
        self._fresh = self._told()

    def collect(self) -> Iterator[Metric]:
        """What there is now."""
        told, self._fresh = self._fresh or self._told(), None
        return _families(*told)

    def _told(self) -> tuple[Samples, str]:
        try:
            samples = self._samples()
            namespace = self._store.namespace if self._store is not None else ""
        except TooLateError:
            return self._failed("it did not answer in time")
        except (*STORE_FAILS, CatchupError) as error:
            return self._failed(explain(error))
        self._complained = ""
        return samples, namespace

    def close(self) -> None:
        """Let go of the store; a later scrape opens it again."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._store is not None:
            self._store.close()

    def _samples(self) -> Samples:
        # One question at a time: a store that hangs must not gather threads.
        if self._asked is None or self._asked.done():
            # Which app is the current one, each thread knows for itself.
            app = current_app._get_current_object() if self.app is None else self.app
            self._asked = self._threads.submit(self._read, app)
        return self._asked.result(PATIENCE)

    def _read(self, app: Any) -> Samples:
        if self._store is None or self._opened is not app:
            self._store, self._opened = open_store(app), app
        return {"store_up": {(): 1}, **read(self._store, self._clock)}

    def _failed(self, why: str) -> tuple[Samples, str]:
        if self._complained != why:
            self._complained = why
            logger.warning(logfmt("Metrics cannot be read", error=why))
        return {"store_up": {(): 0}}, self._store.namespace if self._store is not None else ""


def _families(samples: Samples, namespace: str) -> Iterator[Metric]:
    for metric in METRICS.values():
        if metric.in_beat:
            continue
        labels = (_NAMESPACE, *metric.labels)
        if metric.kind is MetricType.HISTOGRAM:
            yield _histogram(metric.family, metric.help, labels, samples, namespace)
            continue
        family = GaugeMetricFamily if metric.kind is MetricType.GAUGE else CounterMetricFamily
        made = family(metric.family, metric.help, labels=labels)
        for values, number in samples.get(metric.name, {}).items():
            made.add_metric((namespace, *values), number)
        yield made


def _histogram(
    name: str, text: str, labels: Iterable[str], samples: Samples, namespace: str
) -> HistogramMetricFamily:
    made = HistogramMetricFamily(name, text, labels=tuple(labels))
    counts: Mapping[tuple[str, ...], float] = samples.get("lag", {})
    for (trigger,), milliseconds in samples.get("lag_ms", {}).items():
        total, buckets = 0.0, []
        for bound in (*LAG_BOUNDS, "inf"):
            total += counts.get((trigger, str(bound)), 0)
            buckets.append(("+Inf" if bound == "inf" else str(float(bound)), total))
        made.add_metric((namespace, trigger), buckets=buckets, sum_value=milliseconds / 1000)
    return made
