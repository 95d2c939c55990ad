"""The fleet: which workers consume which queues, and which of them have the plugin.

Workers with the plugin say so themselves. The leader asks all workers every few minutes, in a thread of
its own, so that a slow broker delays no tick; what they answered is recorded by the next tick.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any

from celery_catchup.events import Events, MixedFleet
from celery_catchup.events.log_lines import logfmt
from celery_catchup.model import Instant
from celery_catchup.store import Presence, Workers
from celery_catchup.store.workers import LATELY

logger = logging.getLogger(__name__)

_FIRST = 60.0
"""Seconds that workers have to start before the leader asks."""
_EVERY = 300.0
"""Seconds between two questions."""
_HURRY = 60.0
"""The same while a run waits that no worker has claimed."""
_REPEAT = 3_600_000
"""Milliseconds between two warnings about the same queue."""
_ANSWER = 2.0
"""Seconds that workers have to answer."""
_NOW = 2**62
"""Later than any instant of the server's clock."""


def ask_workers(app: Any, *, timeout: float = _ANSWER) -> dict[str, list[str]] | None:
    """Ask all workers which queues they consume; None when the broker cannot be asked."""
    try:
        with app.connection_for_write() as connection:
            connection.ensure_connection(max_retries=1, timeout=timeout)
            answers: Any = app.control.inspect(timeout=timeout, connection=connection).active_queues()
    except Exception:  # each transport has its own, and some cannot ask at all
        logger.debug("Workers could not be asked", exc_info=True)
        return None
    return {
        str(worker): [str(queue["name"]) for queue in queues] for worker, queues in (answers or {}).items()
    }


class WorkerInspection:
    """What the leader knows of the workers."""

    def __init__(self, app: Any, workers: Workers, events: Events, *, needed: bool) -> None:
        self._app, self._workers, self._events, self._needed = app, workers, events, needed
        self._ask_at = time.monotonic() + _FIRST
        self._asked_at = 0.0
        self._asking: threading.Thread | None = None
        self._answers: Mapping[str, Sequence[str]] | None = None
        self._answered: tuple[float, Collection[str]] | None = None
        self._warned: dict[str, Instant] = {}

    def presence(self) -> Presence:
        """Who consumes which queue; asked when a run waits unclaimed, so the workers are asked soon, too.

        A worker that has answered this leader is there, whatever the server's clock did meanwhile.
        """
        self._ask_at = min(self._ask_at, self._asked_at + _HURRY)
        at, names = self._answered or (-inf, ())
        lately = time.monotonic() - at < LATELY / 1000
        found = self._workers.presence()
        plain = {
            name: one._replace(at=_NOW) if lately and name in names else one
            for name, one in found.plain.items()
        }
        return Presence(found.plugin, plain, asked=lately)

    def look(self, server_ms: Instant) -> None:
        """Once per tick: record what workers have answered, and ask them again when it is time."""
        answers, self._answers = self._answers, None
        if answers is not None:
            self._workers.note_consumers(answers, now=server_ms)
            self._warn(server_ms)
        now = time.monotonic()
        if now >= self._ask_at and (self._asking is None or not self._asking.is_alive()):
            self._asked_at, self._ask_at = now, now + _EVERY
            self._asking = threading.Thread(target=self._ask, name="catchup-fleet", daemon=True)
            self._asking.start()

    def _ask(self) -> None:
        answers = ask_workers(self._app)
        self._answers, self._answered = answers, (time.monotonic(), tuple(answers or ()))

    def _warn(self, server_ms: Instant) -> None:
        """Say which workers lack the plugin: at once, and every hour while it lasts."""
        presence = self._workers.presence()
        if self._needed and not presence.plugin and not self._workers.seen_since(0):
            self._warn_once("", server_ms, None)
        for queue, names in presence.mixed_since(server_ms - LATELY).items():
            self._warn_once(queue, server_ms, MixedFleet(queue, tuple(names)))

    def _warn_once(self, about: str, server_ms: Instant, event: MixedFleet | None) -> None:
        if server_ms - self._warned.get(about, -_REPEAT) < _REPEAT:
            return
        self._warned[about] = server_ms
        if event is not None:
            self._events.emit(event)
        else:
            advice = 'add imports += ["celery_catchup.worker"] to the workers\' settings'
            logger.warning(logfmt("No worker has the plugin", detail=f"runs are not claimed; {advice}"))
