"""Leader election: one beat leads, the others watch the record of its lease."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from celery_catchup.clock import Clock
from celery_catchup.errors import CatchupError
from celery_catchup.model import Instant, to_instant
from celery_catchup.store.store import Store, StorePart, texts

_RENEW_AFTER = 1 / 3
"""Part of the lease after which `Leadership.keep` renews it."""
_TRUST = 0.8
"""Part of the lease in which the leader relies on it, so that a slow publish cannot begin inside it and
arrive after it. Writes to the store are safe without it: every script compares the fence."""

_FORGET_MS = 3600 * 1000
"""Milliseconds after which a silent standby is forgotten."""
_RESTART_MS = 3 * 60 * 1000
"""Milliseconds that a standby may be away during a restart."""
_MOST_STANDBYS = 50
_FENCED = "another beat leads now; this one stands down"


class FencedError(CatchupError):
    """Another beat leads, or may lead; nothing was written."""


@dataclass(frozen=True, slots=True)
class Term:
    """The answer to `Leadership.lead`: who leads, and whether something waits to be sent.

    ``lost``: the server has lost writes that it had acknowledged to this process. ``entries`` is the latest
    revision of stored entries.
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
    entries: int = 0


class Leadership(StorePart):
    """This process's part in the election. Its name shows the host, and is random beyond that:
    hosts and pids are not unique."""

    def __init__(self, store: Store, *, clock: Clock, ttl_ms: int, run_ttl_ms: int = 60_000) -> None:
        super().__init__(store)
        self._clock, self._ttl_ms, self._run_ttl_ms = clock, ttl_ms, run_ttl_ms
        self.owner = f"{socket.gethostname()[:60]}:{secrets.token_hex(6)}"
        self.epoch = 0
        self._renewed_at = 0.0
        self._observed = ("", 0.0)
        self._latest = (0, 0)
        self._length = ttl_ms

    def lead(self, *, now: Instant, watermark: Instant | None = None) -> Term:
        """Take or keep the lead if possible; the watermark moves forward with it.

        A standby takes over when the leader's record has not changed for its length by this
        process's monotonic clock. No other clock is asked.
        """
        begun = self._clock.monotonic()
        seen, since = self._observed
        stale = seen and begun - since >= self._length / 1000
        answer = self._store.call(
            "lead",
            {
                "owner": self.owner,
                "ttl_ms": self._ttl_ms,
                "seen": seen if stale else "",
                "known_epoch": self._latest[0],
                "known_beat": self._latest[1],
                "watermark": watermark,
                "now_ms": now,
                "run_ttl_ms": self._run_ttl_ms,
            },
        )
        leads, epoch, beat, name, ttl_ms, version, server_ms, outbox, delayed, overdue, entries = answer
        owner = name.decode()
        self.epoch = epoch if leads else 0
        self._renewed_at = begun
        # Read the clock again: this process may have been suspended since the call began.
        self._observe(f"{owner} {epoch} {beat}", self._clock.monotonic(), ttl_ms)
        lost = self._went_back((epoch, beat), renewed=bool(leads))
        first = None if delayed < 0 else delayed
        return Term(bool(leads), epoch, owner, version, server_ms, outbox, first, overdue, lost, entries)

    def _observe(self, record: str, at: float, ttl_ms: int) -> None:
        if self._observed[0] != record:
            self._observed = (record, at)
        self._length = ttl_ms or self._ttl_ms

    def _went_back(self, record: tuple[int, int], *, renewed: bool) -> bool:
        """Whether the record is older than one seen before. Epoch and beat only ever grow, so the
        server was emptied, or is a replica that had not received every write."""
        latest, self._latest = self._latest, record
        return record <= latest if renewed else record < latest

    def keep(self) -> bool:
        """Keep the lead within a tick; return whether the lease had to be renewed for it.

        This costs nothing during the first third of the lease, so every loop that may take long, and
        everything that publishes, calls it each time. Raises `FencedError` if another beat leads, or
        if the renewal took so long that another beat may lead.
        """
        renewed = self._renew_in_time()
        if renewed and self._age() >= _TRUST:
            raise FencedError("the lease was renewed too late to be relied on; this tick ends here")
        return renewed

    def fence(self) -> dict[str, object]:
        """Return the arguments that every write of the leader carries. Renews the lease first if it is
        due; how long that takes does not matter, because the script compares the fence."""
        self._renew_in_time()
        return {"owner": self.owner, "epoch": self.epoch}

    def call(self, name: str, args: Mapping[str, object], **more: Any) -> Any:
        """Run a script that only the leader may run; `FencedError` if another beat leads."""
        answer = self._store.call(name, {**self.fence(), **args}, **more)
        if answer is None:
            raise FencedError(_FENCED)
        return answer

    def _age(self) -> float:
        """Return the part of the lease that has passed since the last renewal began."""
        return (self._clock.monotonic() - self._renewed_at) * 1000 / self._ttl_ms

    def _renew_in_time(self) -> bool:
        if self.epoch and self._age() < _RENEW_AFTER:
            return False
        begun = self._clock.monotonic()
        known = {"owner": self.owner, "epoch": self.epoch, "known_beat": self._latest[1]}
        beat = self.epoch and self._store.call(
            "renew_lead", {**known, "now_ms": to_instant(self._clock.now())}
        )
        if not beat:
            self.epoch = 0
            raise FencedError(_FENCED)
        self._renewed_at, self._latest = begun, (self.epoch, beat)
        return True

    def record_standby(self, declares: str, *, now: Instant) -> Instant | None:
        """Record that this beat stands by with these entries, given by their digest; return since when
        they differ from the leader's, or None."""
        since: int = self._store.call(
            "record_standby",
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
            self._store.call("resign", {"owner": self.owner, "epoch": self.epoch})
            self.epoch = 0


def standbys(store: Store) -> dict[str, tuple[Instant, Instant | None]]:
    """Return each beat that stands by or did: when it was last seen, and since when its entries differ
    from the leader's."""
    found: dict[str, tuple[Instant, Instant | None]] = {}
    for beat, record in texts(store.client.hgetall(store.keys.standbys)).items():
        seen, since, *_ = [*record.split(" "), ""]
        if seen.isdecimal() and len(seen) < 16 and len(since) < 16:
            found[beat] = int(seen), int(since) if since.isdecimal() else None
    return found
