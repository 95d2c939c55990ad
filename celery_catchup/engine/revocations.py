"""Revocations: the workers are told to end the tasks of runs that a commit has ended.

The commit writes down which, and they are crossed off when the broker has taken it: a lost
reply, a killed leader or a broker that is away delay it, and nothing that came later is ended.
"""

from __future__ import annotations

from celery_catchup.clock import Clock
from celery_catchup.engine.drafts import Dispatch
from celery_catchup.store import Ledger

_PAUSE = 10.0
"""Seconds before a broker that failed is asked again."""


class Revocations:
    """What the leader has to tell; it asks the store when a commit or a former leader may have left some."""

    def __init__(self, ledger: Ledger, dispatch: Dispatch, clock: Clock) -> None:
        self._ledger, self._dispatch, self._clock = ledger, dispatch, clock
        self._expected = False
        self._again_at = 0.0

    def expect(self) -> None:
        """There may be some."""
        self._expected = True

    def send(self) -> None:
        """Tell the workers, as far as there is anything to tell."""
        if not self._expected or self._clock.monotonic() < self._again_at:
            return
        pending = self._ledger.revocations()
        for terminate in (False, True):
            tasks = sorted(task for task, kind in pending.items() if kind is terminate)
            if tasks and not self._dispatch.end(tasks, terminate=terminate):
                self._again_at = self._clock.monotonic() + _PAUSE
                return
            self._ledger.revoked(tasks)
        self._expected = False
