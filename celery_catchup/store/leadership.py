"""Leadership: one beat leads, the others watch the record of its lease."""

from __future__ import annotations

import secrets
import socket
from dataclasses import dataclass
from typing import Any

from redis import Redis

from celery_catchup.clock import Clock
from celery_catchup.errors import CatchupError
from celery_catchup.model import Instant, to_instant
from celery_catchup.store.keys import Keys
from celery_catchup.store.scripts import Scripts

_RENEW_AFTER = 1 / 3
"""Part of the lease after which `Leadership.keep` renews it."""
_TRUST = 0.8
"""Part of the lease in which the leader relies on it, so that a slow publish cannot begin inside and
arrive outside. Writes to the store are safe without it: every script compares the fence."""


_FORGET_MS = 3600 * 1000
"""Milliseconds after which a silent standby is forgotten."""
_RESTART_MS = 3 * 60 * 1000
"""Milliseconds that a standby may be away while it is started again."""
_MOST_STANDBYS = 50


class FencedError(CatchupError):
    """Another beat leads, or may lead; nothing was written."""


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

    def __init__(
        self, scripts: Scripts, keys: Keys, *, clock: Clock, ttl_ms: int, run_ttl_ms: int = 60_000
    ) -> None:
        self._scripts, self._keys, self._clock, self._ttl_ms = scripts, keys, clock, ttl_ms
        self._run_ttl_ms = run_ttl_ms
        self.owner = f"{socket.gethostname()[:60]}:{secrets.token_hex(6)}"
        self.epoch = 0
        self._renewed_at = 0.0
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
                "contact": self._keys.contact,
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
                "run_ttl_ms": self._run_ttl_ms,
            },
        )
        self.epoch = epoch if leads else 0
        self._renewed_at = begun
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

    def keep(self) -> bool:
        """Go on leading within a tick; whether the lease had to be renewed for it.

        Costs nothing during the first third of the lease, so every loop that may take long, and
        everything that publishes, calls it each time. Raises `FencedError` when another beat leads,
        or when the renewal took so long that another one may.
        """
        renewed = self._renew_in_time()
        if renewed and self._age() >= _TRUST:
            raise FencedError("the lease was renewed too late to be relied on; this tick ends here")
        return renewed

    def fence(self) -> dict[str, str | int]:
        """What every write of the leader carries. The lease is renewed first when it is time; how long
        that took does not matter, because the script that writes compares."""
        self._renew_in_time()
        return self._fence()

    def _fence(self) -> dict[str, str | int]:
        return {"owner": self.owner, "epoch": self.epoch}

    def _age(self) -> float:
        """How much of the lease has passed since the last renewal was asked for."""
        return (self._clock.monotonic() - self._renewed_at) * 1000 / self._ttl_ms

    def _renew_in_time(self) -> bool:
        if self.epoch and self._age() < _RENEW_AFTER:
            return False
        begun = self._clock.monotonic()
        beat = self.epoch and self._scripts.call(
            "keep",
            {"leader": self._keys.leader, "scheduler": self._keys.scheduler},
            {**self._fence(), "known_beat": self._latest[1], "now_ms": to_instant(self._clock.now())},
        )
        if not beat:
            self.epoch = 0
            raise FencedError("another beat leads by now; this one stands down")
        self._renewed_at, self._latest = begun, (self.epoch, beat)
        return True

    def watch(self, declares: str, *, now: Instant) -> Instant | None:
        """Note that this beat stands by with these entries, told by their digest; since when they are
        others than the leader's, or None."""
        since: int = self._scripts.call(
            "watch",
            {"meta": self._keys.meta, "standbys": self._keys.standbys},
            {
                "owner": self.owner,
                "declares": declares,
                "now_ms": now,
                "forget_ms": _FORGET_MS,
                "most": _MOST_STANDBYS,
                "restart_ms": _RESTART_MS,
            },
        )
        return None if since < 0 else since

    def resign(self) -> None:
        """Let a standby take over at once."""
        if self.epoch:
            self._scripts.call("resign", {"leader": self._keys.leader}, self._fence())
            self.epoch = 0


def standbys(client: Redis, keys: Keys) -> dict[str, tuple[Instant, Instant | None]]:
    """Each beat that stands by or did: when it was last seen, and since when its entries are others
    than the leader's."""
    stored: Any = client.hgetall(keys.standbys)
    found: dict[str, tuple[Instant, Instant | None]] = {}
    for beat, record in stored.items():
        seen, _, rest = record.decode(errors="replace").partition(" ")
        since = rest.partition(" ")[0]
        if seen.isdecimal():
            found[beat.decode(errors="replace")] = int(seen), int(since) if since.isdecimal() else None
    return found


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
