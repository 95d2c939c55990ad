"""Find out which workers consume which queues, and which of them have the plugin.

Workers with the plugin register themselves. The leader inspects all workers every few minutes, in a thread,
so that a slow broker delays no tick; the next tick records the answers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf
from typing import Any

from celery_catchup.beat.unserved import Unserved, destinations, find_unserved
from celery_catchup.events import Events, MixedFleet
from celery_catchup.events.command_lines import celery_line
from celery_catchup.events.log_lines import logfmt
from celery_catchup.model import Instant
from celery_catchup.store import Presence, Workers
from celery_catchup.store.workers import LATELY

logger = logging.getLogger(__name__)

_FIRST = 15.0
"""Seconds that workers have to start before the first inspection."""
_EVERY = 300.0
"""Seconds between two inspections."""
_HURRY = 60.0
"""The same while a run is unclaimed."""
_REPEAT = 3_600_000
"""Milliseconds between two warnings about the same queue."""
_ANSWER = 2.0
"""Seconds that workers have to answer."""
_NOW = 2**62
"""Later than any instant of the server's clock."""


def ask_workers(app: Any, *, timeout: float = _ANSWER) -> dict[str, list[str]] | None:
    """Ask all workers which queues they consume; None when the broker fails."""
    answers = _ask(app, "active_queues", timeout)
    return (
        None
        if answers is None
        else {worker: [str(queue["name"]) for queue in queues] for worker, queues in answers.items()}
    )


def ask_tasks(app: Any, *, timeout: float = _ANSWER) -> dict[str, frozenset[str]] | None:
    """Ask all workers which tasks they know; None when the broker fails."""
    answers = _ask(app, "registered", timeout)
    # A task with a rate limit is shown with it: "proj.etl [rate_limit=10/m]".
    return (
        None
        if answers is None
        else {
            worker: frozenset(str(task).partition(" [")[0] for task in tasks)
            for worker, tasks in answers.items()
        }
    )


def _ask(app: Any, question: str, timeout: float) -> dict[str, list[Any]] | None:
    try:
        with app.connection_for_write() as connection:
            connection.ensure_connection(max_retries=1, timeout=timeout)
            asked = app.control.inspect(timeout=timeout, connection=connection)
            answers: Any = getattr(asked, question)()
    except Exception:  # each transport has its own, and some do not support it
        logger.debug("Workers could not be asked", exc_info=True)
        return None
    # A worker that fails to answer sends a mapping with the error.
    return {str(worker): one for worker, one in (answers or {}).items() if isinstance(one, list)}


class WorkerInspection:
    """Inspects the workers for the leader; warns of those without the plugin, and of queues of catch-up runs
    that no worker consumes."""

    def __init__(
        self,
        app: Any,
        workers: Workers,
        events: Events,
        *,
        needed: Callable[[], bool],
        lanes: Callable[[], set[str]] = set,
        schedule: Mapping[str, Any] | None = None,
    ) -> None:
        self._app, self._workers, self._events, self._needed = app, workers, events, needed
        self._lanes = lanes
        self._schedule = {} if schedule is None else schedule
        self._ask_at = time.monotonic() + _FIRST
        self._asked_at = 0.0
        self._thread: threading.Thread | None = None
        self._answers: Mapping[str, Sequence[str]] | None = None
        self._answered: tuple[float, Collection[str]] = (-inf, ())
        self._unserved: Sequence[Unserved] = ()
        self._warned: dict[str, Instant] = {}

    def presence(self) -> Presence:
        """Return which workers consume which queue. A run is unclaimed then, so inspect them soon.

        A worker that has answered this leader is present, whatever the server's clock did meanwhile.
        """
        self._ask_at = min(self._ask_at, self._asked_at + _HURRY)
        at, names = self._answered
        lately = time.monotonic() - at < LATELY / 1000
        found = self._workers.presence()
        plain = {
            name: one._replace(at=_NOW) if lately and name in names else one
            for name, one in found.plain.items()
        }
        return Presence(found.plugin, plain, asked=lately)

    def poll(self, server_ms: Instant) -> None:
        """Record the workers' answers, and start the next inspection when it is time; once per tick."""
        answers, self._answers = self._answers, None
        if answers is not None:
            self._workers.note_consumers(answers, now=server_ms)
            self._warn(server_ms)
            self._warn_of_lanes(answers, server_ms)
        now = time.monotonic()
        if now >= self._ask_at and (self._thread is None or not self._thread.is_alive()):
            self._asked_at, self._ask_at = now, now + _EVERY
            self._thread = threading.Thread(target=self._ask, name="catchup-worker-inspection", daemon=True)
            self._thread.start()

    def _ask(self) -> None:
        answers = ask_workers(self._app)
        if answers:
            wanted = destinations(self._app, dict(self._schedule))
            self._unserved = list(find_unserved(wanted, answers, ask_tasks(self._app) or {}))
        self._answers, self._answered = answers, (time.monotonic(), tuple(answers or ()))

    def _warn(self, server_ms: Instant) -> None:
        """Warn of workers without the plugin: at once, and every hour while it lasts."""
        presence = self._workers.presence()
        without = not presence.plugin and not self._workers.seen_since(0) and self._needed()
        if without and self._is_news("", server_ms):
            advice = 'add imports += ["celery_catchup.worker"] to the workers\' settings'
            logger.warning(logfmt("No worker has the plugin", detail=f"runs are not claimed; {advice}"))
        busy = {queue for queues in self._workers.solo_alive().values() for queue in queues}
        for one in self._unserved:
            if one.task is None and one.queue in busy:
                continue  # its worker executes a task, and answers afterwards
            if self._is_news(f"{one.queue} {one.task}", server_ms):
                logger.warning(logfmt("Entries without a worker", detail=f"{one.detail}; {one.fix}"))
        for queue, names in presence.mixed_since(server_ms - LATELY).items():
            if self._is_news(queue, server_ms):
                self._events.emit(MixedFleet(queue, tuple(names)))

    def _warn_of_lanes(self, answers: Mapping[str, Sequence[str]], server_ms: Instant) -> None:
        known = (*answers.values(), *self._workers.solo_alive().values())
        consumed = {queue for queues in known for queue in queues}
        for queue in sorted(self._lanes() - consumed):
            if self._is_news(f"lane {queue}", server_ms):
                start = celery_line("worker", "-Q", queue)
                logger.warning(
                    logfmt("No worker consumes the queue of catch-up runs", queue=queue, start=start)
                )

    def _is_news(self, queue: str, server_ms: Instant) -> bool:
        if server_ms - self._warned.get(queue, -_REPEAT) < _REPEAT:
            return False
        self._warned[queue] = server_ms
        return True
