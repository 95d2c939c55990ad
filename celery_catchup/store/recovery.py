"""Recovery: runs whose worker or message was lost, and failed ones whose next attempt is due."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from redis import Redis

from celery_catchup.model import Instant
from celery_catchup.store.keys import Keys
from celery_catchup.store.leadership import FencedError, Leadership
from celery_catchup.store.records import read_json, read_run
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
    "contact",
    "stopped",
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
    "stopped",
    "unreleased",
)


class Recovered(StrEnum):
    """What became of a run that was looked at."""

    SENT = "sent"
    DEAD = "dead"
    ALIVE = "alive"
    ENDED = "ended"
    EXPIRED = "expired"
    ASSUMED = "assumed"
    CORRUPT = "corrupt"


class Evidence(StrEnum):
    """What the leader knows of a run that no worker has claimed."""

    NONE = ""
    LOST = "lost"
    """Its message is gone: it is sent again."""
    EXPIRED = "expired"
    """Its message has expired: the run ends, and its chain goes on."""
    ASSUMED = "assumed"
    """It is taken to have run without a report: no worker of its queue ever had the plugin."""


class Recovery:
    """The leader's care for runs in flight. ``now_ms`` is for tests: 0 asks the server's clock."""

    def __init__(
        self,
        client: Redis,
        scripts: Scripts,
        keys: Keys,
        *,
        db: int,
        run_ttl_ms: int = 60_000,
        now_ms: int = 0,
    ) -> None:
        self._client, self._scripts, self._keys, self._db = client, scripts, keys, db
        self.run_ttl_ms, self.now_ms = run_ttl_ms, now_ms

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

    def recover(
        self, leadership: Leadership, run_id: str, *, lane: str, evidence: Evidence = Evidence.NONE
    ) -> Recovered:
        """Send the run again, or end it: a claimed one when its workers were lost too often, one that no
        worker has claimed by the ``evidence`` alone."""
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
                "evidence": str(evidence),
                "ttl_ms": self.run_ttl_ms,
                "now_ms": self.now_ms,
            },
        ).decode()
        if answer == "fenced":
            raise FencedError("another beat leads by now; this one stands down")
        return Recovered(answer)

    def postpone(self, leadership: Leadership, looks: Mapping[str, Instant]) -> None:
        """Look at these runs again at these times, by the server's clock."""
        if looks and self._postpone(leadership, looks) is None:
            raise FencedError("another beat leads by now; this one stands down")

    def _postpone(self, leadership: Leadership, looks: Mapping[str, Instant]) -> Any:
        return self._scripts.call(
            "postpone",
            {name: getattr(self._keys, name) for name in ("leader", "ledger", "leases")},
            leadership.fence(),
            more_args=[part for pair in looks.items() for part in pair],
        )

    def sent_to(self, template_ids: Iterable[str]) -> dict[str, SentTo]:
        """Where the messages of these templates go; nothing of those that are not stored."""
        wanted = list(dict.fromkeys(template_ids))
        stored: Any = self._client.hmget(self._keys.templates, wanted) if wanted else []
        found = {one: read_json(text) for one, text in zip(wanted, stored, strict=True)}
        return {
            one: SentTo(str(template.get("routing_key", "")), str(template.get("queue_name", "")))
            for one, template in found.items()
            if template is not None
        }

    def drained(self, routing_keys: Iterable[str]) -> dict[str, Instant]:
        """When the latest message was sent that a worker has claimed, by routing key."""
        wanted = list(dict.fromkeys(routing_keys))
        stored: Any = self._client.hmget(self._keys.drained, wanted) if wanted else []
        return {key: int(at) for key, at in zip(wanted, stored, strict=True) if at is not None}


class SentTo(NamedTuple):
    """Where a message goes: its routing key, and the queue's name as far as it is known."""

    routing_key: str
    queue: str
