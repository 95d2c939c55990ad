"""Add the metrics of the store to Flower's own ``/metrics``."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from prometheus_client import REGISTRY
from tornado.web import url

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
    store = collector()
    REGISTRY.register(store)

    class Metrics(handler):  # type: ignore[misc]
        """Flower's handler, after the metrics of the store were read."""

        async def get(self) -> None:
            """Read the store in a thread, so that Flower's event loop does not wait."""
            store.app = host.celery_app(self.application)
            await asyncio.get_running_loop().run_in_executor(None, store.refresh)
            await super().get()

    return Metrics
