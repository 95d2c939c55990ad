"""Revocations: ask workers to end the tasks of runs that a commit has ended.

The commit stores which tasks, and they are deleted when the broker has accepted the request. A lost reply,
a killed leader or an unreachable broker only delay it.
"""

from __future__ import annotations

from celery_catchup.engine.services import Services

_PAUSE = 10.0
"""Seconds before a broker that failed is asked again."""


class Revocations:
    """Sends pending revocations; reads the store only when a commit or an earlier leader may have some."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._expected = False
        self._retry_at = 0.0

    def expect(self) -> None:
        """Read the store at the next `send`."""
        self._expected = True

    def send(self) -> None:
        """Ask the workers to end the tasks, if there are any."""
        ledger, monotonic = self._services.ledger, self._services.clock.monotonic
        if not self._expected or monotonic() < self._retry_at:
            return
        pending = ledger.revocations()
        for terminate in (False, True):
            tasks = sorted(task for task, kind in pending.items() if kind is terminate)
            if tasks and not self._services.dispatch.end(tasks, terminate=terminate):
                self._retry_at = monotonic() + _PAUSE
                return
            ledger.revoked(tasks)
        self._expected = False
