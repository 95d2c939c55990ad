"""Recorded decisions: who led when, the catch-ups of an entry, and what a waiting run waits for."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile

from celery_catchup.model import Instant
from celery_catchup.planning.recorded_catchup import RecordedCatchup
from celery_catchup.store.store import StorePart, stored_instant

MOST_CATCHUPS = 50
"""Catch-ups that are kept of an entry, the latest; ``commit.lua`` has the same number."""
_FEW = 10


@dataclass(frozen=True, slots=True)
class Leader:
    """A beat that led, since when, and its epoch."""

    epoch: int
    owner: str
    since: Instant


class Decisions(StorePart):
    """Reads who decided what."""

    def leaders(self, epochs: Iterable[int]) -> dict[int, Leader]:
        """Return the leaders of these epochs, as far as they are still known. Two leaders have the same epoch
        only if the server has lost writes; then the later one counts."""
        answers = self._ask(
            epochs, lambda pipe, epoch: pipe.zrangebyscore(self._keys.epochs, epoch, epoch, start=0, num=_FEW)
        )
        found = {}
        for epoch, members in answers.items():
            known = [one for one in map(_leader, members) if one is not None]
            if known:
                found[epoch] = max(known, key=lambda one: one.since)
        return found

    def catchups(self, entry: str) -> list[RecordedCatchup]:
        """Return the entry's latest catch-ups, the oldest first."""
        try:
            rows = json.loads(self._client.hget(self._keys.catchups, entry) or b"[]")
        except (ValueError, RecursionError):
            return []
        return [one for row in rows if (one := _catchup(row)) is not None] if isinstance(rows, list) else []

    def before_in_lane(self, run_id: str, *, lane: str) -> list[str]:
        """Return the first runs that a waiting run waits for: the active ones of its lane, and those that
        wait before it."""
        with self._client.pipeline(transaction=False) as pipe:
            pipe.zrange(self._keys.active(lane), 0, _FEW - 1)
            pipe.zrange(self._keys.chain(lane), 0, _FEW - 1)
            active, waiting = pipe.execute()
        ahead = takewhile(lambda one: one != run_id, (one.decode() for one in waiting))
        return [*(one.decode() for one in active), *ahead]

    def delayed_until(self, run_id: str) -> Instant | None:
        """Return when a run with a delayed start, or a failed one, is sent."""
        with self._client.pipeline(transaction=False) as pipe:
            pipe.zscore(self._keys.delayed, run_id)
            pipe.zscore(self._keys.retries, run_id)
            delayed, retried = pipe.execute()
        return stored_instant(delayed if delayed is not None else retried)


def _leader(member: bytes) -> Leader | None:
    epoch, since, owner = [*member.decode(errors="replace").split(" ", 2), "", ""][:3]
    at = stored_instant(since)
    return Leader(int(epoch), owner, at) if epoch.isdecimal() and at is not None and owner else None


def _catchup(row: object) -> RecordedCatchup | None:
    match row:
        case [int() as at, int() as after, int() as epoch, int() as active, int() as waiting, facts]:
            return RecordedCatchup(
                at, after, epoch, active, waiting, facts if isinstance(facts, dict) else {}
            )
        case _:
            return None
