"""The ledger: runs, skips and watermarks, committed together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from redis import Redis

from celery_catchup.errors import CatchupError, StoreError
from celery_catchup.model import Instant
from celery_catchup.store.batches import Batch, Committed, encode
from celery_catchup.store.keys import Keys
from celery_catchup.store.leadership import FencedError, Leadership
from celery_catchup.store.records import read_json, read_run
from celery_catchup.store.scripts import Scripts
from celery_catchup.store.templates import Template

_COMMIT_KEYS = (
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
    "ended",
    "retries",
    "stopped",
    "revocations",
    "unreleased",
    "template_uses",
)
_REMEMBERED = 200_000
"""Templates that are known to be stored, at the most; what is beyond is asked for anew."""


class StaleWatermarkError(CatchupError):
    """The entry was decided by somebody else in between; nothing was written."""


class Ledger:
    """Writes decisions, and reads runs."""

    def __init__(self, client: Redis, scripts: Scripts, keys: Keys, *, db: int) -> None:
        self._client, self._scripts, self._keys, self._db = client, scripts, keys, db
        self._stored: set[str] = set()

    def commit(self, leadership: Leadership, batch: Batch, *, now: Instant) -> Committed:
        """All of the batch but entries that have changed, or nothing; repeating it changes nothing.

        Raises `FencedError` when this beat leads no more, `StaleWatermarkError` when an entry is not
        where the plan started from.
        """
        answer = self._commit(leadership, batch, now)
        if answer[0] == b"unknown":
            # Swept, or lost with the server's memory: all of them are sent again.
            self._stored.clear()
            answer = self._commit(leadership, batch, now)
        outcome = _outcome(answer)
        self._remember(batch.templates)
        return outcome

    def _commit(self, leadership: Leadership, batch: Batch, now: Instant) -> Sequence[Any]:
        encoded, runs = encode(batch, stored=self._stored)
        answer: Sequence[Any] = self._scripts.call(
            "commit",
            {name: getattr(self._keys, name) for name in _COMMIT_KEYS},
            {**leadership.fence(), "db": self._db, "now_ms": now, "batch": encoded},
            more_keys=[key for entry in batch.entries for key in self._keys.of_commit(entry.name)],
            more_args=runs,
        )
        return answer

    def _remember(self, templates: Mapping[str, Template]) -> None:
        """Which templates need not be sent again; those of single runs are not met again."""
        if len(self._stored) > _REMEMBERED:
            self._stored.clear()
        self._stored.update(name for name, template in templates.items() if template.run is None)

    def admit(self, leadership: Leadership, *, limit: int, now: Instant) -> int:
        """Let delayed runs whose time has come join their chains, up to ``limit``; how many did.

        Their lanes are `release`d next.
        """
        ids: Any = self._client.zrangebyscore(self._keys.delayed, "-inf", now, start=0, num=limit)
        if not ids:
            return 0
        stored: Any = self._client.hmget(self._keys.ledger, ids)
        entries = [(read_run(text) or {"entry": ""})["entry"] for text in stored]
        admitted = self._scripts.call(
            "admit",
            {n: getattr(self._keys, n) for n in ("leader", "ledger", "delayed", "leases", "unreleased")},
            {**leadership.fence(), "now_ms": now},
            more_keys=map(self._keys.chain, entries),
            more_args=[word for pair in zip(ids, entries, strict=True) for word in pair],
        )
        return int(unfenced(admitted))

    def release(self, leadership: Leadership, *, limit: int, now: Instant) -> tuple[int, list[str]]:
        """Go on with up to ``limit`` lanes whose release stopped at its budget; how many were looked at,
        and the runs whose messages were pushed."""
        lanes: Any = self._client.zrange(self._keys.unreleased, 0, limit - 1)
        if not lanes:
            return 0, []
        names = [lane.decode() for lane in lanes]
        answer = self._scripts.call(
            "release",
            {
                n: getattr(self._keys, n)
                for n in (
                    "leader",
                    "ledger",
                    "templates",
                    "outbox",
                    "leases",
                    "policies",
                    "ended",
                    "unreleased",
                    "stopped",
                )
            },
            {**leadership.fence(), "db": self._db, "now_ms": now},
            more_keys=[key for name in names for key in (self._keys.active(name), self._keys.chain(name))],
            more_args=names,
        )
        looked_at, pushed = unfenced(answer)
        return looked_at, [run.decode() for run in pushed]

    def active(self, entry: str) -> list[str]:
        """The entry's runs that are queued or running."""
        ids: Any = self._client.zrange(self._keys.active(entry), 0, -1)
        return [run.decode() for run in ids]

    def revocations(self) -> dict[str, bool]:
        """Tasks that commits have ended and workers may still execute; whether to terminate them."""
        found: Any = self._client.hgetall(self._keys.revocations)
        return {task.decode(): kind == b"terminate" for task, kind in found.items()}

    def revoked(self, task_ids: Sequence[str]) -> None:
        """The workers have been told of these."""
        if task_ids:
            self._client.hdel(self._keys.revocations, *task_ids)

    def run(self, run_id: str) -> dict[str, Any] | None:
        """One run as it is recorded; None too when the record cannot be read."""
        stored: Any = self._client.hget(self._keys.ledger, run_id)
        return read_run(stored)

    def lease(self, run_id: str) -> Instant | None:
        """When the lease of a run ends; None when it has none."""
        until: Any = self._client.zscore(self._keys.leases, run_id)
        return None if until is None else int(until)

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

    def published(self, runs: Mapping[str, Mapping[str, Any]]) -> None:
        """Take runs off the outbox that the broker has confirmed, each with its stored template: the time
        in which they have to be claimed begins now."""
        if runs:
            self._scripts.call(
                "published",
                {name: getattr(self._keys, name) for name in ("ledger", "leases", "outbox")},
                {"now_ms": 0},
                more_args=[
                    part
                    for run_id, template in runs.items()
                    for part in (run_id, template.get("countdown_ms") or 0, template.get("expires_ms") or 0)
                ],
            )

    def template(self, template_id: str) -> dict[str, Any] | None:
        """A stored template; None too when it cannot be read."""
        stored: Any = self._client.hget(self._keys.templates, template_id)
        return read_json(stored)


def unfenced(answer: Any) -> Any:
    """The answer of a script that only the leader may run; `FencedError` when somebody else leads."""
    if answer is None:
        raise FencedError("another beat leads by now; this one stands down")
    return answer


def _outcome(answer: Sequence[Any]) -> Committed:
    status = answer[0].decode()
    if status == "fenced":
        raise FencedError("another beat leads by now; this one stands down")
    if status == "stale":
        raise StaleWatermarkError(f"entry {answer[1].decode()!r} was decided by another beat in between")
    if status == "unknown":
        raise StoreError(f"template {answer[1].decode()!r} was not kept; the store does not do as it is told")
    told = json.loads(answer[1])
    return Committed(frozenset(told["changed"]), frozenset(told["existing"]), dict(told["damaged"]))
