"""Parse an entry's ``schedule`` into one form. A user may write

- a cron string, or anything Celery takes: a schedule object, a `timedelta`, seconds;
- a list of these, each a schedule of its own;
- ``{"cron": …, "id": …, "select": …, "window": …}``, or a list of these: schedules with their own policy;
  ``{"every": "15m"}`` is an interval, and ``{"at": "2026-12-01T09:00:00Z"}`` has that one slot;
- ``{"start": …, "stop": …, "restart": …}`` around any of the above.

Only the form is parsed here. Celery's own schedules are passed on unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated, Any, TypeAlias

from pydantic import ValidationInfo, field_validator

from celery_catchup.config.durations import FINE_UNITS, parse_duration
from celery_catchup.config.fields import MOMENT, PAUSE, FieldParser, text, to_utc
from celery_catchup.config.mistakes import Mistakes, config_error
from celery_catchup.config.policy import Policy, SchedulePolicy, zone_of
from celery_catchup.error_text import did_you_mean, nearest, path, shown

_ROLES = ("start", "stop", "restart")
# Only start slots are ever caught up, so these would have no effect.
_CATCH_UP_FIELDS = ("select", "window")
_CRONTAB_ARGUMENTS = {"minute", "hour", "day_of_week", "day_of_month", "month_of_year"}
_LONGEST_ID = 64
_NUMBER = re.compile(r"\d+(\.\d+)?", re.ASCII)
_UNITS = ("days", "hours", "minutes", "seconds", "milliseconds")
EXPECTED_SCHEDULE = "expected a cron string, a list, a mapping or a Celery schedule"


def _cron(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"expected a cron string such as '0 * * * *', got {shown(value)}")


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """One schedule: a cron string, a time in UTC or a Celery schedule; the policy fields it overrides, where
    it was written, and the ``id`` that replaces its position, if it has one."""

    source: object
    overrides: SchedulePolicy | None = None
    where: str = field(default="", compare=False)
    id: str | None = None


def _id(value: object) -> str:
    name = text(value)
    if not name or len(name) > _LONGEST_ID:
        raise ValueError(f"expected a text of 1 to {_LONGEST_ID} characters, got {shown(value)}")
    if name.isdecimal():
        raise ValueError(f"expected a name, got {shown(name)}; a number could be a position, add a letter")
    return name


_KINDS = ("cron", "every", "at")


class _ScheduleMapping(SchedulePolicy):
    cron: Annotated[str | None, FieldParser(_cron, "cron string")] = None
    every: Annotated[timedelta | None, PAUSE] = None
    at: Annotated[datetime | None, MOMENT] = None
    id: Annotated[str | None, FieldParser(_id, "short text", optional=True)] = None

    @field_validator("at")
    @classmethod
    def _at_in_utc(cls, value: datetime | None, info: ValidationInfo) -> datetime | None:
        return None if value is None else to_utc(value, zone=zone_of(info))

    @classmethod
    def unknown(cls, name: object) -> str:
        """Describe an unknown name; it may be a field of the entry's policy."""
        field = Policy.spellings().get(str(name))
        if field is None:
            return super().unknown(name)
        return f"{field!r} applies to the whole entry; set it in the entry's policy, in catchup_entries"


_NAMES = (*_ROLES, *_ScheduleMapping.spellings())


Specs: TypeAlias = tuple[ScheduleSpec, ...]


@dataclass(frozen=True, slots=True)
class ScheduleForm:
    """An entry's schedules: those that start runs, end them, or do both."""

    start: Specs
    stop: Specs = ()
    restart: Specs = ()

    def __iter__(self) -> Iterator[ScheduleSpec]:
        return iter((*self.start, *self.stop, *self.restart))


def read_schedule(raw: object, *, where: str, timezone: tzinfo = UTC) -> ScheduleForm:
    """Parse a schedule; raise all its mistakes at once as a `ConfigurationError`.

    ``timezone`` is the entry's, in which dates without an offset are read.
    """
    if isinstance(raw, Mapping) and _means_roles(raw):
        form = _roles(raw, where=where, timezone=timezone)
    else:
        form = ScheduleForm(_specs(raw, where=where, timezone=timezone))
    _check_ids(form)
    return form


def _check_ids(form: ScheduleForm) -> None:
    seen: dict[str, str] = {}
    mistakes = Mistakes()
    for spec in form:
        if spec.id is not None and seen.setdefault(spec.id, spec.where) != spec.where:
            problem = f"{shown(spec.id)} is the id of {seen[spec.id]} too; give each schedule its own"
            mistakes.add(path(spec.where, "id"), problem)
    mistakes.raise_if_any()


def _means_roles(raw: Mapping[Any, object]) -> bool:
    """Return whether the mapping has start, stop or restart, or a misspelling of one."""
    return any(role in raw for role in _ROLES) or (
        not any(kind in raw for kind in _KINDS) and any(nearest(str(key), _NAMES) in _ROLES for key in raw)
    )


def _roles(raw: Mapping[Any, object], *, where: str, timezone: tzinfo) -> ScheduleForm:
    mistakes = Mistakes(_unknown_keys(raw, where=where))
    if "start" not in raw and not mistakes:
        mistakes.add(where, f"has {_given(raw)} but no start, so no run would ever start; add start")
    found: dict[str, Specs] = {}
    for role in (role for role in _ROLES if role in raw):
        with mistakes.collect():
            found[role] = _role(role, raw[role], where=path(where, role), timezone=timezone)
    mistakes.raise_if_any()
    return ScheduleForm(**found)


