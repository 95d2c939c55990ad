"""The reaper: sends again what was lost on the way, gives up what is lost too often, and sweeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from celery_catchup.events import Events, RunDied, RunResent, RunUnreported, StateSuspect
from celery_catchup.model import Instant
from celery_catchup.store import Leadership, Recovered, Recovery, Retention

_MOST = 100
"""Runs that are looked at in one tick."""
_SWEEP_EVERY = 60_000
"""Milliseconds between two sweeps of what the ledger no longer keeps."""
_SWEPT = 500
"""Runs, and entries' skips, that one sweep looks at: it goes on where it stopped."""


class Reaper:
    """Looks after runs whose lease has run out, and failed ones whose next attempt is due.

    A message that nobody claimed is sent again only when some worker has the plugin: without
    it runs are executed and never claimed, and a second copy would run twice.
    """

    def __init__(
        self,
        recovery: Recovery,
        retention: Retention,
        leadership: Leadership,
        events: Events,
        *,
        someone_claims: Callable[[], bool],
    ) -> None:
        self._recovery, self._retention, self._leadership = recovery, retention, leadership
        self._events, self._someone_claims = events, someone_claims
        self._swept_at = self._position = 0
        self._behind = False

    def reap(self, server_ms: int, *, entries: Sequence[str] = ()) -> None:
        """Look after what is overdue by the server's clock; ``entries`` are those whose it may be."""
        overdue = self._recovery.overdue(server_ms, limit=_MOST)
        unclaimed = any(run.get("state") == "queued" for _, run in overdue)
        claimed = not unclaimed or self._someone_claims()
        for run_id, run in overdue:
            entry = str(run.get("entry", ""))
            lane = str(run.get("lane", entry))
            match self._recovery.recover(self._leadership, run_id, lane=lane, claimed=claimed):
                case Recovered.SENT:
                    self._events.emit(RunResent(entry, run_id, run["slot"], _why(run)))
                case Recovered.DEAD:
                    self._events.emit(RunDied(entry, run_id, run["slot"], _why(run)))
                case Recovered.CORRUPT:
                    whose, slot = self._recovery.bury(self._leadership, run_id, entries=entries)
                    self._events.emit(RunDied(whose, run_id, slot, "its record could not be read"))
                case Recovered.UNREPORTED:
                    self._events.emit(RunUnreported(entry, run_id, run["slot"], "no worker has the plugin"))

    def sweep(
        self, server_ms: int, now: Instant, *, ttl_ms: int, entries: Sequence[str], most_dead: int
    ) -> None:
        """Once a minute, forget some of what ended, or was skipped, longer than ``ttl_ms`` ago, and
        dead letters beyond ``most_dead``; runs go on being forgotten at every tick while there are more."""
        due = server_ms - self._swept_at >= _SWEEP_EVERY
        if due or self._behind:
            forgotten = self._retention.trim(
                self._leadership,
                ended_before=server_ms - ttl_ms,
                skipped_before=now - ttl_ms,
                entries=self._some(entries) if due else (),
                limit=_SWEPT,
            )
            self._behind = forgotten >= _SWEPT
        if due:
            self._swept_at = server_ms
            self._discard(most_dead)

    def _some(self, entries: Sequence[str]) -> Sequence[str]:
        """The next of the entries, a bounded number of them."""
        some = entries[self._position : self._position + _SWEPT]
        self._position = self._position + _SWEPT if len(some) == _SWEPT else 0
        return some

    def _discard(self, most: int) -> None:
        discarded = self._retention.discard_oldest(most=most, limit=_SWEPT)
        if discarded:
            what = f"there are more than {most} dead letters (catchup_max_dead_letters)"
            self._events.emit(StateSuspect(f"{what}; the oldest {discarded} count as failed from now on"))


def _why(run: dict[str, object]) -> str:
    reasons = {
        "running": "its worker was lost",
        "queued": "nobody claimed it",
        "waiting": "its next attempt is due",
    }
    return reasons.get(str(run.get("state")), "lost")
