"""Recovery: runs whose worker or message was lost, and failed ones whose next attempt is due."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from redis import Redis

from celery_catchup.model import Instant
from celery_catchup.store.keys import Keys
from celery_catchup.store.leadership import Leadership
from celery_catchup.store.ledger import FencedError
from celery_catchup.store.records import read_run
from celery_catchup.store.scripts import Scripts

_KEYS = (
    "leader",
    "ledger",
    "leases",
    "retries",
    "templates",
    "outbox",
    "policies",
    "ended",
    "dead",
    "paused",
    "version",
    "scheduler",
    "hours",
    "unreleased",
)


_BURY_KEYS = (
    "leader",
    "ledger",
    "leases",
    "retries",
    "templates",
    "outbox",
    "delayed",
    "policies",
    "ended",
    "dead",
    "letters",
    "unreleased",
)


class Recovered(StrEnum):
    """What became of a run that was looked at."""

    SENT = "sent"
    DEAD = "dead"
    ALIVE = "alive"
    ENDED = "ended"
    UNREPORTED = "unreported"
    CORRUPT = "corrupt"


class Recovery:
    """The leader's care for runs in flight. ``now_ms`` is for tests: 0 asks the server's clock."""

    def __init__(self, client: Redis, scripts: Scripts, keys: Keys, *, db: int, now_ms: int = 0) -> None:
        self._client, self._scripts, self._keys, self._db = client, scripts, keys, db
        self.now_ms = now_ms

    def overdue(self, server_ms: int, *, limit: int) -> list[tuple[str, dict[str, Any]]]:
        """Runs whose lease has run out or whose retry is due, with their records."""
        with self._client.pipeline(transaction=False) as pipe:
            for key in (self._keys.retries, self._keys.leases):
                pipe.zrangebyscore(key, "-inf", server_ms, start=0, num=limit)
            ids = [run for answer in pipe.execute() for run in answer][:limit]
        stored: Any = self._client.hmget(self._keys.ledger, ids) if ids else []
        return [(i.decode(), read_run(s) or {}) for i, s in zip(ids, stored, strict=True)]

    def bury(self, leadership: Leadership, run_id: str, *, entries: Iterable[str]) -> tuple[str, Instant]:
        """Make a run whose record cannot be read a dead letter; whose it was and for when, as far as
        the lists of these entries know."""
        names = list(entries)
        with self._client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.zscore(self._keys.runs_of(name), run_id)
            scores = pipe.execute() if names else []
        homes = [(name, int(at)) for name, at in zip(names, scores, strict=True) if at is not None]
        entry, slot = homes[0] if homes else ("", 0)
        answer = self._scripts.call(
            "bury",
            {
                **{name: getattr(self._keys, name) for name in _BURY_KEYS},
                "active": self._keys.active(entry),
                "chain": self._keys.chain(entry),
            },
            {
                **leadership.fence(),
                "db": self._db,
                "run_id": run_id,
                "entry": entry,
                "slot": slot,
                "now_ms": self.now_ms,
            },
        ).decode()
        if answer == "fenced":
            raise FencedError("another beat leads by now; this one stands down")
        return entry, slot

    def recover(self, leadership: Leadership, run_id: str, *, lane: str, claimed: bool = True) -> Recovered:
        """Send the run again, or give it up when that has happened too often.

        ``claimed``: whether any worker claims runs at all.
        """
        answer = self._scripts.call(
            "recover",
            {
                **{name: getattr(self._keys, name) for name in _KEYS},
                "active": self._keys.active(lane),
                "chain": self._keys.chain(lane),
            },
            {
                **leadership.fence(),
                "db": self._db,
                "run_id": run_id,
                "claimed": int(claimed),
                "now_ms": self.now_ms,
            },
        ).decode()
        if answer == "fenced":
            raise FencedError("another beat leads by now; this one stands down")
        return Recovered(answer)
