"""The reaper: sends again what was lost on the way, and gives up what is lost too often."""

from __future__ import annotations

from collections.abc import Callable

from celery_catchup.events import Events, RunDied, RunResent
from celery_catchup.store import Leadership, Recovered, Recovery

_MOST = 100
"""Runs that are looked at in one tick."""


class Reaper:
    """Looks after runs whose lease has run out, and failed ones whose next attempt is due.

    A message that nobody claimed is sent again only while some worker has the plugin:
    without one, runs are executed and never claimed, and a second copy would run twice.
    """

    def __init__(
        self,
        recovery: Recovery,
        leadership: Leadership,
        events: Events,
        *,
        someone_claims: Callable[[], bool],
    ) -> None:
        self._recovery, self._leadership, self._events = recovery, leadership, events
        self._someone_claims = someone_claims

    def reap(self, server_ms: int) -> None:
        """Look after what is overdue by the server's clock."""
        overdue = self._recovery.overdue(server_ms, limit=_MOST)
        unclaimed_too = any(run.get("state") == "queued" for _, run in overdue) and self._someone_claims()
        for run_id, run in overdue:
            if run.get("state") == "queued" and not unclaimed_too:
                continue
            entry = str(run.get("entry", ""))
            match self._recovery.recover(self._leadership, run_id, entry=entry):
                case Recovered.SENT:
                    self._events.emit(RunResent(entry, run_id, run["slot"], _why(run)))
                case Recovered.DEAD:
                    self._events.emit(RunDied(entry, run_id, run["slot"], _why(run)))


def _why(run: dict[str, object]) -> str:
    reasons = {
        "running": "its worker was lost",
        "queued": "nobody claimed it",
        "waiting": "its next attempt is due",
    }
    return reasons.get(str(run.get("state")), "lost")
