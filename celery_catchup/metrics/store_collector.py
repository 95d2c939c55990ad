"""Collect the metrics of the store each time Prometheus scrapes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLateError
from itertools import accumulate
from typing import Any

from celery import current_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from celery_catchup.clock import Clock, SystemClock
from celery_catchup.errors import CatchupError
from celery_catchup.events.log_lines import logfmt
from celery_catchup.metrics.catalogue import LAG_BOUNDS, METRICS, MetricType
from celery_catchup.metrics.samples import Samples, read_samples
from celery_catchup.store import Store
from celery_catchup.store.connection import STORE_FAILS, explain
from celery_catchup.store.opening import open_store

logger = logging.getLogger(__name__)

PATIENCE = 2.0
"""Seconds that a scrape waits for the store; Flower answers no other request meanwhile."""


class StoreCollector(Collector):
    """Reads the store in a thread of its own. If the store does not answer, it exports ``store_up 0`` and
    raises no error, because the same registry has other metrics too."""

    def __init__(self, app: Any = None, *, clock: Clock | None = None) -> None:
        self.app, self._clock = app, clock or SystemClock()
        self._store: Store | None = None
        self._opened: Any = None
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="catchup-metrics")
        self._reading: Future[Samples] | None = None
        self._problem = ""

    def describe(self) -> Iterator[Metric]:
        """Describe the metrics without reading the store."""
        return _families({}, "")

    def collect(self) -> Iterator[Metric]:
        """Return the samples of this moment."""
        return _families(self._samples(), "" if self._store is None else self._store.namespace)

    def close(self) -> None:
        """Close the store; a later scrape opens it again."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._store is not None:
            self._store.close()

    def _samples(self) -> Samples:
        # One reader at a time: a store that hangs must not use up threads.
        if self._reading is None or self._reading.done():
            # The current app is thread-local.
            app = current_app._get_current_object() if self.app is None else self.app
            self._reading = self._threads.submit(self._read, app)
        try:
            samples, problem = self._reading.result(PATIENCE), ""
        except TooLateError:
            samples, problem = {"store_up": {(): 0}}, "it did not answer in time"
        except (*STORE_FAILS, CatchupError) as error:
            samples, problem = {"store_up": {(): 0}}, explain(error)
        if problem and problem != self._problem:
            logger.warning(logfmt("Metrics cannot be read", error=problem))
        self._problem = problem
        return samples

    def _read(self, app: Any) -> Samples:
        if self._store is None or self._opened is not app:
            self._store, self._opened = open_store(app), app
        return {"store_up": {(): 1}, **read_samples(self._store, self._clock)}


def _families(samples: Samples, namespace: str) -> Iterator[Metric]:
    for metric in METRICS.values():
        if metric.in_beat:
            continue
        labels = ("namespace", *metric.labels)
        if metric.kind is MetricType.HISTOGRAM:
            histogram = HistogramMetricFamily(metric.family, metric.help, labels=labels)
            for (trigger,), milliseconds in samples.get("lag_ms", {}).items():
                buckets = _buckets(samples, trigger)
                histogram.add_metric((namespace, trigger), buckets=buckets, sum_value=milliseconds / 1000)
            yield histogram
            continue
        family = GaugeMetricFamily if metric.kind is MetricType.GAUGE else CounterMetricFamily
        found = family(metric.family, metric.help, labels=labels)
        for values, number in samples.get(metric.name, {}).items():
            found.add_metric((namespace, *values), number)
        yield found


def _buckets(samples: Samples, trigger: str) -> list[tuple[str, float]]:
    """Add up the counts of the buckets, as Prometheus expects."""
    names = [*((str(bound), str(float(bound))) for bound in LAG_BOUNDS), ("inf", "+Inf")]
    counts = accumulate(samples["lag"].get((trigger, stored), 0) for stored, _ in names)
    return [(exposed, total) for (_, exposed), total in zip(names, counts, strict=True)]
