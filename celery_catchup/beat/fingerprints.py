"""Describe schedules for people, and fingerprint them for comparison.

A fingerprint is a short text that changes when the slots change, and stays the same across restarts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import groupby
from typing import Any

from celery.schedules import BaseSchedule, crontab, solar
from celery.schedules import schedule as interval

from celery_catchup.beat.celery_internals import field_as_written
from celery_catchup.beat.celery_schedules import (
    CRON_FIELDS,
    decides_like,
    is_interval_value,
    to_timedelta,
    zone_of,
)
from celery_catchup.beat.simulated_schedules import class_path
from celery_catchup.config.drift import FINGERPRINT_VERSION
from celery_catchup.config.durations import format_duration
from celery_catchup.config.policy import Policy
from celery_catchup.config.schedule_syntax import ScheduleForm, ScheduleSpec
from celery_catchup.model import to_instant, to_rfc3339
from celery_catchup.planning.entry import Role
from celery_catchup.timetables.zones import zone_named

_SEPARATOR = " | "
_PLUMBING = frozenset({"nowfun", "app", "tz", "utc_enabled", "ephem", "cal"})
"""Attributes that Celery keeps in every schedule, or that change while one is used."""
_LONGEST = 120
"""Characters of a fingerprint; a longer one is hashed."""
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_MICROSECOND = timedelta(microseconds=1)


# -- of an entry -------------------------------------------------------------------------


def schedule_roles(form: ScheduleForm) -> Iterator[tuple[Role, ScheduleSpec]]:
    """Yield each schedule of an entry with its role, in the order of their positions."""
    for role, specs in ((Role.START, form.start), (Role.STOP, form.stop), (Role.RESTART, form.restart)):
        for spec in specs:
            yield role, spec


def spec_zone(spec: ScheduleSpec, policy: Policy | None, *, default: tzinfo) -> tzinfo:
    """Return the zone in which a cron string is read: its own, the policy's, or the default."""
    named = (spec.overrides and spec.overrides.timezone) or (policy and policy.timezone)
    return zone_named(named) if named else default


def entry_fingerprint(form: ScheduleForm, policy: Policy | None, zone: tzinfo) -> str:
    """Fingerprint an entry: its schedules with their zones, roles, dates and ids."""
    return _SEPARATOR.join(
        FINGERPRINT_VERSION + _with_role(role, spec, policy, zone) for role, spec in schedule_roles(form)
    )


def former_fingerprint(form: ScheduleForm, policy: Policy | None, zone: tzinfo) -> str:
    """Fingerprint an entry as version 0.1 did, without roles, dates and a schedule's own zone."""
    own = zone_named(policy.timezone) if policy and policy.timezone else zone
    return _SEPARATOR.join(_of_spec(spec, own) for spec in form)


def _with_role(role: Role, spec: ScheduleSpec, policy: Policy | None, zone: tzinfo) -> str:
    parts = [] if role is Role.START else [str(role)]
    parts += [f"#{spec.id}"] if spec.id else []
    parts.append(_of_spec(spec, spec_zone(spec, policy, default=zone)))
    for word, name in (("from", "start_date"), ("until", "end_date")):
        moment = getattr(spec.overrides, name, None) or getattr(policy, name, None)
        parts += [word, to_rfc3339(to_instant(moment))] if moment is not None else []
    return " ".join(parts)


def _of_spec(spec: ScheduleSpec, zone: tzinfo) -> str:
    if isinstance(spec.source, datetime):
        return f"at {to_rfc3339(to_instant(spec.source))}"
    return f"{spec.source}@{zone}" if isinstance(spec.source, str) else fingerprint(spec.source, zone=zone)


# -- of a Celery schedule ----------------------------------------------------------------


def describe(schedule: object) -> str:
    """Describe a schedule for people: ``*/5 * * * *``, ``every 30s``, ``sunrise at 60.2, 24.9``."""
    if isinstance(schedule, crontab):
        fields = ((field_as_written(schedule, name), name) for name in CRON_FIELDS)
        return " ".join(_cron_field(schedule, name) if text is None else str(text) for text, name in fields)
    if isinstance(schedule, interval):
        return f"every {_duration(schedule.run_every)}" + (" relative" if schedule.relative else "")
    if isinstance(schedule, solar):
        return f"{schedule.event} at {schedule.lat}, {schedule.lon}"
    return f"every {_duration(schedule)}" if is_interval_value(schedule) else _stable_repr(schedule)


