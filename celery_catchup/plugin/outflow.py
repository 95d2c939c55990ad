"""What a worker's report releases, on a broker that is not the state's Redis: it publishes it itself.

Otherwise a chain would go on at the pace of the leader's ticks. What fails here is left in the
outbox, and the leader publishes it a moment later.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from redis.exceptions import RedisError

from celery_catchup.clock import Clock
from celery_catchup.dispatch import Dispatcher, DispatchError
from celery_catchup.logs import logfmt
from celery_catchup.model import to_instant
from celery_catchup.store import Ledger
from celery_catchup.wiring import StoreHandle

logger = logging.getLogger(__name__)


class Outflow:
    """Publishes released runs; connects when there is one for the first time."""

    def __init__(self, app: Any, store: StoreHandle, clock: Clock) -> None:
        self._ledger = Ledger(store.client, store.scripts, store.keys, db=store.db)
        self._dispatcher = Dispatcher(app, state=store.client, state_db=store.db)
        self._clock = clock

    def publish(self, run_ids: Sequence[str]) -> None:
        """Publish these runs, and cross them off the outbox."""
        for run_id in run_ids:
            try:
                self._publish(run_id)
            except (DispatchError, RedisError, OSError) as error:
                logger.warning(logfmt("Run left in the outbox", run_id=run_id, error=str(error)))

    def _publish(self, run_id: str) -> None:
        run = self._ledger.run(run_id)
        template = None if run is None else self._ledger.template(run["template"])
        if run is not None and template is not None:
            self._dispatcher.publish(template, run_id, run, now=to_instant(self._clock.now()))
            self._ledger.published({run_id: template})
