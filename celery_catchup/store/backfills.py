"""Backfills: ranges of slots that somebody asked for, and how far each of them is."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from redis import Redis

from celery_catchup.model import Instant
from celery_catchup.store.batches import NewRun
from celery_catchup.store.keys import Keys
from celery_catchup.store.leadership import FencedError, Leadership
from celery_catchup.store.records import read_json
from celery_catchup.store.scripts import Scripts
from celery_catchup.store.templates import Template

_LANE = "\x1fbackfill\x1f"


def is_lane(name: str) -> bool:
    """Whether it is the lane of a backfill, and no entry."""
    return name.startswith(_LANE)


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
    decided: bool = False
    dispatched: int = 0
    skipped: int = 0
    ended: int | None = None
    """By the server's clock."""

    @property
    def lane(self) -> str:
        """Where its runs wait their turn; no entry can have such a name."""
        return self.lane_of(self.id)

    @staticmethod
    def lane_of(backfill_id: str) -> str:
        """The lane of a backfill by its id."""
        return f"{_LANE}{backfill_id}"

    def encoded(self) -> str:
        """As it is stored."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})


@dataclass(frozen=True)
class Part:
    """Decisions on a part of a backfill."""

    cursor: Instant
    complete: bool
    skipped: int
    policy: str
    runs: Sequence[NewRun]
    templates: Mapping[str, Template]

    def encoded(self, backfill: Backfill) -> str:
        """As the script takes it."""
        return json.dumps(
            {
                "id": backfill.id,
                "cursor": self.cursor,
                "complete": self.complete,
                "skipped": self.skipped,
                "policy": self.policy,
                "templates": {name: template.encoded() for name, template in self.templates.items()},
                "runs": [{"id": new.id, "run": new.run} for new in self.runs],
            }
        )


def _read(stored: bytes | None) -> Backfill | None:
    """A backfill as it was stored; None when it cannot be read."""
    try:
        return Backfill(**(read_json(stored) or {}))
    except TypeError:
        return None


class Backfills:
    """Creates backfills, lists and directs them; the leader works on them."""

    def __init__(self, client: Redis, scripts: Scripts, keys: Keys, *, db: int) -> None:
        self._client, self._scripts, self._keys, self._db = client, scripts, keys, db

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
        found = [one for text in stored.values() if (one := _read(text)) is not None]
        return sorted(found, key=lambda one: (one.created, one.id), reverse=True)

    def get(self, backfill_id: str) -> Backfill | None:
        """One of them."""
        stored: Any = self._client.hget(self._keys.backfills, backfill_id)
        return _read(stored)

    def direct(self, backfill_id: str, state: str) -> str | None:
        """Pause (``paused``), resume (``running``) or cancel (``cancelled``) it.

        The state it is in then, or None when there is no such backfill.
        """
        lane = Backfill.lane_of(backfill_id)
        names = ("backfills", "version", "policies", "ledger", "ended", "templates", "outbox", "leases")
        answer = self._scripts.call(
            "direct",
            {name: getattr(self._keys, name) for name in (*names, "unreleased")} | self._lane_keys(lane),
            {"id": backfill_id, "state": state, "lane": lane, "db": self._db},
        )
        return None if answer is None else answer.decode()

    def waiting(self, backfill: Backfill) -> int:
        """How many of its runs wait their turn."""
        count: Any = self._client.zcard(self._keys.chain(backfill.lane))
        return int(count)

    def fill(self, leadership: Leadership, backfill: Backfill, part: Part, *, now: Instant) -> str:
        """Make a part durable: ``ok``, ``stale`` when somebody else went on meanwhile, or ``stopped``."""
        names = (
            "leader",
            "backfills",
            "policies",
            "ledger",
            "runs",
            "templates",
            "outbox",
            "leases",
            "ended",
        )
        answer = self._scripts.call(
            "fill",
            {
                name: getattr(self._keys, name)
                for name in (*names, "dead", "hours", "unreleased", "template_uses")
            }
            | {
                "own": self._keys.runs_of(backfill.entry),
                "entry_hours": self._keys.hours_of(backfill.entry),
            }
            | self._lane_keys(backfill.lane),
            {
                **leadership.fence(),
                "db": self._db,
                "now_ms": now,
                "lane": backfill.lane,
                "expected": "" if backfill.cursor is None else backfill.cursor,
                "part": part.encoded(backfill),
            },
        )
        status: str = answer[0].decode()
        if status == "fenced":
            raise FencedError("another beat leads by now; this one stands down")
        return status

    def _lane_keys(self, lane: str) -> dict[str, str]:
        return {"active": self._keys.active(lane), "chain": self._keys.chain(lane)}
