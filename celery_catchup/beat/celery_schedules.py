"""Convert Celery's schedule objects to timetables.

Every value under ``schedule`` in ``beat_schedule`` comes through here, except the cron strings and
mappings that this package parses itself.
"""

from __future__ import annotations

from datetime import timedelta, tzinfo
from functools import lru_cache
from typing import Any

from celery.schedules import BaseSchedule, crontab, solar
from celery.schedules import schedule as interval

from celery_catchup.beat.celery_internals import DECIDING_METHODS, app_of
from celery_catchup.beat.simulated_schedules import SimulatedSchedule, solar_step
from celery_catchup.errors import ScheduleError
from celery_catchup.model import Instant, to_instant
from celery_catchup.timetables.cron_table import CronTable, DaylightSaving, Days, cron_table
from celery_catchup.timetables.forward_only import ForwardOnlyTable, Step
from celery_catchup.timetables.timetable import IntervalTable, Timetable
from celery_catchup.timetables.zones import usable_zone, zone_named

CRON_FIELDS = {
    "minute": range(60),
    "hour": range(24),
    "day_of_month": range(1, 32),
    "month_of_year": range(1, 13),
    "day_of_week": range(7),
}
"""The fields in the order of a crontab line, with the values that mean "every"."""


def timetable_of(schedule: object, *, zone: tzinfo, anchor: Instant, name: str) -> Timetable:
    """Build the timetable of a Celery schedule, a `timedelta` or a number of seconds.

    ``zone`` is for schedules that belong to no app yet. Intervals count from ``anchor``. Relative
    intervals and users' own classes are chains that begin there (see `ForwardOnlyTable`: the last
    decided slot is as good an anchor as the first, and nearer).

    `NotReplayableError` is raised for a class that can only be asked about the present: it has to run
    as under Celery's beat. For anything else without slots, `ScheduleError`. Messages begin with ``name``.
    """
    if isinstance(schedule, BaseSchedule):
        return _of_schedule(schedule, zone=zone_of(schedule, default=zone), anchor=anchor, name=name)
    if is_interval_value(schedule):
        return _interval(schedule, anchor=anchor, name=name)
    kind = type(schedule).__name__
    raise ScheduleError(f"{name}: expected a Celery schedule, a timedelta or seconds, got {kind}")


def zone_of(schedule: BaseSchedule, *, default: tzinfo) -> tzinfo:
    """Return the zone in which a schedule reads the wall clock: its own, its app's, or the default.

    Celery's ``tz`` is not used: it would ask whichever app is current, and cache the answer.
    """
    app, authored = app_of(schedule), type(schedule).tz is not BaseSchedule.tz
    own = schedule.tz if authored else vars(schedule).get("tz")
    zone = own or (default if app is None else app.timezone)
    return zone_named(zone) if isinstance(zone, str) else usable_zone(zone)


def is_interval_value(schedule: object) -> bool:
    """Return whether it is a bare interval: a `timedelta` or a number of seconds."""
    return isinstance(schedule, timedelta | int | float) and not isinstance(schedule, bool)


def to_timedelta(every: Any) -> timedelta:
    """Return an interval value as a `timedelta`."""
    return every if isinstance(every, timedelta) else timedelta(seconds=every)


def decides_like(schedule: object, kind: type) -> bool:
    """Return whether it is a schedule of Celery's ``kind`` that overrides none of the deciding methods."""
    if not isinstance(schedule, kind) or any(method in vars(schedule) for method in DECIDING_METHODS):
        return False
    own: Any = type(schedule)
    return not _overrides_decision(own)


@lru_cache(maxsize=256)
def _overrides_decision(kind: Any) -> bool:
    owners = (next((one for one in kind.__mro__ if name in vars(one)), None) for name in DECIDING_METHODS)
    return any(
        owner.__module__ != BaseSchedule.__module__ and not _is_djangos(owner, "TzAwareCrontab")
        for owner in owners
        if owner is not None
    )


def _is_djangos(kind: type, name: str) -> bool:
    """Return whether it is that class of django-celery-beat, which need not be installed."""
    return kind.__name__ == name and kind.__module__.partition(".")[0] == "django_celery_beat"


def _of_schedule(schedule: BaseSchedule, *, zone: tzinfo, anchor: Instant, name: str) -> Timetable:
    if decides_like(schedule, crontab):
        return _cron(schedule, zone=zone, name=name)
    if decides_like(schedule, interval) and not schedule.relative:
        return _interval(schedule.run_every, anchor=anchor, name=name)
    if decides_like(schedule, solar):
        return ForwardOnlyTable(solar_step(schedule), anchor=anchor, name=name)
    if _is_djangos(type(schedule), "clocked"):
        return ForwardOnlyTable(_once(to_instant(schedule.clocked_time)), anchor=anchor, name=name)
    simulation = SimulatedSchedule(schedule, zone=zone, name=name)
    if decides_like(schedule, interval):
        return ForwardOnlyTable(simulation.step, anchor=anchor, name=name, steady_in=zone)
    table = ForwardOnlyTable(simulation.step, anchor=anchor, name=name)
    # A class that cannot be replayed is rejected at start, not at its first slot.
    simulation.check(anchor, table.next_after(anchor))
    return table


def _cron(schedule: crontab, *, zone: tzinfo, name: str) -> CronTable:
    sets = {field: frozenset(getattr(schedule, field)) for field in CRON_FIELDS}
    for field, values in sets.items():
        if not values:
            raise ScheduleError(f"{name}: the crontab's {field} is empty; give it at least one value")
    days = Days(sets["day_of_month"], sets["month_of_year"], sets["day_of_week"])
    return cron_table(sets["minute"], sets["hour"], days, zone, DaylightSaving.CELERY)


def _interval(every: Any, *, anchor: Instant, name: str) -> IntervalTable:
    try:
        return IntervalTable(to_timedelta(every), anchor=anchor)
    except (ScheduleError, TypeError, ValueError, OverflowError) as error:
        raise ScheduleError(f"{name}: {every} is not an interval that can be counted; {error}") from error


def _once(slot: Instant) -> Step:
    return lambda last: slot if last < slot else None