def _unknown_keys(raw: Mapping[Any, object], *, where: str) -> Mistakes:
    mistakes = Mistakes()
    for key in (key for key in raw if key not in _ROLES):
        if key in _ScheduleMapping.spellings():
            problem = f"cannot be combined with {_given(raw)}; put it inside start, as {{'cron': …}}"
        else:
            problem = f"unknown field{did_you_mean(key, _ROLES) or '; use start, stop and restart'}"
        mistakes.add(path(where, key), problem)
    return mistakes


def _given(raw: Mapping[Any, object]) -> str:
    return " and ".join(role for role in _ROLES if role in raw)


def _role(role: str, raw: object, *, where: str, timezone: tzinfo) -> Specs:
    if isinstance(raw, Mapping) and any(inner in raw for inner in _ROLES):
        raise config_error(where, f"has {_given(raw)} inside; put start, stop and restart side by side")
    specs = _specs(raw, where=where, timezone=timezone)
    if role != "start":
        _check_catch_up_fields(specs, role=role)
    return specs


def _check_catch_up_fields(specs: Specs, *, role: str) -> None:
    mistakes = Mistakes()
    for spec in specs:
        given = spec.overrides.model_fields_set if spec.overrides is not None else ()
        for name in (name for name in _CATCH_UP_FIELDS if name in given):
            problem = f"has no effect on {role}, only start is caught up; remove it"
            mistakes.add(path(spec.where, name), problem)
    mistakes.raise_if_any()


def _specs(raw: object, *, where: str, timezone: tzinfo) -> Specs:
    if not isinstance(raw, list | tuple):
        return (_spec(raw, where=where, timezone=timezone),)
    _check_list(raw, where=where)
    mistakes, specs = Mistakes(), []
    for index, item in enumerate(raw):
        with mistakes.collect():
            specs.append(_item(item, where=f"{where}[{index}]", timezone=timezone))
    mistakes.raise_if_any()
    return tuple(specs)


def _check_list(raw: Sequence[object], *, where: str) -> None:
    if not raw:
        raise config_error(where, "the list is empty, got []; name at least one schedule")
    if any(isinstance(item, str) for item in raw) and any(isinstance(item, Mapping) for item in raw):
        raise config_error(
            where, "the list mixes cron strings and mappings; write each string as {'cron': …}"
        )


def _item(raw: object, *, where: str, timezone: tzinfo) -> ScheduleSpec:
    if isinstance(raw, list | tuple):
        raise config_error(where, f"a list inside a list, got {shown(raw)}; write one list")
    if isinstance(raw, Mapping) and any(role in raw for role in _ROLES):
        raise config_error(where, f"has {_given(raw)} inside a list; write the list inside start instead")
    return _spec(raw, where=where, timezone=timezone)


def _spec(raw: object, *, where: str, timezone: tzinfo) -> ScheduleSpec:
    if isinstance(raw, Mapping):
        return _mapping(raw, where=where, timezone=timezone)
    if isinstance(raw, str):
        _refuse_intervals(raw, where=where)
        return ScheduleSpec(raw, where=where)
    if _is_native(raw):
        return ScheduleSpec(raw, where=where)
    raise config_error(where, f"{EXPECTED_SCHEDULE}, got {shown(raw)}")


def _refuse_intervals(raw: str, *, where: str) -> None:
    """Refuse a text that means an interval, with what to write instead: a bare text is a cron string."""
    if _NUMBER.fullmatch(raw):
        raise config_error(where, f"expected a cron string, got {shown(raw)}; for seconds remove the quotes")
    try:
        every = parse_duration(raw, units=FINE_UNITS)
    except ValueError:
        return
    unit = next(unit for unit in _UNITS if not every % timedelta(**{unit: 1}))
    written = f"timedelta({unit}={every // timedelta(**{unit: 1})})"
    raise config_error(where, f"expected a cron string, got {shown(raw)}; for an interval write {written}")


def _is_native(raw: object) -> bool:
    """Return whether it could be a schedule for Celery's beat."""
    if isinstance(raw, bool):
        return False
    return isinstance(raw, int | float | timedelta) or callable(getattr(raw, "is_due", None))


def _mapping(raw: Mapping[Any, object], *, where: str, timezone: tzinfo) -> ScheduleSpec:
    if not raw:
        raise config_error(where, "the mapping is empty, got {}; write {'cron': …} or {'start': …}")
    if _CRONTAB_ARGUMENTS.issuperset(raw):
        raise config_error(where, f"got {shown(raw)}; write crontab(…) with these, or a cron string")
    mapping = _ScheduleMapping.read(raw, where=where, timezone=timezone)
    given = [kind for kind in _KINDS if kind in raw]
    if len(given) != 1:
        problem = (
            f"has {' and '.join(given)}; keep one of them"
            if given
            else "missing; add 'cron', 'every' or 'at'"
        )
        raise config_error(where if given else path(where, "cron"), problem)
    overrides = mapping.model_dump(exclude={*_KINDS, "id"}, exclude_unset=True)
    return ScheduleSpec(
        getattr(mapping, given[0]),
        SchedulePolicy.read(overrides) if overrides else None,
        where=where,
        id=mapping.id,
    )
