"""Entries without a policy: exactly as under Celery's own scheduler, but nothing is lost on the way.

Celery's schedules say when they are due. What is different is the order: the message and
the new state become durable together, so that a failing broker delays a run and loses none.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from celery.beat import ScheduleEntry
from celery.schedules import crontab
from celery.utils.time import maybe_make_aware

from celery_catchup.beat.celery_schedules import timetable_of
from celery_catchup.engine import DispatchFailedError, Failures
from celery_catchup.errors import ScheduleError
from celery_catchup.events.log_lines import logfmt, process_events
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
"""How the state of an entry ends that was not declared any more."""
_ANOTHER_TIME = 1000
"""Milliseconds by which a clock differs that tells another time, and was not just looked at later."""


class Sender(Protocol):
    """Makes the message of an entry without a policy, or publishes it where that cannot be atomic."""

    def unmanaged_messages(
        self, entry: ScheduleEntry, *, slot: Instant, now: Instant
    ) -> tuple[str, int, list[str]]:
        """Queue, database and messages to be pushed; no message when it was published already."""


@dataclass
class _Due:
    entry: ScheduleEntry
    at: Instant
    ran_at: Instant
    next_check: float | None
    batch: UnmanagedBatch


class UnmanagedEntries:
    """When each entry is next to be asked, and what is known of it."""

    def __init__(
        self,
        entries: Mapping[str, ScheduleEntry],
        *,
        longest: float,
        monotonic: Callable[[], float] = lambda: 0.0,
        failures: Failures | None = None,
        reserve: Callable[[ScheduleEntry], ScheduleEntry] = next,
        fresh: Collection[str] = (),
        given: Collection[str] = (),
        refused: Mapping[str, str] | None = None,
    ) -> None:
        """Take these entries.

        ``reserve`` makes an entry's next instance, as Celery's scheduler does. ``fresh`` entries count from
        their own last run, whatever is stored; those with a ``given`` last run do when nothing is stored.
        ``refused`` entries cannot be used, and why.
        """
        self.entries = dict(entries)
        self._reserve, self._refused = reserve, dict(refused or {})
        self._fresh, self._given = set(fresh), frozenset(given)
        self._monotonic = monotonic
        self._stored: dict[str, str] = {}
        self._heap: list[tuple[Instant, str]] = []
        self._failures = Failures(process_events()) if failures is None else failures
        self._longest = longest

    def load(
        self,
        last_runs: Mapping[str, str],
        now: Instant,
        *,
        decided: Mapping[str, str] | None = None,
        present: Collection[str] | None = None,
        reset: bool = False,
    ) -> list[UnmanagedBatch]:
        """Take over what is stored; what is to be noted of entries seen for the first time comes back.

        ``decided`` is how far entries were seen to under a policy, if they had one meanwhile. An entry that
        is not ``present`` any more is noted as removed: if it comes back, it counts from then on. With
        ``reset`` all entries count from now on.
        """
        self._stored = {name: last_runs.get(name, "") for name in self.entries}
        new = []
        for name, entry in self.entries.items():
            try:
                ran_at, count = self._since(entry, now, reset=reset)
                value = _format(ran_at, count)
                if value != self._stored[name]:
                    new.append(UnmanagedBatch(name, self._stored[name], value))
                under_policy = (decided or {}).get(name, "")
                if under_policy.isdecimal() and ran_at < int(under_policy) <= now:
                    ran_at = int(under_policy)
                entry.last_run_at, entry.total_run_count = _by_its_clock(entry, ran_at), count
            except Exception as error:  # noqa: BLE001 - a clock of the user's own may raise anything
                self._failures.record(name, repr(error), now=now, due=now)
        for name, reason in self._refused.items():
            self._failures.record(name, reason, now=now, due=now)
        self._heap = [(now, name) for name in self.entries]
        heapq.heapify(self._heap)
        if present is not None:
            kept = {*present, *self._refused}
            new += [
                UnmanagedBatch(name, value, value + _REMOVED)
                for name, value in last_runs.items()
                if name not in kept and not value.endswith(_REMOVED)
            ]
        return new

    def _since(self, entry: ScheduleEntry, now: Instant, *, reset: bool) -> tuple[Instant, int]:
        """When the entry last ran, by its own clock, and how often; one that begins anew counts from now, or
        from a last run of its own."""
        name, stored = entry.name, self._stored[entry.name]
        known = None if reset or name in self._fresh else _parse(stored)
        came_back = stored.endswith(_REMOVED)
        if known is not None and came_back and getattr(entry, "once_since", None) is not None:
            return known  # a row that runs once compares its last run with when it was enabled again
        if known is not None and not came_back:
            return known
        if name in self._fresh or name in self._given:
            return last_run(entry), entry.total_run_count
        clock = to_instant(_clock_of(entry))
        return now + _ahead(clock, now), 0

    def noted(self, batches: Iterable[UnmanagedBatch]) -> None:
        """These are stored now."""
        self._stored.update({batch.name: batch.value for batch in batches})
        self._fresh.clear()

    def send_due(
        self,
        now: Instant,
        sender: Sender,
        commit: Callable[[list[UnmanagedBatch]], bool],
        *,
        limit: int,
        has_time: Callable[[], bool] = lambda: True,
    ) -> None:
        """Send what is due, up to a number of entries and of bytes and while ``has_time`` says so, in one
        step with its state; the others are due at the next tick. Messages that had to be published are
        recorded every 50 milliseconds, so that a beat that is killed leaves few of them to be sent again.

        `DispatchFailedError` when the broker is at fault: then no other entry needs to try it, and
        all of them stay due.
        """
        due: list[_Due] = []
        left, size, begun = limit, 0, self._monotonic()
        try:
            while self._heap and self._heap[0][0] <= now and left and size < MOST_BYTES and has_time():
                # It leaves the heap when that worked: an entry that is not there would never be asked again.
                one = self._ask(self.entries[self._heap[0][1]], now, sender)
                heapq.heappop(self._heap)
                if one is not None:
                    left -= 1
                    due.append(one)
                    if not one.batch.messages and self._monotonic() - begun >= _UNRECORDED:
                        published, due = due, []
                        self._settle(published, now, commit)
                        begun = self._monotonic()
                    size += sum(map(len, one.batch.messages))
        finally:
            self._settle(due, now, commit)

    def _settle(self, due: list[_Due], now: Instant, commit: Callable[[list[UnmanagedBatch]], bool]) -> None:
        """Make it durable; whatever goes wrong, an entry that was not sent is due at the next tick."""
        sent = False
        try:
            sent = bool(due) and commit([one.batch for one in due])
        finally:
            for one in due:
                if sent:
                    self._sent(one)
                else:
                    heapq.heappush(self._heap, (now, one.entry.name))

    def _ask(self, entry: ScheduleEntry, now: Instant, sender: Sender) -> _Due | None:
        """Whether the entry is due; else when to ask again. One that fails is asked again later."""
        at = now
        try:
            is_due, following = entry.is_due()
            # The schedule has looked at the clock by itself, later than this tick began; a run that is
            # noted for an earlier time than its slot would be due again after a restart.
            ran_at = to_instant(_clock_of(entry))
            ahead = _ahead(ran_at, now)
            at = max(now, ran_at - ahead)
            ran_at = at + ahead
            slot = _slot_of(entry, ran_at) - ahead if is_due else at
        except Exception as error:  # a schedule of the user's own may raise anything
            if entry.name not in self._failures:  # with its traceback, once
                logger.exception(
                    logfmt("Entry cannot be asked when it is due", entry=entry.name, error=repr(error))
                )
            self._later(entry.name, self._failed(entry.name, repr(error), at), at)
            return None
        if is_due:
            try:
                return self._due(entry, slot, following, at, ran_at, sender)
            except STORE_FAILS:
                raise
            except Exception as error:  # so may what makes its message
                if isinstance(error, DispatchFailedError) and error.temporary:
                    raise
                following = self._failed(entry.name, str(error), at)
        else:
            self._failures.over(entry.name)
        self._later(entry.name, following, at)
        return None

    def _failed(self, name: str, reason: str, at: Instant) -> float:
        """Report it, and try again less and less often; the seconds until then."""
        due = self._failures.due_of(name)
        return self._failures.record(name, reason, now=at, due=at if due is None else due) / 1000

    def _due(
        self,
        entry: ScheduleEntry,
        slot: Instant,
        following: float | None,
        at: Instant,
        ran_at: Instant,
        sender: Sender,
    ) -> _Due:
        sent: tuple[str, int, list[str]] = ("", 0, [])
        try:
            sent = sender.unmanaged_messages(entry, slot=slot, now=at)
        except DispatchFailedError as error:
            if not error.guarded:
                raise
            logger.info(
                logfmt(
                    "Run skipped",
                    entry=entry.name,
                    scheduled_time=to_rfc3339(slot),
                    reason=SkipReason.GUARD_BLOCKED,
                    detail=str(error),
                )
            )
        value = _format(ran_at, entry.total_run_count + 1)
        batch = UnmanagedBatch(entry.name, self._stored[entry.name], value, *sent)
        return _Due(entry, at, ran_at, following, batch)

    def _sent(self, one: _Due) -> None:
        logger.debug(logfmt("Run dispatched", entry=one.entry.name, task=one.entry.task))
        self.noted([one.batch])
        name = one.entry.name
        self._failures.over(name)
        self.entries[name] = self._following(one)
        self._later(name, one.next_check, one.at)

    def _following(self, one: _Due) -> ScheduleEntry:
        """The next instance of an entry that was sent."""
        ran_at = _by_its_clock(one.entry, one.ran_at)
        try:
            following = self._reserve(one.entry)
            following.last_run_at = ran_at
        except Exception as error:  # a scheduler or an entry of the user's own may raise anything
            logger.exception(logfmt("Entry has no next instance", entry=one.entry.name, error=repr(error)))
            one.entry.last_run_at, one.entry.total_run_count = ran_at, one.entry.total_run_count + 1
            return one.entry
        return following

    def _later(self, name: str, seconds: Any, at: Instant) -> None:
        wait = seconds if isinstance(seconds, int | float) else self._longest
        # At least a millisecond: a schedule that wants to be asked again at once is asked in the next tick.
        heapq.heappush(self._heap, (at + max(1, math.ceil(min(wait, self._longest) * 1000)), name))

    def next_wake(self) -> Instant | None:
        """When the next entry is to be asked."""
        return self._heap[0][0] if self._heap else None


def _slot_of(entry: ScheduleEntry, at: Instant) -> Instant:
    """The slot that a run is for: the newest of a cron table, else when it became due."""
    newest = _newest(entry, at)
    if newest is not None:
        return newest
    before = _clock_of(entry)
    remaining = entry.schedule.remaining_estimate(entry.last_run_at)
    # The schedule looks at the clock a little later, so the sum is short by some microseconds.
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
    """What time it is by the entry's own clock."""
    moment: datetime = maybe_make_aware(entry.default_now())
    return moment


def _ahead(by_its_clock: Instant, now: Instant) -> int:
    """Milliseconds by which the entry's clock is ahead: one that gives local time without a zone, say."""
    ahead = by_its_clock - now
    return ahead if abs(ahead) >= _ANOTHER_TIME else 0


def _by_its_clock(entry: ScheduleEntry, ran_at: Instant) -> datetime:
    """A time by the entry's clock as that clock would give it: in its zone, in which relative intervals
    are rounded, or without one."""
    moment, zone = to_datetime(ran_at), entry.default_now().tzinfo
    return moment.replace(tzinfo=None) if zone is None else moment.astimezone(zone)


def _format(ran_at: Instant, count: int) -> str:
    return f"{ran_at} {count}"


def _parse(text: str) -> tuple[Instant, int] | None:
    ran_at, _, count = text.removesuffix(_REMOVED).partition(" ")
    return (int(ran_at), int(count)) if ran_at.isdecimal() and count.isdecimal() else None


def last_run(entry: ScheduleEntry) -> Instant:
    """When the entry last ran, as an instant."""
    moment: datetime = entry.schedule.maybe_make_aware(entry.last_run_at)
    return to_instant(moment)
