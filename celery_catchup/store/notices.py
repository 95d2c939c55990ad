"""The queue of notifications, and what was reported before."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from celery_catchup.model import Instant
from celery_catchup.store.leadership import Leadership
from celery_catchup.store.store import StorePart, portions, read_json, texts

MOST_WAITING = 1000
"""Notifications that wait; one digest for each receiver stands for further ones."""
_CLAIM_MS = 20_000
"""Milliseconds that an attempt may take; then the notification is due again."""
_MOST_DEAD = 500


class Settled(StrEnum):
    """The end of an attempt to send a notification."""

    SENT = "sent"
    FAILED = "failed"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class ClaimedNotice:
    """A notification to send now: how often that was tried, and for how long it waits (ms)."""

    name: str
    notice: dict[str, Any]
    attempts: int
    waiting: int


class Notices(StorePart):
    """Queues notifications, hands them out, and remembers what was reported."""

    def told(self) -> dict[str, str]:
        """Return what was reported, by kind and entry."""
        return texts(self._client.hgetall(self._keys.told))

    def queue(
        self,
        leadership: Leadership,
        notices: Sequence[tuple[str, Mapping[str, Any]]],
        told: Mapping[str, str | None],
        *,
        command: str,
    ) -> int:
        """Queue notifications by name, and record what was reported, None to forget it; return how many went
        into digests because too many wait. A digest suggests the ``command``. `FencedError` if another beat
        leads."""
        rows = [(name, json.dumps(notice, ensure_ascii=False)) for name, notice in notices]
        said = [[field, False if text is None else text] for field, text in told.items()]
        digested = 0
        for part in list(portions(rows)) or [[]]:
            args = {
                "notices": json.dumps(part),
                "told": json.dumps(said),
                "most": MOST_WAITING,
                "command": command,
            }
            digested += int(leadership.call("queue_notices", args))
            said = []
        return digested

    def claim(self, receiver: str, *, owner: str, epoch: int) -> ClaimedNotice | None:
        """Take the next notification of a receiver that is due; None if there is none, or another leads."""
        args = {"owner": owner, "epoch": epoch, "receiver": receiver, "claim_ms": _CLAIM_MS}
        answer = self._store.call("claim_notice", args)
        if not answer:
            return None
        name, notice, attempts, waiting = answer
        return ClaimedNotice(name.decode(), read_json(notice) or {}, attempts, waiting)

    def settle(self, claimed: ClaimedNotice, outcome: Settled, *, retry_ms: int = 0) -> None:
        """Record the end of an attempt."""
        args = {
            "name": claimed.name,
            "outcome": str(outcome),
            "attempt": claimed.attempts + 1,
            "retry_ms": retry_ms,
        }
        self._store.call("settle_notice", args)

    def waiting(self) -> int:
        """Count the notifications that wait."""
        return int(self._client.zcard(self._keys.notices_due))

    def dead_since(self, since: Instant) -> list[tuple[str, Instant]]:
        """Return the dead runs from this moment of the server's clock on, the earliest first."""
        found = self._client.zrangebyscore(self._keys.dead, since, "+inf", 0, _MOST_DEAD, withscores=True)
        return [(run_id.decode(), int(at)) for run_id, at in found]
