"""Backfills: ranges of slots that somebody asked for, and how far each of them is."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from redis import Redis

from celery_catchup.model import Instant
from celery_catchup.store.keys import Keys
from celery_catchup.store.scripts import Scripts


@dataclass(frozen=True, slots=True)
class Backfill:
    """One backfill. ``cursor`` is how far it is decided; state: running, paused, cancelled or completed."""

    id: str
    entry: str
    start: Instant
    end: Instant
    reprocess: str
    newest_first: bool
    max_active: int
    created: Instant
    total: int
    state: str = "running"
    cursor: Instant | None = None
    dispatched: int = 0
    skipped: int = 0

    def encoded(self) -> str:
        """As it is stored."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})


class Backfills:
    """Creates backfills, lists and directs them; the leader works on them."""

    def __init__(self, client: Redis, scripts: Scripts, keys: Keys) -> None:
        self._client, self._scripts, self._keys = client, scripts, keys

    def create(self, fields: Mapping[str, Any]) -> Backfill:
        """A new backfill with an id of its own; the leader begins with its next tick."""
        backfill = Backfill(id=secrets.token_hex(4), **fields)
        with self._client.pipeline(transaction=True) as pipe:
            pipe.hset(self._keys.backfills, backfill.id, backfill.encoded())
            pipe.incr(self._keys.version)
            pipe.execute()
        return backfill

    def all(self) -> list[Backfill]:
        """Every backfill, the newest first."""
        stored: Any = self._client.hgetall(self._keys.backfills)
        found = [Backfill(**json.loads(text)) for text in stored.values()]
        return sorted(found, key=lambda one: (one.created, one.id), reverse=True)

    def get(self, backfill_id: str) -> Backfill | None:
        """One of them."""
        stored: Any = self._client.hget(self._keys.backfills, backfill_id)
        return None if stored is None else Backfill(**json.loads(stored))

    def direct(self, backfill_id: str, state: str) -> str | None:
        """Pause, resume or cancel it; the state it is in then, None when there is no such backfill."""
        keys = {"backfills": self._keys.backfills, "version": self._keys.version}
        answer = self._scripts.call("direct", keys, {"id": backfill_id, "state": state})
        return None if answer is None else answer.decode()
