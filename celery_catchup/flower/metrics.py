"""Flower's own ``/metrics`` tells of the store too."""

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
    """Put the collector behind Flower's route; a Flower that has none goes on without."""
    places = [place for place, route in enumerate(routes) if isinstance(route, tuple) and route[0] == _PATH]
    if not places:
        logger.warning("celery_catchup: this Flower has no %s, so that it tells no metrics of ours", _PATH)
        return
    routes[places[0]] = url(_PATH, _handler(routes[places[0]][1]))


def _handler(theirs: Any) -> Any:
    ours = collector()
    REGISTRY.register(ours)

    class Metrics(theirs):  # type: ignore[misc]
        """Asks the store first, in a thread: Flower's loop does not wait for it."""

        async def get(self) -> None:
            """All that this process has to tell."""
            ours.app = host.celery_app(self.application)
            await asyncio.get_running_loop().run_in_executor(None, ours.refresh)
            await super().get()

    return Metrics
