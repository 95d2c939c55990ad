"""Entries and backfills that fail: retried with back-off, and reported to the store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from celery_catchup.errors import CatchupError
from celery_catchup.events import EntryFailed, Events
from celery_catchup.events.recurring_problems import backoff
from celery_catchup.model import Instant

_LONGEST_REASON = 500
"""Characters of a reason that are kept."""


def retry_delay(failures: int) -> int:
    """Return the milliseconds before the next try, after a number of failures in a row."""
    return backoff(failures, shortest=1_000, longest=60_000)


def describe(error: Exception) -> str:
    """Describe an error in one line; those of this package name the problem by themselves."""
    if isinstance(error, CatchupError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


@dataclass(frozen=True)
class Failure:
    """An entry or backfill that fails, as the store keeps it. ``due`` is the slot that stays undecided;
    None for a backfill, whose slots are not due."""

    entry: str
    reason: str
    since: Instant
    times: int
    retry_at: Instant
    due: Instant | None


class Failures:
    """The present failures, by the name of the entry or the lane of the backfill.

    One failing entry does not stop another: the caller records the failure and continues.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self._all: dict[str, Failure] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._all

    def record(
        self, key: str, reason: str, *, now: Instant, entry: str | None = None, due: Instant | None = None
    ) -> int:
        """Report a failure; return the milliseconds until the next try."""
        before = self._all.get(key)
        times = 1 if before is None else before.times + 1
        delay = retry_delay(times)
        since = now if before is None else before.since
        self._all[key] = Failure(entry or key, reason[:_LONGEST_REASON], since, times, now + delay, due)
        self._events.emit(EntryFailed(entry or key, reason, delay / 1000))
        return delay

    def lasting(self, times: int) -> dict[str, Failure]:
        """Return those that have failed at least so often in a row."""
        return {key: one for key, one in self._all.items() if one.times >= times} if self._all else {}

    def due_of(self, key: str) -> Instant | None:
        """Return the slot that stays undecided."""
        return self._all[key].due if key in self._all else None

    def waits(self, key: str, now: Instant) -> bool:
        """Tell whether it is too early for the next try."""
        return key in self._all and self._all[key].retry_at > now

    def over(self, key: str) -> None:
        """Forget a failure: it works again, or nothing is left to do."""
        self._all.pop(key, None)

    def clear(self) -> None:
        """Forget all failures: another beat leads."""
        self._all.clear()

    def oldest_due(self) -> Instant | None:
        """Return the oldest slot that is undecided because its entry fails."""
        return min((one.due for one in self._all.values() if one.due is not None), default=None)

    def encoded(self) -> Mapping[str, str]:
        """Return all failures as the store keeps them."""
        return {key: json.dumps(vars(one)) for key, one in self._all.items()}
