"""Simulate Celery schedules: when would beat have run an entry after a given instant?

A Celery schedule only knows the present. A clone of it is asked for its next run with a clock that is
frozen at the run before, so that neither the user's object nor the real time is involved.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from celery.schedules import BaseSchedule, crontab, solar

from celery_catchup.errors import ScheduleError
from celery_catchup.model import Instant, to_datetime, to_instant, to_rfc3339
from celery_catchup.timetables.forward_only import Step
from celery_catchup.timetables.zones import LAST_INSTANT

# Calls of is_due for one slot: a weekly slot that is checked every five seconds needs half of them.
_MOST_CHECKS = 250_000
_DAY = timedelta(days=1)
_MINUTE = timedelta(minutes=1)
_HALF_SECOND = timedelta(milliseconds=500)


class NotReplayableError(ScheduleError):
    """The schedule does not depend on time alone: it reads the real time, or is not due when it says so.

    It runs as under Celery's beat; only its missed slots are unknown.
    """


class _FrozenClock:
    """A ``nowfun`` that is frozen, and remembers whether it was called."""

    def __init__(self) -> None:
        self.moment = datetime.min.replace(tzinfo=UTC)
        self.asked = False

    def __call__(self) -> datetime:
        self.asked = True
        return self.moment


class SimulatedSchedule:
    """A clone of a schedule with a frozen clock, in the zone in which beat would ask it."""

    def __init__(self, schedule: BaseSchedule, *, zone: tzinfo, name: str) -> None:
        self._clock = _FrozenClock()
        self._clone = _clone(schedule, self._clock, zone)
        self._zone = zone
        self._subject = f"{name}: {class_path(schedule)}"

    @property
    def step(self) -> Step:
        """Return the function that finds the next slot.

        Beat itself calls only ``is_due``. Following that is slow, so it is done only if a class overrides
        ``is_due`` and not the estimate.
        """
        estimate = min(_depth(self._clone, "remaining_estimate"), _depth(self._clone, "remaining_delta"))
        return self._next_due if _depth(self._clone, "is_due") < estimate else self._next_estimated

    def check(self, last: Instant, slot: Instant | None) -> None:
        """Check that the schedule is due at its own next slot; `NotReplayableError` if not."""
        if slot is None:
            return
        try:
            # A slot is cut to a millisecond, so the schedule may be due a little later.
            due, _ = self._is_due(last, now=slot + 1)
        except ScheduleError:
            return  # the estimate has answered, and only that is needed
        if not due:
            raise NotReplayableError(
                f"{self._subject} is not due at {to_rfc3339(slot)}, its own next time, so it does not depend "
                "on time alone; catch-up is off for it; to have it, let is_due depend on self.now() only"
            )

    # -- by remaining_estimate -----------------------------------------------------------

    def _next_estimated(self, last: Instant) -> Instant | None:
        """Return the instant at which no time remains."""
        moment = to_datetime(last)
        following = self._estimated(moment)
        if following is not None and following > moment and to_instant(following) == last:
            # Within the same millisecond, which is one slot; find the one after it.
            following = self._estimated(following)
        return None if following is None else to_instant(following)

    def _estimated(self, last: datetime) -> datetime | None:
        remaining = self._remaining(last, now=last)
        if remaining is None:
            return None
        try:
            following = last + remaining
            change = self._offset(last) - self._offset(following)
        except OverflowError:
            return None  # beyond the year 9999
        # Python subtracts two times of one zone by their wall clocks, and so do many
        # classes: their estimate is wrong by the change of the offset, until it has passed.
        if change and self._remaining(last, now=following) == change:
            following += change
        return following

    def _remaining(self, last: datetime, *, now: datetime) -> timedelta | None:
        self._clock.asked = False
        remaining = self._call("remaining_estimate", last, now=now)
        if remaining is None:
            return None
        if not isinstance(remaining, timedelta):
            raise ScheduleError(f"{self._subject} estimates {_brief(remaining)}; return a timedelta or None")
        self._require_simulated_time()
        return remaining

    # -- by is_due -----------------------------------------------------------------------

    def _next_due(self, last: Instant) -> Instant | None:
        """Return the instant at which beat, sleeping as long as the schedule says, would find it due."""
        self._clock.asked = False
        now = last
        for _ in range(_MOST_CHECKS):
            due, wait = self._is_due(last, now=now)
            if due and now > last:
                self._require_simulated_time()
                return now
            if wait is None or now + wait > LAST_INSTANT:
                return None
            # "At once" is a millisecond later, or the loop would not end.
            now += max(wait, 1)
        raise NotReplayableError(
            f"{self._subject} is not due at any of {_MOST_CHECKS} checks, so it does not depend on time "
            "alone; catch-up is off for it; to have it, return longer waits"
        )

    def _is_due(self, last: Instant, *, now: Instant) -> tuple[bool, int | None]:
        """Return whether it is due, and the milliseconds until the next check; None for never."""
        answer = self._call("is_due", to_datetime(last), now=to_datetime(now))
        try:
            due, wait = answer
            if wait is None or wait == math.inf:
                return bool(due), None
            # The seconds were computed from microseconds; rounded up, so as not to check too early.
            return bool(due), -(-round(wait * 1_000_000) // 1000)
        except (TypeError, ValueError) as error:
            problem = f"{self._subject} answers is_due with {_brief(answer)}; return (due, seconds to wait)"
            raise ScheduleError(problem) from error

    # -- asking --------------------------------------------------------------------------

    def _call(self, method: str, last: datetime, *, now: datetime) -> Any:
        self._clock.moment = now.astimezone(self._zone)
        try:
            return getattr(self._clone, method)(self._local(last))
        except Exception as error:
            problem = f"{self._subject} failed with {_brief(error)}; correct its {method}"
            raise ScheduleError(problem) from error

    def _local(self, last: datetime) -> datetime:
        local = last.astimezone(self._zone)
        if local.fold and isinstance(self._clone, crontab):
            return _end_of_repetition(local)
        return local

    def _offset(self, moment: datetime) -> timedelta:
        return moment.astimezone(self._zone).utcoffset() or timedelta()

    def _require_simulated_time(self) -> None:
        if not self._clock.asked:
            raise NotReplayableError(
                f"{self._subject} does not ask its nowfun for the time, so its past is unknown; "
                "catch-up is off for it; to have it, call self.now() in it"
            )


def solar_step(schedule: solar) -> Step:
    """Return a function that finds the next solar event after an instant, to the second.

    ephem's result depends, by a tenth of a second, on where its search began. So it always begins
    at midnight UTC of the event's day: same event, same slot, same run.
    """
    search = _solar_search(schedule)

    def step(last: Instant) -> Instant | None:
        moment = to_datetime(last)
        day = begin = _midnight(moment)
        while (event := search(begin)) is not None:
            if not day <= event < day + _DAY:
                day = begin = _midnight(event)
                continue
            slot = to_instant((event + _HALF_SECOND).replace(microsecond=0))
            if slot > last:
                return slot
            # No event comes twice within a minute, but its rounding error does.
            begin = event + _MINUTE
        return None

    return step


def _solar_search(schedule: solar) -> Callable[[datetime], datetime | None]:
    """Return a function that finds the first event after a moment; None for a year without one, as near
    the poles, where Celery returns the end of its search instead."""
    ephem, observer = schedule.ephem, schedule.cal.copy()
    find = getattr(observer, schedule.method)
    options = {"use_center": True} if schedule.use_center else {}
    days = getattr(schedule, "max_search_days", 366)  # Celery 5.7 has the setting

    def search(begin: datetime) -> datetime | None:
        sun, start = ephem.Sun(), ephem.Date(begin.replace(tzinfo=None))
        for _ in range(days):
            try:
                found: datetime = find(sun, start=start, **options).datetime()
                return found.replace(tzinfo=UTC)
            except ephem.CircumpolarError:
                start = observer.next_antitransit(sun, start=start)
        return None

    return search


def class_path(schedule: object) -> str:
    """Return the path of an object's class, such as ``proj.schedules.Workdays``."""
    return f"{type(schedule).__module__}.{type(schedule).__qualname__}"


