"""The ledger: runs, skips and watermarks, committed together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from redis import Redis

from celery_catchup.errors import CatchupError
from celery_catchup.model import Instant, Skip
from celery_catchup.store.keys import Keys
from celery_catchup.store.leadership import Leadership
from celery_catchup.store.records import read_json, read_run
from celery_catchup.store.scripts import Scripts


class FencedError(CatchupError):
    """Somebody else leads by now; nothing was written."""


class StaleWatermarkError(CatchupError):
    """The entry was decided by somebody else in between; nothing was written."""


@dataclass(frozen=True)
class Template:
    """A message with marks where two runs differ, and where it goes.

    Without a queue the broker is not this Redis: runs wait in the outbox instead.
    """

    message: str
    queue: str | None = None
    db: int | None = None
    expires_ms: int | None = None
    countdown_ms: int | None = None

    def encoded(self) -> str:
        """What is stored."""
        return json.dumps({name: value for name, value in vars(self).items() if value is not None})

    @property
    def id(self) -> str:
        """Same content, same id."""
        return blake2b(self.encoded().encode(), digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to be recorded; ``run`` is what the ledger keeps."""

    id: str
    run: Mapping[str, Any]
    send_at: Instant


@dataclass(frozen=True, slots=True)
class EntryBatch:
    """The decisions on one entry. ``expected`` is the watermark they were made from; ``missed`` is how
    many of the slots were late, whatever was decided on them."""

    name: str
    expected: Instant | None
    decided: Instant
    capacity: int
    runs: Sequence[NewRun] = ()
    skips: Sequence[tuple[Skip, Instant | None]] = ()
    anchor: Instant | None = None
    resumes: bool = False
    missed: int = 0

    def encoded(self) -> dict[str, Any]:
        """As the script takes it; instants of hashes are text there."""
        anchor = {} if self.anchor is None else {"anchor": str(self.anchor)}
        missed = {"missed": self.missed} if self.missed else {}
        return {
            **anchor,
            **missed,
            "name": self.name,
            "expected": "" if self.expected is None else str(self.expected),
            "decided": str(self.decided),
            "capacity": self.capacity,
            "resumes": self.resumes,
            "runs": [{"id": new.id, "run": new.run, "send_at": new.send_at} for new in self.runs],
            "skips": [_skip(skip, previous) for skip, previous in self.skips],
        }


@dataclass(frozen=True, slots=True)
class PlainBatch:
    """Messages of an entry without a policy, and what is then known of it."""

    name: str
    expected: str
    value: str
    queue: str = ""
    db: int = 0
    messages: Sequence[str] = ()


@dataclass(frozen=True)
class Batch:
    """Decisions that become durable together."""

    entries: Sequence[EntryBatch] = ()
    plain: Sequence[PlainBatch] = ()
    templates: Mapping[str, Template] = field(default_factory=dict)
    progress: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Committed:
    """Of one entry: runs that were in the ledger already, and runs whose messages went out."""

    existing: tuple[str, ...]
    released: tuple[str, ...]


