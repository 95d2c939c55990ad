"""Release what was decided but is not with the broker yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from celery_catchup.config.settings import Settings
from celery_catchup.engine.failures import retry_delay
from celery_catchup.engine.services import DispatchFailedError, Services
from celery_catchup.events import EntryFailed
from celery_catchup.model import Instant
from celery_catchup.store import Term

_WORKERS_TIME = 2000
"""Milliseconds in which the worker that released a run publishes it itself."""
_AT_ONCE = 100
"""Delayed runs, or lanes, of one call, because a script blocks the server."""
_STEPS = 20
"""Calls of each kind in one tick; what is left comes in the next one."""


class Releases:
    """Publishes the outbox, admits delayed runs whose time has come, and recovers lost runs.

    The first script of a tick tells whether there is any of it, so that an idle tick costs nothing. The
    outbox stays as it is when the broker fails.
    """

    def __init__(self, services: Services, settings: Settings) -> None:
        self._services, self._settings = services, settings
        self._rejected: dict[str, tuple[int, int]] = {}
        """Runs that the broker rejects: how often, and when to try again."""

    def release(self, term: Term, entries: Sequence[str], now: Instant, *, outbox: bool) -> None:
        """Send what can be sent; ``outbox`` when this tick has put something there."""
        if term.delayed is not None and term.delayed <= now:
            self._release_waiting(now)
        if term.overdue:
            self._services.reaper.reap(term.server_ms, entries=entries)
        if term.outbox or outbox:
            self._publish(term.server_ms, now)

    def _release_waiting(self, now: Instant) -> None:
        """Admit delayed runs, and release what earlier steps left, in a bounded number of calls."""
        ledger, leadership = self._services.ledger, self._services.leadership
        for _ in range(_STEPS):
            if ledger.admit(leadership, limit=_AT_ONCE, now=now) < _AT_ONCE:
                break
        for _ in range(_STEPS):
            if not ledger.release(leadership, limit=_AT_ONCE, now=now)[0]:
                break

    def _publish(self, server_ms: int, now: Instant) -> None:
        ledger = self._services.ledger
        for run_id in self._while_leading(ledger.outbox(self._settings.batch_size)):
            run = ledger.run(run_id)
            if run is not None and run.get("handed") and server_ms - run["queued"] < _WORKERS_TIME:
                continue
            if self._rejected.get(run_id, (0, 0))[1] > server_ms:
                continue
            template = None if run is None else ledger.template(run["template"])
            if run is None or template is None or self._try(template, run_id, run, server_ms, now):
                ledger.published({run_id: template or {}})
                self._rejected.pop(run_id, None)

    def _while_leading(self, run_ids: Sequence[str]) -> Iterator[str]:
        """Yield the runs while the lease is certain. After a third of the lease the rest is left to the
        next tick, so that live slots do not wait for a slow broker."""
        self._services.leadership.keep()
        for run_id in run_ids:
            yield run_id
            if self._services.leadership.keep():
                return

    def _try(
        self, template: Mapping[str, Any], run_id: str, run: Mapping[str, Any], server_ms: int, now: Instant
    ) -> bool:
        """Publish one run; one that the broker rejects is retried with back-off, and the others continue."""
        try:
            self._services.dispatch.publish(template, run_id, run, now=now)
        except DispatchFailedError as error:
            if error.temporary:
                raise
            times = self._rejected.get(run_id, (0, 0))[0] + 1
            delay = retry_delay(times)
            self._rejected[run_id] = (times, server_ms + delay)
            self._services.events.emit(EntryFailed(run["entry"], str(error), delay / 1000))
            return False
        return True