def _clone(schedule: BaseSchedule, clock: _FrozenClock, zone: tzinfo) -> BaseSchedule:
    """Clone a schedule with our clock and its zone.

    Not with ``copy``: reducing a schedule for pickling loses its app and zone, and may iterate a
    recurrence rule of millions of dates.
    """
    clone = object.__new__(type(schedule))
    # Both, because some classes override now() and read the real time there.
    vars(clone).update(vars(schedule), nowfun=clock, now=clock, tz=zone)
    return clone


def _depth(schedule: BaseSchedule, method: str) -> int:
    """Return how far up a method is defined: 0 in the object itself, 1 in its class, and so on."""
    places = (schedule, *type(schedule).__mro__)
    return next((depth for depth, place in enumerate(places) if method in vars(place)), len(places))


def _end_of_repetition(local: datetime) -> datetime:
    """Return the last minute of a repeated hour, from any time in its second pass.

    Celery ignores the fold and finds the next run in the first pass, in the past. No slot lies in the
    second pass, so none is lost by asking from its end.
    """
    minute = local.astimezone(UTC).replace(second=0, microsecond=0)
    while (minute + _MINUTE).astimezone(local.tzinfo).fold:
        minute += _MINUTE
    return minute.astimezone(local.tzinfo)


def _brief(value: object) -> str:
    return repr(value)[:100]


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)
