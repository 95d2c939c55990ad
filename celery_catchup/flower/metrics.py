"""Add the metrics of the store to Flower's own ``/metrics``, for those who may read the tab."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from tornado.web import HTTPError, url

from celery_catchup.config.app_settings import read_settings
from celery_catchup.errors import ConfigurationError
from celery_catchup.flower import host
from celery_catchup.metrics import collector

logger = logging.getLogger(__name__)

_PATH = "/metrics"


def mount(routes: list[Any]) -> None:
    """Replace Flower's route; a Flower without one continues without our metrics."""
    for index, route in enumerate(routes):
        if isinstance(route, tuple) and route[0] == _PATH:
            routes[index] = url(_PATH, _with_store_metrics(route[1]))
            return
    logger.warning("celery_catchup: this Flower has no %s, so it exports no catch-up metrics", _PATH)


def _with_store_metrics(handler: Any) -> Any:
    registry, store = CollectorRegistry(), collector()
    registry.register(store)

    class Metrics(handler):  # type: ignore[misc]
        """Flower's metrics, and those of the store. They have names of entries, so they need a login where
        Flower has one, unless ``catchup_metrics_public`` is set."""

        async def get(self) -> None:
            """Read and write our metrics in a thread, so that Flower's event loop does not wait."""
            store.app = host.celery_app(self.application)
            ours = b""
            if not host.has_auth(self.application) or _is_public(store.app) or self._has_login():
                ours = await asyncio.to_thread(generate_latest, registry)
            await super().get()
            self.write(ours)

        def _has_login(self) -> bool:
            try:
                return bool(self.current_user)
            except HTTPError:
                return False

    return Metrics


def _is_public(app: Any) -> bool:
    try:
        return read_settings(app, only=("metrics_public",)).metrics_public
    except ConfigurationError:  # the tab reports it
        return False
