"""Release: what was decided and is not with the broker yet."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from celery_catchup.config.settings import Settings
from celery_catchup.engine.drafts import Dispatch, DispatchFailedError
from celery_catchup.engine.housekeeping import Housekeeping
from celery_catchup.engine.reaper import Reaper
from celery_catchup.engine.tracked_entries import TrackedEntries
from celery_catchup.events import EntryFailed, Events
from celery_catchup.events.backoff import backoff
from celery_catchup.model import Instant, to_milliseconds
from celery_catchup.store import Leadership, Ledger, Term

_WORKERS_TIME = 2000
"""Milliseconds in which the worker that released a run publishes it itself."""
_AT_ONCE = 100
"""Delayed runs, or lanes, of one call: the server answers nobody else meanwhile."""
_STEPS = 20
"""Calls of each kind in one tick; what is left comes in the next one."""
_LONGEST_RETRY = 60_000
"""Milliseconds between two tries of a run that the broker does not take, at the most."""


@dataclass(frozen=True)
class Releases:
    """Delayed runs whose time has come, runs that were lost, and the outbox.

    The tick's first script says whether there is any of it, so that a tick without costs
    nothing. The outbox stays as it is when the broker fails.
    """

    leadership: Leadership
    ledger: Ledger
    dispatch: Dispatch
    reaper: Reaper
    events: Events
    settings: Settings
    housekeeping: Housekeeping
    present: Collection[str]
    _refused: dict[str, tuple[int, int]] = field(default_factory=dict)

    def release(self, term: Term, tracked: TrackedEntries, now: Instant, *, outbox: bool) -> None:
        """Send what can be sent; ``outbox`` when this very tick has put something there."""
        if term.delayed is not None and term.delayed <= now:
            self._go_on(now)
        if term.overdue:
            self.reaper.reap(term.server_ms, entries=tracked.names)
        if term.outbox or outbox:
            self._publish(term.server_ms, now)
        ttl = to_milliseconds(self.settings.ledger_ttl)
        most = self.settings.max_dead_letters
        self.reaper.sweep(term.server_ms, now, ttl_ms=ttl, entries=tracked.names, most_dead=most)
        self.housekeeping.step(term.server_ms, entries=tracked.names, present=self.present)

    def _go_on(self, now: Instant) -> None:
        """Admit delayed runs, and release what earlier steps left; a bounded number of calls a tick."""
        for _ in range(_STEPS):
            if self.ledger.admit(self.leadership, limit=_AT_ONCE, now=now) < _AT_ONCE:
                break
        for _ in range(_STEPS):
            if not self.ledger.release(self.leadership, limit=_AT_ONCE, now=now)[0]:
                break

    def _publish(self, server_ms: int, now: Instant) -> None:
        for identity in self._in_time(self.ledger.outbox(self.settings.batch_size)):
            run = self.ledger.run(identity)
            if run is not None and run.get("handed") and server_ms - run["queued"] < _WORKERS_TIME:
                continue
            if self._refused.get(identity, (0, 0))[1] > server_ms:
                continue
            template = None if run is None else self.ledger.template(run["template"])
            if run is not None and template is not None:
                refusal = self._refusal(template, identity, run, now)
                if refusal is not None:
                    self._refuse(identity, run["entry"], refusal, server_ms)
                    continue
            self.ledger.published({identity: template or {}})
            self._refused.pop(identity, None)

    def _in_time(self, run_ids: Sequence[str]) -> Iterator[str]:
        """These runs, each while the lease is certain. After a third of the lease the rest is left to
        the next tick: live slots do not wait for a slow broker."""
        self.leadership.keep()
        for run_id in run_ids:
            yield run_id
            if self.leadership.keep():
                return

    def _refusal(
        self, template: Mapping[str, Any], identity: str, run: Mapping[str, Any], now: Instant
    ) -> str | None:
        """Publish one run; why the broker does not take it, which must not keep back the others."""
        try:
            self.dispatch.publish(template, identity, run, now=now)
        except DispatchFailedError as error:
            if error.temporary:
                raise
            return str(error)
        return None

    def _refuse(self, identity: str, entry: str, why: str, server_ms: int) -> None:
        """Try a run that the broker does not take less and less often, and say why each time."""
        times = self._refused.get(identity, (0, 0))[0] + 1
        delay = backoff(times, shortest=1000, longest=_LONGEST_RETRY)
        self._refused[identity] = (times, server_ms + delay)
        self.events.emit(EntryFailed(entry, why, delay / 1000))
