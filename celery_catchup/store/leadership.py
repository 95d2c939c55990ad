"""Leadership: one beat leads, the others watch the record of its lease."""

from __future__ import annotations

import secrets
import socket
from dataclasses import dataclass

from celery_catchup.clock import Clock
from celery_catchup.model import Instant
from celery_catchup.store.keys import Keys
from celery_catchup.store.scripts import Scripts

# The leader stops trusting its lease this much before it ends, so that a slow write cannot
# begin inside and arrive outside; the fence in every script is what keeps it safe.
_MARGIN = 0.2


@dataclass(frozen=True, slots=True)
class Term:
    """What one call of `Leadership.lead` learnt: who leads, and whether something waits to be sent.

    ``lost``: the server has forgotten something that it had acknowledged to this process.
    """

    leads: bool
    epoch: int
    owner: str
    version: int
    server_ms: int
    outbox: int
    delayed: Instant | None
    overdue: int
    lost: bool = False


class Leadership:
    """This process's part in the election. Its name tells people the host, and is random beyond that:
    hosts and pids are not unique."""

    def __init__(self, scripts: Scripts, keys: Keys, *, clock: Clock, ttl_ms: int) -> None:
        self._scripts, self._keys, self._clock, self._ttl_ms = scripts, keys, clock, ttl_ms
        self.owner = f"{socket.gethostname()[:60]}:{secrets.token_hex(6)}"
        self.epoch = 0
        self._trusted_until = 0.0
        self._observed = ("", 0.0)
        self._latest = (0, 0)
        self._length = ttl_ms

    def lead(self, *, now: Instant, watermark: Instant | None = None) -> Term:
        """Lead or go on leading when possible; the watermark moves forward with it.

        A standby takes over when the leader's record has not changed for its length by
        this process's monotonic clock: no other clock is asked.
        """
        begun = self._clock.monotonic()
        seen, since = self._observed
        stale = seen and begun - since >= self._length / 1000
        leads, epoch, beat, owner, ttl_ms, version, server_ms, outbox, delayed, overdue = self._scripts.call(
            "lead",
            {
                "leader": self._keys.leader,
                "meta": self._keys.meta,
                "scheduler": self._keys.scheduler,
                "version": self._keys.version,
                "outbox": self._keys.outbox,
                "delayed": self._keys.delayed,
                "leases": self._keys.leases,
                "retries": self._keys.retries,
                "outages": self._keys.outages,
                "unreleased": self._keys.unreleased,
            },
            {
                "owner": self.owner,
                "ttl_ms": self._ttl_ms,
                "seen": seen if stale else "",
                "known_epoch": self._latest[0],
                "known_beat": self._latest[1],
                "watermark": "" if watermark is None else watermark,
                "now_ms": now,
            },
        )
        self.epoch = epoch if leads else 0
        self._trusted_until = begun + self._ttl_ms / 1000 * (1 - _MARGIN) if leads else 0.0
        # Dated when the answer is here: this process may have been stopped since the question.
        self._observe(f"{_text(owner)} {epoch} {beat}", self._clock.monotonic(), ttl_ms)
        lost = self._went_back((epoch, beat), renewed=bool(leads))
        return Term(
            bool(leads),
            epoch,
            _text(owner),
            version,
            server_ms,
            outbox,
            None if delayed < 0 else delayed,
            overdue,
            lost,
        )

    def _observe(self, record: str, at: float, ttl_ms: int) -> None:
        if self._observed[0] != record:
            self._observed = (record, at)
        self._length = ttl_ms or self._ttl_ms

    def _went_back(self, record: tuple[int, int], *, renewed: bool) -> bool:
        """Whether the record is older than one seen before. Epoch and beat only ever grow, so the
        server was emptied then, or is a replica that had not heard everything."""
        latest, self._latest = self._latest, record
        return record <= latest if renewed else record < latest

    @property
    def trusted(self) -> bool:
        """Whether the lease can still be relied on without asking."""
        return self._clock.monotonic() < self._trusted_until

    def fence(self) -> dict[str, str | int]:
        """What every write of the leader carries."""
        return {"owner": self.owner, "epoch": self.epoch}

    def resign(self) -> None:
        """Let a standby take over at once."""
        if self.epoch:
            self._scripts.call("resign", {"leader": self._keys.leader}, self.fence())
            self.epoch, self._trusted_until = 0, 0.0


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
