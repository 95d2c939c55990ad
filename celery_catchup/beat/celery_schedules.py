"""Celery's schedule objects as timetables, and in words.

Whatever stands under ``schedule`` in ``beat_schedule`` comes through here, except the
cron strings and mappings that this package reads itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, timedelta, tzinfo
from functools import lru_cache
from itertools import groupby
from typing import Any

from celery.schedules import BaseSchedule, crontab, solar
from celery.schedules import schedule as interval

from celery_catchup.beat.simulated_schedules import (
    NotReplayableError,
    SimulatedSchedule,
    class_path,
    solar_step,
)
from celery_catchup.config.durations import format_duration
from celery_catchup.errors import ScheduleError
from celery_catchup.model import Instant, to_instant
from celery_catchup.timetables.cron_table import CronTable, DaylightSaving, cron_table
from celery_catchup.timetables.days import Days
from celery_catchup.timetables.forward_only import ForwardOnlyTable, Step
from celery_catchup.timetables.timetable import IntervalTable, Timetable
from celery_catchup.timetables.zones import usable_zone, zone_named

__all__ = ["NotReplayableError", "describe", "fingerprint", "timetable_of", "zone_of"]

# In the order of a crontab line; the values that mean "every".
_FIELDS = {
    "minute": range(60),
    "hour": range(24),
    "day_of_month": range(1, 32),
    "month_of_year": range(1, 13),
    "day_of_week": range(7),
}
# The methods that say when a schedule is due; who overrides one of them is a schedule of its own kind.
_DECIDING = ("is_due", "remaining_estimate", "remaining_delta", "_delta_to_next", "_next_event")
# What Celery keeps in every schedule, and what changes while one is used.
_PLUMBING = frozenset({"nowfun", "app", "tz", "utc_enabled", "ephem", "cal"})
# Characters of a fingerprint; what is longer is hashed.
_LONGEST = 120
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_MICROSECOND = timedelta(microseconds=1)


def timetable_of(schedule: object, *, zone: tzinfo, anchor: Instant, name: str) -> Timetable:
    """The slots of a Celery schedule, a `timedelta` or a number of seconds.

    ``zone`` is for schedules that belong to no app yet. Intervals count from ``anchor``;
    relative ones and users' own classes are chains that begin there (see `ForwardOnlyTable`:
    the last slot that was decided is as good an anchor as the first, and nearer).

    `NotReplayableError` is raised for a class that can only be asked about the present:
    it has to run as under Celery's beat. Anything else that has no slots is a plain
    `ScheduleError`. Messages begin with ``name``.
    """
    if isinstance(schedule, BaseSchedule):
        return _of_schedule(schedule, zone=zone_of(schedule, default=zone), anchor=anchor, name=name)
    if _is_bare(schedule):
        return _interval(schedule, anchor=anchor, name=name)
    kind = type(schedule).__name__
    raise ScheduleError(f"{name}: expected a Celery schedule, a timedelta or seconds, got {kind}")


def zone_of(schedule: BaseSchedule, *, default: tzinfo) -> tzinfo:
    """The zone in which a schedule reads the wall clock: its own, its app's, or the default.

    Celery's ``tz`` is not asked: it would ask whichever app is current, and keep the answer.
    """
    state, authored = vars(schedule), type(schedule).tz is not BaseSchedule.tz
    app = state.get("_app")
    own = schedule.tz if authored else state.get("tz")
    zone = own or (default if app is None else app.timezone)
    return zone_named(zone) if isinstance(zone, str) else usable_zone(zone)


# -- timetables --------------------------------------------------------------------------


def _of_schedule(schedule: BaseSchedule, *, zone: tzinfo, anchor: Instant, name: str) -> Timetable:
    if _is_plain(schedule, crontab):
        return _cron(schedule, zone=zone, name=name)
    if _is_plain(schedule, interval) and not schedule.relative:
        return _interval(schedule.run_every, anchor=anchor, name=name)
    if _is_plain(schedule, solar):
        return ForwardOnlyTable(solar_step(schedule), anchor=anchor, name=name)
    if _is_djangos(type(schedule), "clocked"):
        return ForwardOnlyTable(_once(to_instant(schedule.clocked_time)), anchor=anchor, name=name)
    simulation = SimulatedSchedule(schedule, zone=zone, name=name)
    if _is_plain(schedule, interval):
        return ForwardOnlyTable(simulation.step, anchor=anchor, name=name, steady_in=zone)
    table = ForwardOnlyTable(simulation.step, anchor=anchor, name=name)
    # A class that cannot be replayed is found out now, and not in the night.
    simulation.check(anchor, table.next_after(anchor))
    return table


def _is_bare(schedule: object) -> bool:
    return isinstance(schedule, timedelta | int | float) and not isinstance(schedule, bool)


def _is_plain(schedule: object, kind: type) -> bool:
    """Whether a schedule of that kind decides just as Celery's own class does."""
    if not isinstance(schedule, kind) or any(method in vars(schedule) for method in _DECIDING):
        return False
    own: Any = type(schedule)
    return not any(_is_overridden(own, method) for method in _DECIDING)


@lru_cache(maxsize=256)
def _is_overridden(kind: Any, method: str) -> bool:
    owner = next((one for one in kind.__mro__ if method in vars(one)), BaseSchedule)
    return owner.__module__ != BaseSchedule.__module__ and not _is_djangos(owner, "TzAwareCrontab")


def _is_djangos(kind: type, name: str) -> bool:
    """Whether it is that class of django-celery-beat, which need not be installed."""
    return kind.__name__ == name and kind.__module__.partition(".")[0] == "django_celery_beat"


