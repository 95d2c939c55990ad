"""Metrics for Prometheus; they need ``prometheus_client``, the extra ``metrics``.

`collector` reads the store and can be registered anywhere. A beat with ``catchup_metrics_port`` serves the
same metrics, and those of its own process. May import the store and everything below it; start reading in
`catalogue.py`, which declares every metric.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from celery_catchup.clock import Clock
from celery_catchup.config.settings import Settings
from celery_catchup.events.log_lines import logfmt

if TYPE_CHECKING:
    from celery_catchup.metrics.beat_metrics import BeatMetrics
    from celery_catchup.metrics.store_collector import StoreCollector

logger = logging.getLogger(__name__)

_ADVICE = "run: pip install prometheus_client"


def collector(app: Any = None) -> StoreCollector:
    """Return a collector for any registry of ``prometheus_client``; the default app is the current one."""
    from celery_catchup.metrics.store_collector import StoreCollector

    return StoreCollector(app)


def serve_metrics(app: Any, settings: Settings, *, clock: Clock) -> BeatMetrics | None:
    """Serve the metrics of this beat if the settings say so; log a warning if that is not possible."""
    port, address = settings.metrics_port, settings.metrics_address
    if port is None:
        return None
    try:
        from celery_catchup.metrics.beat_metrics import BeatMetrics
    except ImportError as error:
        logger.warning(logfmt("Metrics are not served", error=str(error), advice=_ADVICE))
        return None
    metrics = BeatMetrics(app, clock=clock)
    try:
        metrics.serve(port, address)
    except OSError as error:
        logger.warning(logfmt("Metrics are not served", address=address, port=port, error=str(error)))
        metrics.close()
        return None
    logger.info(logfmt("Metrics are served", address=address, port=port))
    metrics.listen()
    return metrics
