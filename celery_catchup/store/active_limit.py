"""The limit of active catch-up runs (``catchup_max_active``), and what takes part in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from celery_catchup.store.leadership import Leadership
from celery_catchup.store.store import AT_ONCE, StorePart, portions, stored_instant


@dataclass(frozen=True, slots=True)
class ActiveCatchup:
    """The limit, how many catch-up and backfill runs are queued or running, and how many entries and
    backfills wait for one of them to end."""

    limit: int
    active: int
    waiting: int


class ActiveLimit(StorePart):
    """Sets and reads the limit. Scripts obey it: they count a run when they send it."""

    def read(self) -> ActiveCatchup | None:
        """Return the limit that is in force and what it limits; None without one."""
        with self._client.pipeline(transaction=False) as pipe:
            pipe.hget(self._keys.meta, "max_active")
            pipe.zcard(self._keys.catchup_active)
            pipe.zcard(self._keys.catchup_waiting)
            stored, active, waiting = pipe.execute()
        limit = stored_instant(stored and stored.decode(errors="replace"))
        return None if limit is None else ActiveCatchup(limit, active, waiting)

    def set(self, leadership: Leadership, limit: int | None) -> None:
        """Put a limit into force, or none. With the first one, runs that were sent before are counted."""
        before = self.read()
        if (None if before is None else before.limit) != limit:
            leadership.call("limit_active", {"max_active": limit})
            if before is None:
                self._count(leadership, self._sent())
        if limit is not None:
            self.recount(leadership)

    def recount(self, leadership: Leadership) -> None:
        """Forget counted runs that have ended: a worker of an earlier version keeps its place."""
        self._count(leadership, self._client.zscan_iter(self._keys.catchup_active, count=AT_ONCE))

    def _count(self, leadership: Leadership, runs: Iterator[tuple[bytes, float]]) -> None:
        for part in portions(run.decode() for run, _ in runs):
            leadership.call("count_active", {}, more_args=part)

    def _sent(self) -> Iterator[tuple[bytes, float]]:
        """Yield every run that is queued or running: it has a lease, or is to be published."""
        for key in (self._keys.leases, self._keys.outbox):
            yield from self._client.zscan_iter(key, count=AT_ONCE)
