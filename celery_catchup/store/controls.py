"""Controls: what people change from outside; the leader sees it by the version counter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from redis import Redis

from celery_catchup.model import Instant
from celery_catchup.store.keys import Keys
from celery_catchup.store.scripts import Scripts
from celery_catchup.store.templates import Template


class Replay(StrEnum):
    """What became of a replay."""

    REPLAYED = "replayed"
    IN_FLIGHT = "in_flight"
    UNKNOWN = "unknown"
    LOST = "lost"


def discard(scripts: Scripts, keys: Keys, run_id: str, *, entry: str, db: int) -> bool:
    """As `Controls.discard`; for the leader, who forgets old ones."""
    names = (
        "ledger",
        "dead",
        "letters",
        "stopped",
        "policies",
        "templates",
        "outbox",
        "leases",
        "unreleased",
    )
    places = {"active": keys.active(entry), "chain": keys.chain(entry)}
    answer = scripts.call(
        "discard",
        {name: getattr(keys, name) for name in names} | places,
        {"run_id": run_id, "db": db, "entry": entry},
    )
    return bool(answer)


class Controls:
    """Pause, resume, replay, discard. ``now_ms`` is for tests: 0 asks the server's clock."""

    def __init__(self, client: Redis, scripts: Scripts, keys: Keys, *, db: int, now_ms: int = 0) -> None:
        self._client, self._scripts, self._keys, self._db = client, scripts, keys, db
        self.now_ms = now_ms

    def pause(self, entry: str, *, now: Instant, reason: str = "") -> bool:
        """No slot of the entry is decided from now on; False when it is paused already."""
        keys = {name: getattr(self._keys, name) for name in ("paused", "version", "scheduler")}
        return bool(self._scripts.call("pause", keys, {"entry": entry, "reason": reason, "now_ms": now}))

    def resume(self, entry: str, *, discard: bool = False, now: Instant = 0) -> bool:
        """Decide slots again; what was missed since the pause is caught up as the policy says, or
        discarded. ``now`` 0 asks the server's clock."""
        keys = {"paused": self._keys.paused, "version": self._keys.version}
        return bool(
            self._scripts.call("resume", keys, {"entry": entry, "discard": int(discard), "now_ms": now})
        )

    def start(self, run_id: str, run: Mapping[str, Any], template: Template, *, now: Instant) -> bool:
        """Start a run by hand; False when the slot has its run already."""
        names = ("ledger", "runs", "templates", "outbox", "leases", "policies", "manual", "version", "hours")
        entry = run["entry"]
        answer = self._scripts.call(
            "start",
            {
                **{
                    name: getattr(self._keys, name)
                    for name in (*names, "stopped", "unreleased", "template_uses")
                },
                "own": self._keys.runs_of(entry),
                "entry_hours": self._keys.hours_of(entry),
                "active": self._keys.active(entry),
                "chain": self._keys.chain(entry),
            },
            {
                "run_id": run_id,
                "run": json.dumps(run),
                "template": template.encoded(),
                "db": self._db,
                "now_ms": now,
            },
        )
        return bool(answer == b"started")

    def enlist(self, run_id: str, run: Mapping[str, Any], *, now: Instant) -> bool:
        """Record a manual run whose message the caller sends; False when there is such a run."""
        names = ("ledger", "runs", "leases", "manual", "version", "hours")
        entry = run["entry"]
        answer = self._scripts.call(
            "enlist",
            {name: getattr(self._keys, name) for name in names}
            | {
                "own": self._keys.runs_of(entry),
                "entry_hours": self._keys.hours_of(entry),
                "active": self._keys.active(entry),
            },
            {"run_id": run_id, "run": json.dumps(run), "now_ms": now},
        )
        return bool(answer)

    def replay(self, run_id: str, *, entry: str, by: str = "") -> Replay:
        """Attempt an ended run again with the same inputs; ``by`` is who asked for it, for the record."""
        names = ("ledger", "leases", "templates", "outbox", "policies", "ended", "dead", "letters", "stopped")
        answer = self._scripts.call(
            "replay",
            {
                **{name: getattr(self._keys, name) for name in (*names, "unreleased")},
                "active": self._keys.active(entry),
                "chain": self._keys.chain(entry),
            },
            {"run_id": run_id, "db": self._db, "by": by, "now_ms": self.now_ms},
        )
        return Replay(answer.decode())

    def discard(self, run_id: str, *, entry: str) -> bool:
        """Take a run off the dead letters, and let its chain go on when its failure has stopped it.

        False when it is no dead letter and has stopped nothing.
        """
        return discard(self._scripts, self._keys, run_id, entry=entry, db=self._db)

    def dead_letters(self, *, limit: int = 100) -> list[dict[str, Any]]:
        """Dead runs, the newest first: the run, and what is known of its failure."""
        ids: Any = self._client.zrevrange(self._keys.dead, 0, limit - 1)
        if not ids:
            return []
        with self._client.pipeline(transaction=False) as pipe:
            pipe.hmget(self._keys.ledger, ids)
            pipe.hmget(self._keys.letters, ids)
            runs, letters = pipe.execute()
        return [
            {"id": run_id.decode(), **json.loads(run), "letter": json.loads(letter) if letter else {}}
            for run_id, run, letter in zip(ids, runs, letters, strict=True)
            if run
        ]
