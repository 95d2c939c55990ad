"""Release what was decided but is not with the broker yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from celery_catchup.config.settings import Settings
from celery_catchup.engine.failures import retry_delay
from celery_catchup.engine.services import DispatchFailedError, Services
from celery_catchup.events import EntryFailed
from celery_catchup.model import Instant
from celery_catchup.store import FencedError, OutboxRun, Term
from celery_catchup.store.store import portions

_WORKERS_TIME = 2000
"""Milliseconds in which the worker that released a run publishes it itself."""
WINDOW = 250
"""Runs that are published before the confirmations of earlier ones are waited for."""
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
        self._ends = False
        self._full = self._nothing_left = False
        """Whether the last tick found more than it publishes at once, and whether it published all of it."""
        self._failure: Exception | None = None

    def release(
        self,
        term: Term,
        entries: Sequence[str],
        now: Instant,
        *,
        outbox: bool,
        posted: Mapping[str, OutboxRun] = MappingProxyType({}),
    ) -> None:
        """Send what can be sent; ``outbox`` when this tick has put something there, of which it still has
        those that are ``posted``."""
        if term.delayed is not None and term.delayed <= now:
            self._release_waiting(now)
        if term.overdue:
            self._services.reaper.reap(term.server_ms, entries=entries)
        if term.outbox or outbox:
            self._publish(term.server_ms, now, posted)

    def _release_waiting(self, now: Instant) -> None:
        """Admit delayed runs, and release what earlier steps left, in a bounded number of calls."""
        ledger, leadership = self._services.ledger, self._services.leadership
        for _ in range(_STEPS):
            if ledger.admit(leadership, limit=_AT_ONCE, now=now) < _AT_ONCE:
                break
        for _ in range(_STEPS):
            if not ledger.release(leadership, limit=_AT_ONCE, now=now)[0]:
                break

    def _publish(self, server_ms: int, now: Instant, posted: Mapping[str, OutboxRun]) -> None:
        """Publish what is due, window by window; a failure of the broker is raised at the end."""
        self._ends, self._failure = False, None
        monotonic, windows = self._services.clock.monotonic, self._windows(server_ms, posted)
        begun = monotonic()
        for sent in self._services.dispatch.publish(windows, now=now, enough=self._enough):
            confirmed = [one.run for one in sent if one.error is None]
            self._services.ledger.published(confirmed, took=monotonic() - begun)
            for one in sent:
                if one.error is None:
                    self._rejected.pop(one.run.id, None)
                elif one.error.temporary:
                    self._ends, self._failure = True, one.error
                else:
                    self._reject(one.run, one.error, server_ms)
        self._nothing_left = not (self._ends or self._full)
        if self._failure is not None:
            raise self._failure

    def _windows(self, server_ms: int, posted: Mapping[str, OutboxRun]) -> Iterator[list[OutboxRun]]:
        """Yield runs to publish while the lease is certain, the broker works, and live slots do not wait.

        The runs of this tick come first if no earlier one was left: the others were released since, most of
        them by workers, which publish them. A live run does not wait until they are read.
        """
        ledger = self._services.ledger
        self._services.leadership.keep()
        ids = self._due(server_ms)
        if self._nothing_left and any(run_id not in posted for run_id in ids):
            for window in portions([posted[run_id] for run_id in ids if run_id in posted], WINDOW):
                if self._enough():
                    return
                yield window
            ids = [run_id for run_id in ids if run_id not in posted]
        while ids and not self._enough():
            some = ids[:WINDOW]
            if all(run_id in posted for run_id in some):
                found, missing = [posted[run_id] for run_id in some], list[str]()
            else:
                found, missing = ledger.outgoing(some)
            ids = ids[len(found) + len(missing) :]
            ledger.unpublishable(missing)
            window = [one for one in found if not _left_to_worker(one.run, server_ms)]
            if window:
                yield window

    def _enough(self) -> bool:
        """Tell whether the rest is left to the next tick: after a third of the lease, which is renewed then,
        or when the broker fails, or another beat may lead."""
        try:
            self._ends = self._services.leadership.keep() or self._ends
        except FencedError as error:  # what the broker has confirmed is recorded first
            self._ends, self._failure = True, error
        return self._ends

    def _due(self, server_ms: int) -> list[str]:
        """Return the first runs of the outbox, without those that wait for another try."""
        due, start, limit = list[str](), 0, self._settings.batch_size
        for _ in range(_STEPS):
            page = self._services.ledger.outbox(limit, start=start)
            due += [run_id for run_id in page if self._rejected.get(run_id, (0, 0))[1] <= server_ms]
            start += len(page)
            if len(page) < limit or len(due) >= limit:
                break
        self._full = len(due) >= limit
        return due[:limit]

    def _reject(self, one: OutboxRun, error: DispatchFailedError, server_ms: int) -> None:
        """Retry a run that the broker rejects with back-off; the others continue."""
        times = self._rejected.get(one.id, (0, 0))[0] + 1
        delay = retry_delay(times)
        self._rejected[one.id] = (times, server_ms + delay)
        self._services.events.emit(EntryFailed(one.run["entry"], str(error), delay / 1000))


def _left_to_worker(run: Mapping[str, Any], server_ms: int) -> bool:
    """Tell whether the worker that released the run still has time to publish it."""
    return bool(run.get("handed")) and server_ms - run["queued"] < _WORKERS_TIME