def _cron(schedule: crontab, *, zone: tzinfo, name: str) -> CronTable:
    sets = {field: frozenset(getattr(schedule, field)) for field in _FIELDS}
    for field, values in sets.items():
        if not values:
            raise ScheduleError(f"{name}: the crontab's {field} is empty; give it at least one value")
    days = Days(sets["day_of_month"], sets["month_of_year"], sets["day_of_week"])
    return cron_table(sets["minute"], sets["hour"], days, zone, DaylightSaving.CELERY)


def _interval(every: Any, *, anchor: Instant, name: str) -> IntervalTable:
    try:
        return IntervalTable(_duration(every), anchor=anchor)
    except (ScheduleError, TypeError, ValueError, OverflowError) as error:
        raise ScheduleError(f"{name}: {every} is not an interval that can be counted; {error}") from error


def _duration(every: Any) -> timedelta:
    return every if isinstance(every, timedelta) else timedelta(seconds=every)


def _once(slot: Instant) -> Step:
    return lambda last: slot if last < slot else None


# -- in words ----------------------------------------------------------------------------


def describe(schedule: object) -> str:
    """The schedule for people: ``*/5 * * * *``, ``every 30s``, ``sunrise at 60.2, 24.9``."""
    if isinstance(schedule, crontab):
        return " ".join(_as_written(schedule, field) for field in _FIELDS)
    if isinstance(schedule, interval):
        return f"every {_length(schedule.run_every)}" + (" relative" if schedule.relative else "")
    if isinstance(schedule, solar):
        return f"{schedule.event} at {schedule.lat}, {schedule.lon}"
    return f"every {_length(schedule)}" if _is_bare(schedule) else _shown(schedule)


def fingerprint(schedule: object, *, zone: tzinfo = UTC) -> str:
    """A short text that changes when the slots of the schedule change, and not with a restart.

    Two spellings of one crontab are the same. ``zone`` is, as for `timetable_of`, that of
    schedules without an app.
    """
    text = _fingerprint(schedule, zone)
    if len(text) <= _LONGEST:
        return text
    return f"{class_path(schedule)} {hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _fingerprint(schedule: Any, zone: tzinfo) -> str:
    if _is_bare(schedule):
        return f"every {_seconds(schedule)}"
    if _is_plain(schedule, interval):
        relative = f" relative ({zone_of(schedule, default=zone)})" if schedule.relative else ""
        return f"every {_seconds(schedule.run_every)}{relative}"
    if _is_plain(schedule, crontab):
        fields = " ".join(_ranges(getattr(schedule, field), every) for field, every in _FIELDS.items())
        return f"crontab {fields} ({zone_of(schedule, default=zone)})"
    if _is_plain(schedule, solar):
        return f"solar {schedule.event} at {float(schedule.lat)}, {float(schedule.lon)}"
    return f"{class_path(schedule)} {_declared(schedule)}"


def _as_written(schedule: crontab, field: str) -> str:
    written = getattr(schedule, f"_orig_{field}", None)
    if isinstance(written, str | int):
        return str(written)
    return _ranges(getattr(schedule, field), _FIELDS[field])


def _ranges(values: Iterable[int], every: range) -> str:
    """``0,15,30-35``; ``*`` for all."""
    return _spans(frozenset(values), every)


@lru_cache(maxsize=1024)
def _spans(values: frozenset[int], every: range) -> str:
    ordered = sorted(values)
    if ordered == list(every):
        return "*"
    # Neighbours are all equally far from their place in the list.
    runs = groupby(enumerate(ordered), lambda place: place[1] - place[0])
    ends = [(run[0][1], run[-1][1]) for run in (list(run) for _, run in runs)]
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ends)


def _length(every: Any) -> str:
    try:
        return format_duration(_duration(every))
    except (TypeError, ValueError, OverflowError):
        return str(every)


def _seconds(every: Any) -> str:
    """To the microsecond, unlike what people are shown."""
    try:
        whole, rest = divmod(_duration(every) // _MICROSECOND, 1_000_000)
    except (TypeError, ValueError, OverflowError):
        return str(every)
    return f"{whole}.{rest:06}".rstrip("0").rstrip(".") + "s"


def _declared(schedule: Any) -> str:
    """What the author of a class tells of its objects; where he is silent, their public attributes."""
    told = []
    if _is_authored(schedule, "__repr__"):
        told.append(_shown(schedule))
    if _is_authored(schedule, "__reduce__"):
        told.append(stable_text(schedule.__reduce__()[1]))
    return " ".join(told) or stable_text(_public(schedule))


def _public(schedule: Any) -> Any:
    state = getattr(schedule, "__dict__", None)
    if state is None:
        return schedule
    return {key: value for key, value in state.items() if key not in _PLUMBING and not key.startswith("_")}


def _is_authored(schedule: object, method: str) -> bool:
    owner = next(kind for kind in type(schedule).__mro__ if method in vars(kind))
    return owner.__module__ not in (BaseSchedule.__module__, object.__module__)


def stable_text(value: Any) -> str:
    """A text of a value that is the same in every process."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(sorted(f"{stable_text(k)}: {stable_text(v)}" for k, v in value.items())) + "}"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(stable_text, value))) + "}"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(map(stable_text, value)) + ")"
    return _shown(value)


def _shown(value: object) -> str:
    """Its repr without addresses in memory, which tell nobody anything."""
    if type(value).__repr__ is object.__repr__:
        return class_path(value)
    try:
        return _ADDRESS.sub("…", repr(value))
    except Exception:  # noqa: BLE001 - a repr that fails must not take the beat with it
        return class_path(value)
