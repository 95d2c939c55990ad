"""Publish the runs that a worker's report has released, on a broker that is not the state's Redis.

Without it a chain would go on at the pace of the leader's ticks. What fails stays in the outbox, and the
leader publishes it a moment later.

One connection serves all threads of the process (pool threads or greenlets, the heartbeat, the main
thread), one at a time. A forked child has its own `WorkerProcess`, and with it its own connection.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from redis.exceptions import RedisError

from celery_catchup.clock import Clock
from celery_catchup.dispatch import Dispatcher
from celery_catchup.engine.releases import WINDOW
from celery_catchup.events.log_lines import logfmt
from celery_catchup.events.recurring_problems import RecurringProblem
from celery_catchup.model import to_instant
from celery_catchup.store import Ledger, OutboxRun, Store
from celery_catchup.store.store import portions

logger = logging.getLogger(__name__)

_TURN = 1.5
"""Seconds that a thread waits for its turn: less than the leader waits before it publishes the run itself."""


class ReleasedPublisher:
    """Publish released runs; connect when the first one comes. Thread-safe."""

    def __init__(self, app: Any, store: Store, clock: Clock) -> None:
        self._ledger = Ledger(store)
        self._dispatcher = Dispatcher(app, state=store.client, state_db=store.db)
        self._clock = clock
        self._released: deque[OutboxRun] = deque()
        self._lock = threading.Lock()  # a green one under gevent and eventlet, which patch it
        self._trouble = RecurringProblem(
            "Released runs are left in the outbox", logger=logger, monotonic=clock.monotonic
        )
        self._retry_at = 0.0

    @property
    def speaks_redis(self) -> bool:
        """Whether the broker is a Redis server: most likely that of the state, which pushes released runs."""
        return self._dispatcher.speaks_redis

    def publish(self, runs: Sequence[OutboxRun], pushed: Sequence[str] = ()) -> None:
        """Publish these runs, and remove them from the outbox. Send events of those that are ``pushed``
        already, where the app wants that."""
        self._released.extend(runs)
        with self._turn() as granted:
            # Those of other threads that wait for their turn, too.
            found = [self._released.popleft() for _ in range(len(self._released))]
            if not granted:
                return
            if pushed and self._dispatcher.sent_events.wanted:
                self._dispatcher.sent_events.pushed_runs(self._ledger, pushed)
            try:
                self._publish(found)
            except (RedisError, OSError) as error:
                logger.warning(logfmt("Runs left in the outbox", runs=len(found), error=str(error)))

    def _publish(self, runs: Sequence[OutboxRun]) -> None:
        begun = self._clock.monotonic()
        for sent in self._dispatcher.publish(self._windows(runs), now=to_instant(self._clock.now())):
            confirmed = [one.run for one in sent if one.error is None]
            self._ledger.published(confirmed, took=self._clock.monotonic() - begun)
            for one in sent:
                if one.error is None:
                    self._trouble.resolved()
                elif one.error.temporary:
                    self._retry_at = self._clock.monotonic() + self._trouble.report(str(one.error))
                else:
                    fields = {"run_id": one.run.id, "error": str(one.error)}
                    logger.warning(logfmt("Run left in the outbox", **fields))

    def _windows(self, runs: Sequence[OutboxRun]) -> Iterator[list[OutboxRun]]:
        for window in portions(runs, WINDOW):
            if self._clock.monotonic() >= self._retry_at:
                yield window

    @contextmanager
    def _turn(self) -> Iterator[bool]:
        """Wait until no other thread publishes; False when that takes too long, or the broker has just
        failed: a task that has ended does not wait for a broker that is down."""
        if not self._lock.acquire(timeout=_TURN):
            yield False
            return
        try:
            yield self._clock.monotonic() >= self._retry_at
        finally:
            self._lock.release()
