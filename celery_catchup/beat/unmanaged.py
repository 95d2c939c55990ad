"""Send entries without a policy exactly as Celery's own scheduler does, without losing a run.

Celery's schedules say when they are due. Only the order differs: the message and the new state become
durable together, so a failing broker delays a run and loses none.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from celery.beat import ScheduleEntry
from celery.schedules import crontab
from celery.utils.time import maybe_make_aware

from celery_catchup.beat.celery_schedules import timetable_of
from celery_catchup.engine import DispatchFailedError, Failures
from celery_catchup.errors import ScheduleError
from celery_catchup.events.log_lines import logfmt
from celery_catchup.model import Instant, SkipReason, to_datetime, to_instant, to_rfc3339
from celery_catchup.store import UnmanagedBatch
from celery_catchup.store.batches import MOST_BYTES
from celery_catchup.store.error_advice import STORE_FAILS
from celery_catchup.timetables.cron_table import CronTable

logger = logging.getLogger(__name__)

_UNRECORDED = 0.05
"""Seconds after which published messages are recorded; a commit for each would double the cost of many."""
_UP = timedelta(microseconds=999)
"""Rounds an instant up to a millisecond."""
_REMOVED = " removed"
"""The suffix of the stored state of an entry that was removed from the schedule."""
_ANOTHER_TIME = 1000
"""Milliseconds from which on a clock shows another time, and was not just read later."""

Prepared: TypeAlias = tuple[str, int, list[str]]
"""Queue, database and messages to push; no message when it was published already."""


@dataclass
class _Due:
    entry: ScheduleEntry
    at: Instant
    ran_at: Instant
    next_check: float | None
    batch: UnmanagedBatch


@dataclass
class UnmanagedEntries:
    """Entries without a policy, with their stored state and the time of their next check.

    longest    seconds between two checks of an entry, at most
    reserve    advances an entry to its next instance, as Celery's scheduler does
    fresh      entries that count from their own last run, whatever is stored
    given      entries that count from their own last run if nothing is stored
    refused    entries that cannot be used, with the reasons
    """

    entries: dict[str, ScheduleEntry]
    longest: float
    failures: Failures
    monotonic: Callable[[], float]
    reserve: Callable[[ScheduleEntry], ScheduleEntry] = next
    fresh: Collection[str] = ()
    given: Collection[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    _stored: dict[str, str] = field(default_factory=dict)
    _checks: list[tuple[Instant, str]] = field(default_factory=list)

    def load(
        self,
        last_runs: Mapping[str, str],
        now: Instant,
        *,
        decided: Mapping[str, str] | None = None,
        present: Collection[str] | None = None,
        reset: bool = False,
    ) -> list[UnmanagedBatch]:
        """Load the stored last runs; return the state to store for entries that are new.

        ``decided`` is how far entries were decided under a policy, if they had one meanwhile. An entry that
        is not ``present`` is stored as removed: if it comes back, it counts from then on. With
        ``reset`` all entries count from now on.
        """
        self._stored = {name: last_runs.get(name, "") for name in self.entries}
        new = []
        for name, entry in self.entries.items():
            try:
                ran_at, count = self._last_run(entry, now, reset=reset)
                value = _format(ran_at, count)
                if value != self._stored[name]:
                    new.append(UnmanagedBatch(name, self._stored[name], value))
                under_policy = (decided or {}).get(name, "")
                if under_policy.isdecimal() and ran_at < int(under_policy) <= now:
                    ran_at = int(under_policy)
                entry.last_run_at, entry.total_run_count = _by_its_clock(entry, ran_at), count
            except Exception as error:  # noqa: BLE001 - a user's own clock may raise anything
                self.failures.record(name, repr(error), now=now, due=now)
        for name, reason in self.refused.items():
            self.failures.record(name, reason, now=now, due=now)
        self._checks = [(now, name) for name in sorted(self.entries)]
        if present is not None:
            kept = {*present, *self.refused}
            new += [
                UnmanagedBatch(name, value, value + _REMOVED)
                for name, value in last_runs.items()
                if name not in kept and not value.endswith(_REMOVED)
            ]
        return new

    def _last_run(self, entry: ScheduleEntry, now: Instant, *, reset: bool) -> tuple[Instant, int]:
        """Return when the entry last ran, by its own clock, and how often; a new one counts from now, or
        from a last run of its own."""
        name, stored = entry.name, self._stored[entry.name]
        known = None if reset or name in self.fresh else _parse(stored)
        # A row that runs once compares its last run with when it was enabled again.
        runs_once = getattr(entry, "once_since", None) is not None
        if known is not None and (runs_once or not stored.endswith(_REMOVED)):
            return known
        if name in self.fresh or name in self.given:
            return last_run(entry), entry.total_run_count
        clock = to_instant(_clock_of(entry))
        return now + _ahead(clock, now), 0

    def mark_stored(self, batches: Iterable[UnmanagedBatch]) -> None:
        """Remember that these are stored."""
        self._stored.update({batch.name: batch.value for batch in batches})
        self.fresh = ()

    def send_due(
        self,
        now: Instant,
        prepare: Callable[..., Prepared],
        commit: Callable[[list[UnmanagedBatch]], bool],
        *,
        limit: int,
        has_time: Callable[[], bool] = lambda: True,
    ) -> None:
        """Send the entries that are due, each with its new state in one step.

        ``prepare(entry, slot=…, now=…)`` builds the message, or publishes it where the broker cannot take
        it in that step; published messages are recorded every 50 milliseconds, so that a beat that is killed
        leaves few of them to be sent again. What exceeds ``limit``, the bytes of a commit or the time is
        due at the next tick.

        `DispatchFailedError` when the broker fails: all entries stay due.
        """
        due: list[_Due] = []
        left, size, begun = limit, 0, self.monotonic()
        try:
            while self._checks and self._checks[0][0] <= now and left and size < MOST_BYTES and has_time():
                one = self._check(self.entries[self._checks[0][1]], now, prepare)
                heapq.heappop(self._checks)  # only now: an exception must not lose the entry
                if one is not None:
                    left -= 1
                    due.append(one)
                    if not one.batch.messages and self.monotonic() - begun >= _UNRECORDED:
                        published, due = due, []
                        self._commit(published, now, commit)
                        begun = self.monotonic()
                    size += sum(map(len, one.batch.messages))
        finally:
            self._commit(due, now, commit)

    def _commit(self, due: list[_Due], now: Instant, commit: Callable[[list[UnmanagedBatch]], bool]) -> None:
        """Make the runs durable; whatever fails, an entry that was not sent is due at the next tick."""
        sent = False
        try:
            sent = bool(due) and commit([one.batch for one in due])
        finally:
            for one in due:
                if sent:
                    self._advance(one)
                else:
                    heapq.heappush(self._checks, (now, one.entry.name))

    def _check(self, entry: ScheduleEntry, now: Instant, prepare: Callable[..., Prepared]) -> _Due | None:
        """Return the run of an entry that is due; else plan the next check, later and later if it fails."""
        name, at = entry.name, now
        try:
            is_due, wait = entry.is_due()
            # The schedule has read the clock itself, after this tick began. A run that is stored with an
            # earlier time than its slot would be due again after a restart.
            ran_at = to_instant(_clock_of(entry))
            ahead = _ahead(ran_at, now)
            at = max(now, ran_at - ahead)
            ran_at = at + ahead
            slot = _slot_of(entry, ran_at) - ahead if is_due else at
        except Exception as error:  # a user's own schedule may raise anything
            if name not in self.failures:  # with its traceback, once
                logger.exception(
                    logfmt("Entry cannot be asked when it is due", entry=name, error=repr(error))
                )
            self._check_later(name, self._record_failure(name, repr(error), at), at)
            return None
        if is_due:
            try:
                message = self._prepare(entry, slot, at, prepare)
                value = _format(ran_at, entry.total_run_count + 1)
                batch = UnmanagedBatch(name, self._stored[name], value, *message)
                return _Due(entry, at, ran_at, wait, batch)
            except STORE_FAILS:
                raise
            except Exception as error:  # so may the code that builds its message
                if isinstance(error, DispatchFailedError) and error.temporary:
                    raise
                wait = self._record_failure(name, str(error), at)
        else:
            self.failures.over(name)
        self._check_later(name, wait, at)
        return None

    def _prepare(
        self, entry: ScheduleEntry, slot: Instant, at: Instant, prepare: Callable[..., Prepared]
    ) -> Prepared:
        try:
            return prepare(entry, slot=slot, now=at)
        except DispatchFailedError as error:
            if not error.guarded:
                raise
            fields = {"scheduled_time": to_rfc3339(slot), "reason": SkipReason.GUARD_BLOCKED}
            logger.info(logfmt("Run skipped", entry=entry.name, **fields, detail=str(error)))
            return "", 0, []

    def _record_failure(self, name: str, reason: str, at: Instant) -> float:
        """Report it; return the seconds until the next try, more and more of them."""
        due = self.failures.due_of(name)
        return self.failures.record(name, reason, now=at, due=at if due is None else due) / 1000

    def _advance(self, one: _Due) -> None:
        """Advance an entry that was sent to its next instance."""
        entry, name = one.entry, one.entry.name
        logger.debug(logfmt("Run dispatched", entry=name, task=entry.task))
        self.mark_stored([one.batch])
        self.failures.over(name)
        ran_at = _by_its_clock(entry, one.ran_at)
        try:
            following = self.reserve(entry)
            following.last_run_at = ran_at
        except Exception as error:  # a user's own scheduler or entry may raise anything
            logger.exception(logfmt("Entry has no next instance", entry=name, error=repr(error)))
            following, entry.last_run_at = entry, ran_at
            entry.total_run_count += 1
        self.entries[name] = following
        self._check_later(name, one.next_check, one.at)

    def _check_later(self, name: str, seconds: Any, at: Instant) -> None:
        wait = seconds if isinstance(seconds, int | float) else self.longest
        # At least a millisecond: a schedule that wants to be asked at once is asked in the next tick.
        heapq.heappush(self._checks, (at + max(1, math.ceil(min(wait, self.longest) * 1000)), name))

    def next_wake(self) -> Instant | None:
        """Return when the next entry is to be checked."""
        return self._checks[0][0] if self._checks else None


def _slot_of(entry: ScheduleEntry, at: Instant) -> Instant:
    """Return the slot that a run is for: the newest of a cron table, else when it became due."""
    newest = _newest(entry, at)
    if newest is not None:
        return newest
    before = _clock_of(entry)
    remaining = entry.schedule.remaining_estimate(entry.last_run_at)
    # The schedule reads the clock a little later, so the sum is short by some microseconds.
    return at if remaining is None else to_instant(before + remaining + _UP)


def _newest(entry: ScheduleEntry, at: Instant) -> Instant | None:
    if hasattr(entry.schedule, "newest"):  # one of our own forms
        found: Instant | None = entry.schedule.newest(at)
        return found
    if not isinstance(entry.schedule, crontab):
        return None
    try:
        table = timetable_of(
            entry.schedule, zone=entry.app.timezone, anchor=last_run(entry), name=str(entry.name)
        )
    except ScheduleError:
        return None
    return table.previous_before(at + 1) if isinstance(table, CronTable) else None


def _clock_of(entry: ScheduleEntry) -> datetime:
    """Read the entry's own clock."""
    moment: datetime = maybe_make_aware(entry.default_now())
    return moment


def _ahead(by_its_clock: Instant, now: Instant) -> int:
    """Return the milliseconds by which the entry's clock is ahead, such as one with naive local time."""
    ahead = by_its_clock - now
    return ahead if abs(ahead) >= _ANOTHER_TIME else 0


def _by_its_clock(entry: ScheduleEntry, ran_at: Instant) -> datetime:
    """Convert a time of the entry's clock to what that clock returns: in its zone, in which relative
    intervals are rounded, or naive."""
    moment, zone = to_datetime(ran_at), entry.default_now().tzinfo
    return moment.replace(tzinfo=None) if zone is None else moment.astimezone(zone)


def _format(ran_at: Instant, count: int) -> str:
    return f"{ran_at} {count}"


def _parse(text: str) -> tuple[Instant, int] | None:
    ran_at, _, count = text.removesuffix(_REMOVED).partition(" ")
    return (int(ran_at), int(count)) if ran_at.isdecimal() and count.isdecimal() else None


def last_run(entry: ScheduleEntry) -> Instant:
    """Return when the entry last ran."""
    moment: datetime = entry.schedule.maybe_make_aware(entry.last_run_at)
    return to_instant(moment)