class Ledger:
    """Writes decisions, and reads runs."""

    def __init__(self, client: Redis, scripts: Scripts, keys: Keys, *, db: int) -> None:
        self._client, self._scripts, self._keys, self._db = client, scripts, keys, db

    def commit(self, leadership: Leadership, batch: Batch, *, now: Instant) -> list[Committed]:
        """All of the batch or nothing; repeating it changes nothing.

        Raises `FencedError` when this beat leads no more, `StaleWatermarkError` when an entry is not
        where the plan started from.
        """
        answer = self._scripts.call(
            "commit",
            {
                name: getattr(self._keys, name)
                for name in (
                    "leader",
                    "scheduler",
                    "decided",
                    "last_runs",
                    "anchors",
                    "paused",
                    "ledger",
                    "runs",
                    "templates",
                    "outbox",
                    "delayed",
                    "leases",
                    "hours",
                )
            },
            {**leadership.fence(), "db": self._db, "now_ms": now, "batch": _encoded(batch)},
            more_keys=[key for entry in batch.entries for key in self._entry_keys(entry.name)],
        )
        return _outcome(answer)

    def admit(self, leadership: Leadership, entry: str, *, capacity: int, now: Instant) -> list[str]:
        """Let delayed and waiting runs of an entry start, as far as they may."""
        released = self._scripts.call(
            "admit",
            {
                **{
                    n: getattr(self._keys, n)
                    for n in ("leader", "ledger", "templates", "outbox", "delayed", "leases")
                },
                "active": self._keys.active(entry),
                "chain": self._keys.chain(entry),
            },
            {**leadership.fence(), "db": self._db, "entry": entry, "capacity": capacity, "now_ms": now},
        )
        if released is None:
            raise FencedError("another beat leads by now; this one stands down")
        return [run.decode() for run in released]

    def active(self, entry: str) -> list[str]:
        """The entry's runs that are queued or running."""
        ids: Any = self._client.zrange(self._keys.active(entry), 0, -1)
        return [run.decode() for run in ids]

    def delayed(self, now: Instant) -> list[str]:
        """The entries that have a delayed run whose time has come."""
        ids: Any = self._client.zrangebyscore(self._keys.delayed, "-inf", now, start=0, num=1000)
        stored: Any = self._client.hmget(self._keys.ledger, ids) if ids else []
        return sorted({run["entry"] for text in stored if (run := read_run(text)) is not None})

    def run(self, run_id: str) -> dict[str, Any] | None:
        """One run as it is recorded; None too when the record cannot be read."""
        stored: Any = self._client.hget(self._keys.ledger, run_id)
        return read_run(stored)

    def runs_of(self, entry: str) -> list[dict[str, Any]]:
        """The entry's runs in slot order, with their ids."""
        ids: Any = self._client.zrange(self._keys.runs_of(entry), 0, -1)
        stored: Any = self._client.hmget(self._keys.ledger, ids) if ids else []
        return [{"id": i.decode(), **json.loads(s)} for i, s in zip(ids, stored, strict=True) if s]

    def skips_of(self, entry: str) -> list[dict[str, Any]]:
        """The entry's skipped spans, oldest first."""
        spans: Any = self._client.zrange(self._keys.skips(entry), 0, -1)
        return [json.loads(span) for span in spans]

    def outbox(self, limit: int) -> list[str]:
        """Runs that wait to be published, oldest first."""
        ids: Any = self._client.zrange(self._keys.outbox, 0, limit - 1)
        return [run.decode() for run in ids]

    def published(self, run_ids: Sequence[str]) -> None:
        """The broker has confirmed these."""
        if run_ids:
            self._client.zrem(self._keys.outbox, *run_ids)

    def template(self, template_id: str) -> dict[str, Any] | None:
        """A stored template; None too when it cannot be read."""
        stored: Any = self._client.hget(self._keys.templates, template_id)
        return read_json(stored)

    def _entry_keys(self, entry: str) -> tuple[str, ...]:
        keys = self._keys
        return (
            keys.runs_of(entry),
            keys.active(entry),
            keys.chain(entry),
            keys.skips(entry),
            keys.hours_of(entry),
        )


def _encoded(batch: Batch) -> str:
    return json.dumps(
        {
            "templates": {name: template.encoded() for name, template in batch.templates.items()},
            "entries": [entry.encoded() for entry in batch.entries],
            "plain": [
                {
                    name: getattr(plain, name)
                    for name in ("name", "expected", "value", "queue", "db", "messages")
                }
                for plain in batch.plain
            ],
            "progress": dict(batch.progress),
        },
        separators=(",", ":"),
    )


def _skip(skip: Skip, previous: Instant | None) -> dict[str, Any]:
    """``previous`` is the slot before the span: a span that ends there is made longer instead."""
    fields: dict[str, Any] = {
        "schedule": skip.schedule,
        "first": skip.first,
        "last": skip.last,
        "count": skip.count,
        "reason": str(skip.reason),
    }
    return fields if previous is None else {**fields, "previous": previous}


def _outcome(answer: Sequence[Any]) -> list[Committed]:
    status = answer[0].decode()
    if status == "fenced":
        raise FencedError("another beat leads by now; this one stands down")
    if status == "stale":
        raise StaleWatermarkError(f"entry {answer[1].decode()!r} was decided by another beat in between")
    entries = json.loads(answer[1]) or []
    return [Committed(tuple(e["existing"]), tuple(e["released"])) for e in entries]
