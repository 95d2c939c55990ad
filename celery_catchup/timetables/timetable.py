"""Timetables: the strictly increasing slots of one schedule, forwards and backwards.

Every kind of schedule becomes a timetable. Live ticks, catch-up, preview and backfill read the same
one, so they cannot disagree about when an entry runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Protocol, runtime_checkable

from celery_catchup.errors import ScheduleError
from celery_catchup.model import Instant
from celery_catchup.timetables.zones import LAST_INSTANT

_MICROSECOND = timedelta(microseconds=1)
# Instants are milliseconds; two slots within the same one would be one slot.
_SHORTEST = timedelta(milliseconds=1)


@runtime_checkable
class Timetable(Protocol):
    """The slots of a schedule. Ranges are ``(after, until]`` and are enumerated lazily."""

    def slots(self, after: Instant, until: Instant, *, newest_first: bool = False) -> Iterator[Instant]:
        """Yield the slots in ``(after, until]``, each once, in order (or in reverse)."""

    def count(self, after: Instant, until: Instant) -> int:
        """Count the slots in ``(after, until]``, without listing them where possible."""

    def next_after(self, instant: Instant) -> Instant | None:
        """Return the first slot later than ``instant``; None if there is none before the year 10000."""

    def previous_before(self, instant: Instant) -> Instant | None:
        """Return the last slot earlier than ``instant``; None if there is none."""

    def minimum_distance(self) -> int | None:
        """Return the shortest time between two neighbouring slots in milliseconds; None without two slots."""


@dataclass(frozen=True, slots=True)
class IntervalTable:
    """``anchor + k × every`` for all whole numbers k, from 1970 on.

    The sum is taken in microseconds and then rounded down to a millisecond, so the
    thousandth slot of a third of a second is as exact as the first. A restart does not
    move the phase: only the anchor decides it, and any slot is as good an anchor.
    """

    every: timedelta
    _: KW_ONLY
    anchor: Instant

    def __post_init__(self) -> None:
        if self.every < _SHORTEST:
            raise ScheduleError(f"an interval of {self.every} is too short; use at least 1 ms")

    @property
    def _step(self) -> int:
        """The interval in microseconds."""
        return self.every // _MICROSECOND

    def _at(self, index: int) -> Instant:
        return self.anchor + index * self._step // 1000

    def _index_after(self, instant: Instant) -> int:
        """Return the index of the first slot later than the instant."""
        return -((self.anchor - instant - 1) * 1000 // self._step)

    def _indexes(self, after: Instant, until: Instant) -> range:
        return range(self._index_after(max(after, -1)), self._index_after(min(until, LAST_INSTANT)))

    def slots(self, after: Instant, until: Instant, *, newest_first: bool = False) -> Iterator[Instant]:
        """Yield the slots in ``(after, until]``."""
        indexes = self._indexes(after, until)
        if self._step % 1000:
            return map(self._at, reversed(indexes) if newest_first else indexes)
        # Whole milliseconds are a range: no Python code runs per slot.
        instants = range(self._at(indexes.start), self._at(indexes.stop), self._step // 1000)
        return reversed(instants) if newest_first else iter(instants)

    def count(self, after: Instant, until: Instant) -> int:
        """Count the slots in ``(after, until]`` by one subtraction."""
        return len(self._indexes(after, until))

    def next_after(self, instant: Instant) -> Instant | None:
        """Return the first slot later than the instant."""
        slot = self._at(self._index_after(max(instant, -1)))
        return slot if slot <= LAST_INSTANT else None

    def previous_before(self, instant: Instant) -> Instant | None:
        """Return the last slot earlier than the instant."""
        slot = self._at(self._index_after(min(instant - 1, LAST_INSTANT)) - 1)
        return slot if slot >= 0 else None

    def minimum_distance(self) -> int | None:
        """Return the interval, rounded down to whole milliseconds."""
        return self._step // 1000


@dataclass(frozen=True, slots=True)
class OneSlot:
    """A timetable with a single slot."""

    at: Instant

    def slots(self, after: Instant, until: Instant, *, newest_first: bool = False) -> Iterator[Instant]:
        """Yield the slot if it is in ``(after, until]``."""
        return iter((self.at,) if after < self.at <= until else ())

    def count(self, after: Instant, until: Instant) -> int:
        """Count the slot if it is in ``(after, until]``."""
        return int(after < self.at <= until)

    def next_after(self, instant: Instant) -> Instant | None:
        """Return the slot if it is later than the instant."""
        return self.at if self.at > instant else None

    def previous_before(self, instant: Instant) -> Instant | None:
        """Return the slot if it is earlier than the instant."""
        return self.at if self.at < instant else None

    def minimum_distance(self) -> int | None:
        """Return None: there are no two slots."""
        return None
