"""Retention: ended runs and skips are forgotten when they are older than the ledger keeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from redis import Redis

from celery_catchup.model import Instant
from celery_catchup.store.controls import discard
from celery_catchup.store.keys import Keys
from celery_catchup.store.leadership import FencedError, Leadership
from celery_catchup.store.records import read_json
from celery_catchup.store.scripts import Scripts

_KEYS = ("leader", "ledger", "runs", "ended", "dead", "letters", "notes", "templates")


class Retention:
    """The leader's broom. Nothing has a TTL: an evicting server takes those first."""

    def __init__(self, client: Redis, scripts: Scripts, keys: Keys, *, db: int) -> None:
        self._client, self._scripts, self._keys, self._db = client, scripts, keys, db

    def trim(
        self,
        leadership: Leadership,
        *,
        ended_before: int,
        skipped_before: Instant,
        entries: Iterable[str],
        limit: int,
    ) -> int:
        """Forget up to ``limit`` runs that ended before, by the server's clock, and skips of these
        entries whose slots lie before."""
        ids: Any = self._client.zrangebyscore(
            self._keys.ended, "-inf", f"({ended_before}", start=0, num=limit
        )
        stored: Any = self._client.hmget(self._keys.ledger, ids) if ids else []
        by_entry: defaultdict[str, list[str]] = defaultdict(list)
        for run_id, text in zip(ids, stored, strict=True):
            by_entry[str((read_json(text) or {}).get("entry", ""))].append(run_id.decode())
        self._trim_skips(entries, skipped_before)
        self._go_on(by_entry)
        cuts = {"ended_before": ended_before}
        return sum(self._trim(leadership, entry, ids, cuts) for entry, ids in by_entry.items())

    def _trim_skips(self, entries: Iterable[str], before: Instant) -> None:
        """Spans that old nobody looks at any more, whoever leads; all entries in one round trip."""
        with self._client.pipeline(transaction=False) as pipe:
            for entry in entries:
                pipe.zremrangebyscore(self._keys.skips(entry), "-inf", f"({before}")
            pipe.execute()

    def discard_oldest(self, *, most: int, limit: int) -> int:
        """Take the oldest dead letters off the list, up to ``limit``, while there are more than ``most``;
        the runs stay in the ledger as failed."""
        count: Any = self._client.zcard(self._keys.dead)
        if count <= most:
            return 0
        ids: Any = self._client.zrange(self._keys.dead, 0, min(count - most, limit) - 1)
        stored: Any = self._client.hmget(self._keys.ledger, ids)
        for run_id, text in zip(ids, stored, strict=True):
            if not self._discard(run_id.decode(), str((read_json(text) or {}).get("entry", ""))):
                self._client.zrem(self._keys.dead, run_id)  # its run is not in the ledger any more
        return len(ids)

    def _go_on(self, forgotten: Mapping[str, list[str]]) -> None:
        """Let chains go on that one of these runs has stopped: nobody could discard it any more."""
        runs = [(entry, run_id) for entry, ids in forgotten.items() for run_id in ids]
        if not runs:
            return
        stopping: Any = self._client.hvals(self._keys.stopped)
        stopped_by = {run.decode() for some in stopping for run in some.split()}
        for entry, run_id in runs:
            if run_id in stopped_by:
                self._discard(run_id, entry)

    def _discard(self, run_id: str, entry: str) -> bool:
        return discard(self._scripts, self._keys, run_id, entry=entry, db=self._db)

    def _trim(self, leadership: Leadership, entry: str, ids: list[str], cuts: Mapping[str, int]) -> int:
        forgotten = self._scripts.call(
            "trim",
            {
                **{name: getattr(self._keys, name) for name in _KEYS},
                "own": self._keys.runs_of(entry),
            },
            {**leadership.fence(), **cuts},
            more_args=ids,
        )
        if forgotten is None:
            raise FencedError("another beat leads by now; this one stands down")
        return int(forgotten)
