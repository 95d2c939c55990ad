"""Retention: ended runs and skips are forgotten when they are older than the ledger keeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Any

from redis import Redis

from celery_catchup.model import Instant
from celery_catchup.store.backfills import Backfill, is_lane
from celery_catchup.store.controls import discard
from celery_catchup.store.keys import Keys
from celery_catchup.store.leadership import Leadership
from celery_catchup.store.ledger import unfenced
from celery_catchup.store.records import read_json
from celery_catchup.store.scripts import Scripts
from celery_catchup.store.states import COLUMNS

MOST_SKIPS = 10_000
"""Spans of skipped slots that are kept of each entry."""
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
        self._trim_skips(entries, skipped_before)
        return self._forget(leadership, ids, ended_before)

    def trim_to(self, leadership: Leadership, most: int, *, limit: int) -> int:
        """Forget the runs that ended first, up to ``limit``, while the ledger has more than ``most``."""
        count: Any = self._client.zcard(self._keys.runs)
        if count <= most:
            return 0
        ids: Any = self._client.zrange(self._keys.ended, 0, min(count - most, limit) - 1)
        return self._forget(leadership, ids, "inf")

    def trim_entries(self, leadership: Leadership, entries: Sequence[str], most: int, *, limit: int) -> int:
        """Forget the oldest ended runs, up to ``limit`` of each, of these entries that have more than
        ``most``, and their oldest skips beyond `MOST_SKIPS`."""
        with self._client.pipeline(transaction=False) as pipe:
            for entry in entries:
                pipe.zcard(self._keys.runs_of(entry))
                pipe.zrange(self._keys.skips(entry), -MOST_SKIPS - 1, -MOST_SKIPS - 1, withscores=True)
            answers = pipe.execute()
        forgotten = 0
        for entry, count, beyond in zip(entries, answers[::2], answers[1::2], strict=True):
            if beyond:
                self._client.zremrangebyscore(self._keys.skips(entry), "-inf", beyond[0][1])
            if count > most:
                ids: Any = self._client.zrange(self._keys.runs_of(entry), 0, min(count - most, limit) - 1)
                forgotten += self._forget(leadership, ids, "inf")
        return forgotten

    def _forget(self, leadership: Leadership, ids: Sequence[bytes], ended_before: int | str) -> int:
        stored: Any = self._client.hmget(self._keys.ledger, ids) if ids else []
        by_entry: defaultdict[str, list[str]] = defaultdict(list)
        for run_id, text in zip(ids, stored, strict=True):
            by_entry[str((read_json(text) or {}).get("entry", ""))].append(run_id.decode())
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

    def _trim(self, leadership: Leadership, entry: str, ids: list[str], cuts: Mapping[str, int | str]) -> int:
        forgotten = self._scripts.call(
            "trim",
            {
                **{name: getattr(self._keys, name) for name in _KEYS},
                "own": self._keys.runs_of(entry),
            },
            {**leadership.fence(), **cuts},
            more_args=ids,
        )
        return int(unfenced(forgotten))

    # -- templates ---------------------------------------------------------------------------

    def mark_templates(self, cursor: int, *, count: int) -> int:
        """Note which shared templates some runs of the ledger use; where to go on, 0 at the end."""
        keys = {name: getattr(self._keys, name) for name in ("ledger", "template_uses")}
        return int(self._scripts.call("mark", keys, {"cursor": cursor, "count": count}))

    def sweep_templates(self, leadership: Leadership, *, used_before: int, limit: int) -> int:
        """Forget up to ``limit`` shared templates that were last used before; how many."""
        keys = {name: getattr(self._keys, name) for name in ("leader", "templates", "template_uses")}
        args = {**leadership.fence(), "used_before": used_before, "count": limit}
        return int(unfenced(self._scripts.call("sweep", keys, args)))

    # -- entries -----------------------------------------------------------------------------

    def note_removed(
        self, column: str, cursor: int, present: Collection[str], *, server_ms: int, count: int
    ) -> int:
        """Note which entries of a column are not declared any more, and which are again; where to go
        on, 0 at the end."""
        answer: Any = self._client.hscan(getattr(self._keys, column), cursor, count=count)
        names = [name.decode() for name in answer[1]]
        with self._client.pipeline(transaction=False) as pipe:
            for name in names:
                if name in present:
                    pipe.hdel(self._keys.removed, name)
                elif not is_lane(name):
                    pipe.hsetnx(self._keys.removed, name, server_ms)
            pipe.execute()
        return int(answer[0])

    def forget_removed(
        self, leadership: Leadership, cursor: int, *, removed_before: int, count: int
    ) -> tuple[int, int]:
        """Forget entries that were removed before, and have no runs any more; where to go on, 0 at the
        end, and how many."""
        answer: Any = self._client.hscan(self._keys.removed, cursor, count=count)
        old = [name.decode() for name, at in answer[1].items() if int(at) < removed_before]
        return int(answer[0]), sum(self._forget_entry(leadership, name, removed_before) for name in old)

    def _forget_entry(self, leadership: Leadership, name: str, removed_before: int) -> int:
        keys = {
            **{column: getattr(self._keys, column) for column in ("leader", "removed", *COLUMNS)},
            "own": self._keys.runs_of(name),
            "active": self._keys.active(name),
            "chain": self._keys.chain(name),
            "skips": self._keys.skips(name),
            "entry_hours": self._keys.hours_of(name),
        }
        args = {**leadership.fence(), "entry": name, "removed_before": removed_before}
        return int(unfenced(self._scripts.call("forget", keys, args)))

    # -- backfills ---------------------------------------------------------------------------

    def expire_backfills(
        self, leadership: Leadership, cursor: int, *, ended_before: int, count: int
    ) -> tuple[int, int]:
        """Forget backfills that ended before; where to go on, 0 at the end, and how many."""
        answer: Any = self._client.hscan(self._keys.backfills, cursor, count=count)
        old = [name.decode() for name, text in answer[1].items() if _ended(text) < ended_before]
        return int(answer[0]), sum(self._expire(leadership, backfill) for backfill in old)

    def _expire(self, leadership: Leadership, backfill: str) -> int:
        lane = Backfill.lane_of(backfill)
        keys = {
            **{name: getattr(self._keys, name) for name in ("leader", "backfills", "policies")},
            "active": self._keys.active(lane),
            "chain": self._keys.chain(lane),
        }
        args = {**leadership.fence(), "id": backfill, "lane": lane}
        return int(unfenced(self._scripts.call("expire", keys, args)))

    # -- when --------------------------------------------------------------------------------

    def tidied_at(self) -> int:
        """When everything was last gone through, by the server's clock; 0 for never."""
        stored: Any = self._client.hget(self._keys.meta, "tidied_at")
        return int(stored) if stored and stored.isdigit() else 0

    def note_tidied(self, server_ms: int) -> None:
        """Everything was gone through; the next leader need not do it again at once."""
        self._client.hset(self._keys.meta, "tidied_at", server_ms)


def _ended(text: bytes) -> float:
    """When a backfill ended; never, for one that has not, and at once for one that cannot be read."""
    record = read_json(text) or {}
    if record.get("state") in ("running", "paused"):
        return inf
    at = record.get("ended", record.get("created", 0))
    return float(at) if isinstance(at, int | float) else 0.0
