"""Leader election: one beat leads, the others watch the record of its lease."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from celery_catchup.clock import Clock
from celery_catchup.config.settings import LONGEST_SILENCE
from celery_catchup.errors import CatchupError
from celery_catchup.model import Instant, to_instant
from celery_catchup.store.store import StartedCall, Store, StorePart, texts

_RENEW_EVERY = 1 / 4
"""Part of the lease after which it is renewed beside the ticks."""
_RENEW_AFTER = 1 / 3
"""Part of the lease after which a tick renews it itself."""
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


def led(answer: Any) -> Any:
    """Return the answer of a script that only the leader may run; `FencedError` if another beat leads."""
    if answer is None:
        raise FencedError(_FENCED)
    return answer


@dataclass(frozen=True, slots=True)
class Term:
    """The answer to `Leadership.lead`: who leads, and whether something waits to be sent.

    ``lost``: the server has lost writes that it had acknowledged to this process. ``entries`` is the latest
    revision of stored entries, ``died`` the number of runs that ever became dead letters.
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
    died: int = 0


class Leadership(StorePart):
    """This process's part in the election. Its name shows the host, and is random beyond that:
    hosts and pids are not unique.

    With ``every``, which calls a function at intervals beside the ticks and returns how to end that, the
    lease is renewed however long a tick or a sleep takes; without it, ticks renew it. Every change here is
    right in whatever order the answers to both arrive.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        ttl_ms: int,
        run_ttl_ms: int = 60_000,
        every: Callable[[float, Callable[[], None]], Callable[[], None]] | None = None,
    ) -> None:
        super().__init__(store)
        self._clock, self.ttl_ms, self._run_ttl_ms, self._every = clock, ttl_ms, run_ttl_ms, every
        self._silence = max(LONGEST_SILENCE, ttl_ms / 1000)
        self._stop_renewing: Callable[[], None] | None = None
        self._active_at = self._tick_began = 0.0
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
        begun = self._active_at = self._tick_began = self._clock.monotonic()
        (seen, since), before = self._observed, self._latest
        stale = seen and begun - since >= self._length / 1000
        answer = self._store.call(
            "lead",
            {
                "owner": self.owner,
                "ttl_ms": self.ttl_ms,
                "seen": seen if stale else "",
                "known_epoch": before[0],
                "known_beat": before[1],
                "watermark": watermark,
                "now_ms": now,
                "run_ttl_ms": self._run_ttl_ms,
            },
        )
        leads, epoch, beat, name, ttl_ms, version, server_ms, outbox, delayed, overdue, *more, at = answer
        owner = name.decode()
        self.epoch = epoch if leads else 0
        self._renewed_at = max(self._renewed_at, begun) if self.epoch else begun
        if leads and self._every is not None and self._stop_renewing is None:
            self._stop_renewing = self._every(self.ttl_ms / 1000 * _RENEW_EVERY, self._renew_beside)
        # Read the clock again: this process may have been suspended since the call began.
        self._observe(f"{owner} {epoch} {beat} {at.decode()}", self._clock.monotonic(), ttl_ms)
        lost = self._went_back((epoch, beat), before, renewed=bool(leads))
        first = None if delayed < 0 else delayed
        return Term(bool(leads), epoch, owner, version, server_ms, outbox, first, overdue, lost, *more)

    def _observe(self, record: str, at: float, ttl_ms: int) -> None:
        if self._observed[0] != record:
            self._observed = (record, at)
        self._length = ttl_ms or self.ttl_ms

    def until_stale(self) -> float:
        """Return after how many seconds a standby can take over, if the leader stays silent."""
        return self._observed[1] + self._length / 1000 - self._clock.monotonic()

    def _went_back(self, record: tuple[int, int], before: tuple[int, int], *, renewed: bool) -> bool:
        """Whether the record is older than the one known ``before`` the call. Epoch and beat only ever grow,
        so the server was emptied, or is a replica that had not received every write."""
        lost = record <= before if renewed else record < before
        self._latest = record if lost else max(self._latest, record)
        return lost

    def keep(self) -> bool:
        """Keep the lead within a tick; return whether the tick has lasted so long that live slots may wait: a
        third of the time in which it must give a sign of life. It is not told twice of the same third.

        This costs nothing while the lease is young, so every loop that may take long, and everything that
        publishes, calls it each time. Raises `FencedError` if another beat leads, or if the renewal took so
        long that another beat may lead.
        """
        if self._renew_in_time() and self._age() >= _TRUST:
            raise FencedError("the lease was renewed too late to be relied on; this tick ends here")
        if self._active_at - self._tick_began < self._silence * _RENEW_AFTER:
            return False
        self._tick_began = self._active_at
        return True

    def fence(self) -> dict[str, object]:
        """Return the arguments that every write of the leader carries. Renews the lease first if it is
        due; how long that takes does not matter, because the script compares the fence."""
        self._renew_in_time()
        return {"owner": self.owner, "epoch": self.epoch}

    def call(self, name: str, args: Mapping[str, object], **more: Any) -> Any:
        """Run a script that only the leader may run; `FencedError` if another beat leads."""
        return led(self._store.call(name, {**self.fence(), **args}, **more))

    def start(self, name: str, args: Mapping[str, object], **more: Any) -> StartedCall:
        """Send what `call` sends, and return before the script has answered; `led` checks the answer."""
        return self._store.start(name, {**self.fence(), **args}, **more)

    def _age(self) -> float:
        """Return the part of the lease that has passed since the last renewal began."""
        return (self._clock.monotonic() - self._renewed_at) * 1000 / self.ttl_ms

    def _renew_in_time(self) -> bool:
        self._active_at = self._clock.monotonic()
        if self.epoch and self._age() < _RENEW_AFTER:
            return False
        if not self._renew(now=to_instant(self._clock.now())):
            raise FencedError(_FENCED)
        return True

    def _renew(self, *, now: Instant | None) -> bool:
        """Renew the lease; ``now`` records a sign of life of the tick."""
        begun, epoch = self._clock.monotonic(), self.epoch
        known = {"owner": self.owner, "epoch": epoch, "known_beat": self._latest[1]}
        beat = epoch and self._store.call("renew_lead", {**known, "now_ms": now})
        if beat and self.epoch == epoch:
            self._renewed_at = max(self._renewed_at, begun)
            self._latest = max(self._latest, (epoch, beat))
        elif self.epoch == epoch:
            self.epoch = 0
        return bool(beat)

    def _renew_beside(self) -> None:
        """Renew the lease beside the ticks, unless the tick hangs: then a standby takes over."""
        silent = self._clock.monotonic() - self._active_at
        if self.epoch and self._age() >= _RENEW_EVERY / 2 and silent < self._silence:
            self._renew(now=None)

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

    def close(self) -> None:
        """End the renewal beside the ticks."""
        if self._stop_renewing is not None:
            self._stop_renewing()
            self._stop_renewing = None

    def resign(self) -> None:
        """Let a standby take over at once."""
        if self.epoch:
            epoch, self.epoch = self.epoch, 0
            self._store.call("resign", {"owner": self.owner, "epoch": epoch})


def standbys(store: Store) -> dict[str, tuple[Instant, Instant | None]]:
    """Return each beat that stands by or did: when it was last seen, and since when its entries differ
    from the leader's."""
    found: dict[str, tuple[Instant, Instant | None]] = {}
    for beat, record in texts(store.client.hgetall(store.keys.standbys)).items():
        seen, since, *_ = [*record.split(" "), ""]
        if seen.isdecimal() and len(seen) < 16 and len(since) < 16:
            found[beat] = int(seen), int(since) if since.isdecimal() else None
    return found