def fingerprint(schedule: object, *, zone: tzinfo = UTC) -> str:
    """Fingerprint a schedule; two spellings of one crontab have the same.

    ``zone`` is for schedules without an app, as in `timetable_of`.
    """
    text = _fingerprint(schedule, zone)
    if len(text) <= _LONGEST:
        return text
    return f"{class_path(schedule)} {hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _fingerprint(schedule: Any, zone: tzinfo) -> str:
    if is_interval_value(schedule):
        return f"every {_seconds(schedule)}"
    if decides_like(schedule, interval):
        relative = f" relative ({zone_of(schedule, default=zone)})" if schedule.relative else ""
        return f"every {_seconds(schedule.run_every)}{relative}"
    if decides_like(schedule, crontab):
        fields = " ".join(_cron_field(schedule, name) for name in CRON_FIELDS)
        return f"crontab {fields} ({zone_of(schedule, default=zone)})"
    if decides_like(schedule, solar):
        return f"solar {schedule.event} at {float(schedule.lat)}, {float(schedule.lon)}"
    return f"{class_path(schedule)} {_declared(schedule)}"


def _cron_field(schedule: crontab, name: str) -> str:
    return _ranges(frozenset(getattr(schedule, name)), CRON_FIELDS[name])


@lru_cache(maxsize=1024)
def _ranges(values: frozenset[int], every: range) -> str:
    """Format values as ``0,15,30-35``; ``*`` for all."""
    ordered = sorted(values)
    if ordered == list(every):
        return "*"
    # Neighbours are all equally far from their place in the list.
    runs = groupby(enumerate(ordered), lambda place: place[1] - place[0])
    ends = [(run[0][1], run[-1][1]) for run in (list(run) for _, run in runs)]
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ends)


def _duration(every: Any) -> str:
    try:
        return format_duration(to_timedelta(every))
    except (TypeError, ValueError, OverflowError):
        return str(every)


def _seconds(every: Any) -> str:
    """Format seconds to the microsecond, unlike `describe`."""
    try:
        whole, rest = divmod(to_timedelta(every) // _MICROSECOND, 1_000_000)
    except (TypeError, ValueError, OverflowError):
        return str(every)
    return f"{whole}.{rest:06}".rstrip("0").rstrip(".") + "s"


def _declared(schedule: Any) -> str:
    """Format an object by its class's own ``__repr__`` and ``__reduce__``, else by its public attributes."""
    parts = []
    if _is_authored(schedule, "__repr__"):
        parts.append(_stable_repr(schedule))
    if _is_authored(schedule, "__reduce__"):
        parts.append(stable_text(schedule.__reduce__()[1]))
    if parts or not hasattr(schedule, "__dict__"):
        return " ".join(parts) or stable_text(schedule)
    state = vars(schedule).items()
    return stable_text({k: v for k, v in state if k not in _PLUMBING and not k.startswith("_")})


def _is_authored(schedule: object, method: str) -> bool:
    owner = next(kind for kind in type(schedule).__mro__ if method in vars(kind))
    return owner.__module__ not in (BaseSchedule.__module__, object.__module__)


def stable_text(value: Any) -> str:
    """Format a value as a text that is the same in every process."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(sorted(f"{stable_text(k)}: {stable_text(v)}" for k, v in value.items())) + "}"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(stable_text, value))) + "}"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(map(stable_text, value)) + ")"
    return _stable_repr(value)


def _stable_repr(value: object) -> str:
    """Return the repr without addresses in memory."""
    if type(value).__repr__ is object.__repr__:
        return class_path(value)
    try:
        return _ADDRESS.sub("…", repr(value))
    except Exception:  # noqa: BLE001 - a repr that fails must not take the beat with it
        return class_path(value)
