"""Release: what was decided and is not with the broker yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from celery_catchup.engine.drafts import Dispatch, DispatchFailedError
from celery_catchup.engine.failures import Failures
from celery_catchup.engine.reaper import Reaper
from celery_catchup.engine.roster import Roster
from celery_catchup.events import EntryFailed, Events
from celery_catchup.model import Instant, to_milliseconds
from celery_catchup.settings import Settings
from celery_catchup.store import Leadership, Ledger, Term
from celery_catchup.store.advice import STORE_FAILS, explain, is_damage

_WORKERS_TIME = 2000
"""Milliseconds in which the worker that released a run publishes it itself."""
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
    failures: Failures
    _refused: dict[str, tuple[int, int]] = field(default_factory=dict)

    def release(self, term: Term, roster: Roster, now: Instant, *, outbox: bool) -> None:
        """Send what can be sent; ``outbox`` when this very tick has put something there."""
        if term.delayed is not None and term.delayed <= now:
            for entry in self.ledger.delayed(now):
                if entry in roster.lines:
                    self._admit(entry, roster.lines[entry].capacity, now)
        if term.overdue:
            self.reaper.reap(term.server_ms, entries=roster.names)
        if term.outbox or outbox:
            self._publish(term.server_ms, now)
        ttl = to_milliseconds(self.settings.ledger_ttl)
        most = self.settings.max_dead_letters
        self.reaper.sweep(term.server_ms, now, ttl_ms=ttl, entries=roster.names, most_dead=most)

    def _admit(self, entry: str, capacity: int, now: Instant) -> None:
        """Let delayed runs of an entry start; one with a damaged key is tried again later."""
        if self.failures.waits(entry, now):
            return
        try:
            self.ledger.admit(self.leadership, entry, capacity=capacity, now=now)
        except STORE_FAILS as error:
            if not is_damage(error):
                raise
            self.failures.record(entry, explain(error), now=now)

    def _publish(self, server_ms: int, now: Instant) -> None:
        for identity in self.ledger.outbox(self.settings.batch_size):
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
            self.ledger.published([identity])
            self._refused.pop(identity, None)

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
        delay = min(1000 * 2 ** min(times - 1, 10), _LONGEST_RETRY)
        self._refused[identity] = (times, server_ms + delay)
        self.events.emit(EntryFailed(entry, why, delay / 1000))
