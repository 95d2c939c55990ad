"""Retention: forget ended runs, skips, removed entries and templates that are older than the ledger keeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from math import inf

from celery_catchup.model import Instant
from celery_catchup.store.backfills import Backfill, is_lane
from celery_catchup.store.controls import discard
from celery_catchup.store.leadership import Leadership
from celery_catchup.store.states import States
from celery_catchup.store.store import StorePart, read_json

MOST_SKIPS = 10_000
"""Most spans of skipped slots that are kept of each entry."""


class Retention(StorePart):
    """The leader's clean-up. No key has a TTL: an evicting server would take those first."""

    def trim(
        self,
        leadership: Leadership,
        *,
        ended_before: int,
        skipped_before: Instant,
        entries: Iterable[str],
        limit: int,
    ) -> int:
        """Forget up to ``limit`` runs that ended earlier, by the server's clock, and skips of these
        entries with earlier slots."""
        ids = self._client.zrangebyscore(self._keys.ended, "-inf", f"({ended_before}", 0, limit)
        top = f"({skipped_before}"
        self._ask(entries, lambda pipe, entry: pipe.zremrangebyscore(self._keys.skips(entry), "-inf", top))
        return self._forget(leadership, ids, ended_before)

    def trim_to(self, leadership: Leadership, most: int, *, limit: int) -> int:
        """Forget the runs that ended first, up to ``limit``, while the ledger has more than ``most``."""
        count = self._client.zcard(self._keys.runs)
        if count <= most:
            return 0
        ids = self._client.zrange(self._keys.ended, 0, min(count - most, limit) - 1)
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
                ids = self._client.zrange(self._keys.runs_of(entry), 0, min(count - most, limit) - 1)
                forgotten += self._forget(leadership, ids, "inf")
        return forgotten

    def _forget(self, leadership: Leadership, ids: Sequence[bytes], ended_before: int | str) -> int:
        if not ids:
            return 0
        by_entry: defaultdict[str, list[str]] = defaultdict(list)
        for run_id, entry in self._entries_of(ids):
            by_entry[entry].append(run_id)
        stopped_by = States(self._store).stopping()
        for entry, some in by_entry.items():
            for run_id in stopped_by.intersection(some):  # its chain goes on: a forgotten run stops nothing
                discard(self._store, run_id, change=None, entry=entry)
        args = {"ended_before": ended_before}
        return sum(
            int(leadership.call("forget_runs", args, entry=entry, more_args=some))
            for entry, some in by_entry.items()
        )

    def discard_oldest(self, *, most: int, limit: int) -> int:
        """Remove the oldest dead letters, up to ``limit``, while there are more than ``most``; the runs
        stay in the ledger as failed."""
        count = self._client.zcard(self._keys.dead)
        if count <= most:
            return 0
        ids = self._client.zrange(self._keys.dead, 0, min(count - most, limit) - 1)
        for run_id, entry in self._entries_of(ids):
            if not discard(self._store, run_id, change=None, entry=entry):
                self._client.zrem(self._keys.dead, run_id)  # its run is not in the ledger any more
        return len(ids)

    def _entries_of(self, ids: Sequence[bytes]) -> list[tuple[str, str]]:
        """Return the ids of runs with their entries, "" where the record is missing."""
        stored = self._fields(self._keys.ledger, ids)
        return [(i.decode(), str((read_json(text) or {}).get("entry", ""))) for i, text in stored.items()]

    def trim_audit(self, *, before: int, limit: int) -> None:
        """Forget up to ``limit`` records of the audit trail that are older, by the server's clock."""
        ids = self._client.zrangebyscore(self._keys.audit_times, "-inf", f"({before}", 0, limit)
        if ids:
            with self._client.pipeline(transaction=True) as pipe:
                pipe.hdel(self._keys.audit, *ids)
                pipe.zrem(self._keys.audit_times, *ids)
                pipe.execute()

    # -- templates ---------------------------------------------------------------------------

    def mark_templates(self, cursor: int, *, count: int) -> int:
        """Mark shared templates that runs of the ledger use; return the next cursor, 0 at the end."""
        return int(self._store.call("mark_templates", {"cursor": cursor, "count": count}))

    def sweep_templates(self, leadership: Leadership, *, used_before: int, limit: int) -> int:
        """Forget up to ``limit`` shared templates that were last used earlier; return their number."""
        return int(leadership.call("sweep_templates", {"used_before": used_before, "count": limit}))

    # -- entries -----------------------------------------------------------------------------

    def note_removed(
        self, column: str, cursor: int, present: Collection[str], *, server_ms: int, count: int
    ) -> int:
        """Record which entries of a column are not declared any more, and which are again; return the
        next cursor, 0 at the end."""
        cursor, found = self._client.hscan(self._keys.named(column), cursor, count=count)
        with self._client.pipeline(transaction=False) as pipe:
            for name in map(bytes.decode, found):
                if name in present:
                    pipe.hdel(self._keys.removed, name)
                elif not is_lane(name):
                    pipe.hsetnx(self._keys.removed, name, server_ms)
            pipe.execute()
        return cursor

    def forget_removed(
        self, leadership: Leadership, cursor: int, *, removed_before: int, count: int
    ) -> tuple[int, int]:
        """Forget entries that were removed earlier and have no runs; return the next cursor, 0 at the
        end, and their number."""
        cursor, found = self._client.hscan(self._keys.removed, cursor, count=count)
        old = [name.decode() for name, at in found.items() if int(at) < removed_before]
        cut = {"removed_before": removed_before}
        forgotten = (leadership.call("forget_entry", {"entry": name, **cut}, entry=name) for name in old)
        return cursor, sum(forgotten)

    # -- backfills ---------------------------------------------------------------------------

    def expire_backfills(
        self, leadership: Leadership, cursor: int, *, ended_before: int, count: int
    ) -> tuple[int, int]:
        """Forget backfills that ended earlier; return the next cursor, 0 at the end, and their number."""
        cursor, found = self._client.hscan(self._keys.backfills, cursor, count=count)
        old = [name.decode() for name, text in found.items() if _ended(text) < ended_before]
        lanes = {backfill: Backfill.lane_of(backfill) for backfill in old}
        forgotten = (
            leadership.call("forget_backfill", {"id": one, "lane": lane}, lane=lane)
            for one, lane in lanes.items()
        )
        return cursor, sum(forgotten)

    # -- when --------------------------------------------------------------------------------

    def tidied_at(self) -> int:
        """Return when the last complete clean-up ended, by the server's clock; 0 for never."""
        stored = self._client.hget(self._keys.meta, "tidied_at")
        return int(stored) if stored and stored.isdigit() else 0

    def note_tidied(self, server_ms: int) -> None:
        """Record a complete clean-up, so that the next leader does not repeat it at once."""
        self._client.hset(self._keys.meta, "tidied_at", server_ms)


def _ended(text: bytes) -> float:
    """Return when a backfill ended: never if it is open, 0 if it is unreadable."""
    record = read_json(text) or {}
    if record.get("state") in ("running", "paused"):
        return inf
    at = record.get("ended", record.get("created", 0))
    return float(at) if isinstance(at, int | float) else 0.0
