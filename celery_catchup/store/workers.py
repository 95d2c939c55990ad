"""Workers: which of them have the plugin, and runs that they give back for another try."""

from __future__ import annotations

from typing import Any

from redis import Redis

from celery_catchup.model import Instant
from celery_catchup.store.keys import Keys
from celery_catchup.store.leases import Finish
from celery_catchup.store.scripts import Scripts

FORGET_MS = 24 * 3600 * 1000
"""A day: long enough to be missed by somebody, too short for names of containers to pile up."""


class Workers:
    """The roll of workers. ``now_ms`` is for tests: 0 asks the server's clock."""

    def __init__(self, client: Redis, scripts: Scripts, keys: Keys, *, now_ms: int = 0) -> None:
        self._client, self._scripts, self._keys, self.now_ms = client, scripts, keys, now_ms

    def attend(self, worker: str) -> None:
        """This worker is alive and has the plugin."""
        self._scripts.call(
            "attend",
            {"workers": self._keys.workers},
            {"worker": worker, "forget_ms": FORGET_MS, "now_ms": self.now_ms},
        )

    def leave(self, worker: str) -> None:
        """This worker stops."""
        self._client.zrem(self._keys.workers, worker)

    def seen_since(self, instant: Instant) -> list[str]:
        """Workers that were alive at ``instant`` or later, by the server's clock."""
        found: Any = self._client.zrangebyscore(self._keys.workers, instant, "+inf")
        return [worker.decode() for worker in found]

    def retry(self, run_id: str, *, owner: str, delay_ms: int, error: str = "") -> Finish:
        """Give a run back; its next delivery, ``delay_ms`` from now, may claim it."""
        answer = self._scripts.call(
            "retry",
            {"ledger": self._keys.ledger, "leases": self._keys.leases},
            {
                "run_id": run_id,
                "owner": owner,
                "delay_ms": delay_ms,
                "error": error,
                "now_ms": self.now_ms,
            },
        )
        return Finish(answer.decode())
