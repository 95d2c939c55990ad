"""Entries and backfills that fail: retried at growing intervals, and reported to the store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from celery_catchup.errors import CatchupError
from celery_catchup.events import EntryFailed, Events
from celery_catchup.events.backoff import backoff
from celery_catchup.model import Instant

_LONGEST_RETRY = 60_000
"""Milliseconds between two tries, at the most."""
_LONGEST_REASON = 500
"""Characters of a reason that are kept."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What fails, why, since when and how often. ``due`` is the slot that stays undecided for it; None
    for a backfill, whose slots are not due."""

    entry: str
    reason: str
    since: Instant
    times: int
    retry_at: Instant
    due: Instant | None

    def encoded(self) -> str:
        """As the store keeps it."""
        fields = {"entry": self.entry, "reason": self.reason, "since": self.since, "times": self.times}
        return json.dumps({**fields, "retry_at": self.retry_at, "due": self.due})


class Failures:
    """What fails at present. The key is an entry's name, or a backfill's lane.

    One entry's trouble is its own: whoever catches an exception of one entry records it here, and
    goes on with the others.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self._all: dict[str, Failure] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._all

    def record(
        self, key: str, reason: str, *, now: Instant, entry: str | None = None, due: Instant | None = None
    ) -> int:
        """Report that it failed (again); the milliseconds until the next try."""
        before = self._all.get(key)
        times = 1 if before is None else before.times + 1
        delay = backoff(times, shortest=1000, longest=_LONGEST_RETRY)
        since = now if before is None else before.since
        self._all[key] = Failure(entry or key, reason[:_LONGEST_REASON], since, times, now + delay, due)
        self._events.emit(EntryFailed(entry or key, reason, delay / 1000))
        return delay

    def due_of(self, key: str) -> Instant | None:
        """The slot that stays undecided for it."""
        return self._all[key].due if key in self._all else None

    def waits(self, key: str, now: Instant) -> bool:
        """Whether it is too early for the next try."""
        return key in self._all and self._all[key].retry_at > now

    def over(self, key: str) -> None:
        """It works again, or there is nothing left to do."""
        self._all.pop(key, None)

    def clear(self) -> None:
        """Another beat leads."""
        self._all.clear()

    def oldest_due(self) -> Instant | None:
        """The oldest slot that is undecided because its entry fails."""
        return min((one.due for one in self._all.values() if one.due is not None), default=None)

    def encoded(self) -> Mapping[str, str]:
        """As the store keeps them."""
        return {key: one.encoded() for key, one in self._all.items()}


def told(error: Exception) -> str:
    """What failed, in a line; our own errors say it by themselves."""
    if isinstance(error, CatchupError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
