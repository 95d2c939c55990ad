"""Build the entries of ``beat_schedule``: Celery's own fields, a policy, and our forms of schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta, tzinfo
from typing import Any, TypeVar

from celery.beat import ScheduleEntry
from celery.schedules import BaseSchedule, schedstate

from celery_catchup.beat.celery_schedules import timetable_of
from celery_catchup.config.configuration import DECLARED, UNSET, Declaration
from celery_catchup.config.policy import Policy
from celery_catchup.config.schedule_syntax import EXPECTED_SCHEDULE, ScheduleSpec, read_schedule
from celery_catchup.error_text import describe_error, did_you_mean, path, shown
from celery_catchup.errors import ConfigurationError, Mistake
from celery_catchup.model import Instant, to_datetime, to_instant
from celery_catchup.timetables.cron_dialects import Dialect, parse_cron
from celery_catchup.timetables.timetable import OneSlot, Timetable
from celery_catchup.timetables.zones import usable_zone


class ConfiguredSchedule(BaseSchedule):  # type: ignore[misc]
    """A cron string, a list or a mapping in place of a Celery schedule.

    Without a policy such an entry runs as any other under beat: once when it is due, however
    late. Only schedules that start runs count then.
    """

    def __init__(self, written: object, *, app: Any = None, nowfun: Any = None) -> None:
        super().__init__(nowfun=nowfun, app=app)
        self.written = written

    def remaining_estimate(self, last_run_at: datetime) -> timedelta | None:
        """Return the time until the first slot after the last run; negative when it has passed."""
        slots = [table.next_after(to_instant(last_run_at)) for table in self._timetables()]
        following = min((slot for slot in slots if slot is not None), default=None)
        return None if following is None else to_datetime(following) - self.now()

    def is_due(self, last_run_at: datetime) -> schedstate:
        """Return whether to run now, and when to check again, as beat asks."""
        remaining = self.remaining_estimate(self.maybe_make_aware(last_run_at))
        due = remaining is not None and remaining <= timedelta(0)
        following = self.remaining_estimate(self.now()) if due else remaining
        return schedstate(due, None if following is None else following.total_seconds())

    def newest(self, until: Instant) -> Instant | None:
        """Return the newest slot up to an instant, which a late run is for."""
        slots = [table.previous_before(until + 1) for table in self._timetables()]
        return max((slot for slot in slots if slot is not None), default=None)

    def _timetables(self) -> Iterator[Timetable]:
        form = read_schedule(self.written, where="schedule", timezone=self.tz)
        dialect = Dialect(self.app.conf.get("catchup_cron_dialect") or Dialect.EXTENDED)
        for spec in form.start:
            yield spec_timetable(spec, zone=self.tz, dialect=dialect, anchor=0, name="schedule")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfiguredSchedule) and other.written == self.written

    def __hash__(self) -> int:
        return hash(repr(self.written))

    def __repr__(self) -> str:
        return f"<{self.written!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.written,)


def spec_timetable(
    spec: ScheduleSpec, *, zone: tzinfo, dialect: Dialect, anchor: Instant, name: str
) -> Timetable:
    """Build the timetable of a cron string, of a single time, or of a Celery schedule."""
    if isinstance(spec.source, str):
        return parse_cron(spec.source, zone=usable_zone(zone), dialect=dialect)
    if isinstance(spec.source, datetime):
        return OneSlot(to_instant(spec.source))
    return timetable_of(spec.source, zone=zone, anchor=anchor, name=name)


_CELERYS_FIELDS = "name task last_run_at total_run_count schedule args kwargs options relative app".split()
_KNOWN_FIELDS = frozenset({*_CELERYS_FIELDS, "catchup"})
_SUGGESTED_FIELDS = "task schedule args kwargs options relative catchup".split()


class CatchupEntry(ScheduleEntry):  # type: ignore[misc]
    """An entry of the beat schedule; takes a policy as ``catchup``, and our forms of schedules."""

    def __init__(self, *args: Any, catchup: object = UNSET, **fields: Any) -> None:
        fields.update(zip(_CELERYS_FIELDS, args, strict=False))  # copies and pickles give them by position
        schedule, options = fields.get("schedule"), dict(fields.get("options") or {})
        # add_periodic_task(..., catchup=…) puts it among the options.
        self.catchup = options.pop("catchup", catchup)
        if isinstance(schedule, str | list | tuple | Mapping):
            fields["schedule"] = ConfiguredSchedule(schedule, app=fields.get("app"))
        fields["options"] = options
        super().__init__(**fields)

    def declaration(self) -> Declaration:
        """Return the entry as the configuration reads it."""
        schedule = self.schedule.written if isinstance(self.schedule, ConfiguredSchedule) else self.schedule
        return Declaration(schedule, self.catchup)


class StoredScheduleEntry(CatchupEntry):
    """An entry that was created at run time, with its revision; it always has a policy."""

    def __init__(self, *args: Any, revision: int = 0, **fields: Any) -> None:
        self.revision = revision
        super().__init__(*args, **fields)


def declaration_of(entry: ScheduleEntry) -> Declaration:
    """Return the entry as the configuration reads it; one of a user's own class has no policy of its own."""
    return entry.declaration() if hasattr(entry, "declaration") else Declaration(entry.schedule, UNSET)


Built = TypeVar("Built")

_TYPES: Mapping[str, tuple[str, Any]] = {
    "args": ("a list such as [1, 'a']", Iterable),
    "kwargs": ("a mapping such as {'day': 1}", Mapping),
    "options": ("a mapping such as {'queue': 'slow'}", Mapping),
}
"""The types that Celery builds messages from; with any other, sending fails."""


def build_entries(
    entries: Mapping[str, Any], build: Callable[[str, Any], Built], *, refused: dict[str, str] | None = None
) -> dict[str, Built]:
    """Build each entry; `ConfigurationError` with all that cannot be built. With ``refused``, leave those
    out instead, and put the reasons there."""
    built: dict[str, Built] = {}
    mistakes: list[Mistake] = []
    for name, fields in entries.items():
        found = [Mistake(f"{path(DECLARED, name)}.{key}", why) for key, why in _field_problems(fields)]
        try:
            if not found:
                built[name] = build(name, fields)
        except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
            problem = f"cannot build the entry ({describe_error(error)}); correct its fields"
            found.append(Mistake(path(DECLARED, name), problem))
        if found and refused is not None:
            refused[name] = "; ".join(map(str, found))
        else:
            mistakes += found
    if mistakes:
        raise ConfigurationError(mistakes)
    return built


def begun_at(now: datetime, fields: Any) -> Any:
    """Let an entry that has never run count from ``now``, as Celery does, which reads the clock for each: a
    tenth of the time to start with many entries. A schedule with a clock of its own is left to Celery."""
    if not isinstance(fields, Mapping) or "last_run_at" in fields:
        return fields
    schedule = fields.get("schedule")
    if isinstance(schedule, BaseSchedule) and (schedule.nowfun or type(schedule).now is not BaseSchedule.now):
        return fields
    return {**fields, "last_run_at": now}


def _field_problems(fields: Any) -> Iterator[tuple[str, str]]:
    """Find fields that Celery would refuse without saying where, or would accept and never run; yield the
    name of each, and what is wrong with it."""
    # An entry that is built already has its fields as attributes.
    given = fields if isinstance(fields, Mapping) else getattr(fields, "__dict__", {})
    for key, (expected, kind) in _TYPES.items():
        value = given.get(key)
        if value and (not isinstance(value, kind) or isinstance(value, str | bytes)):
            yield key, f"expected {expected}, got {shown(value)}; write it as {expected}"
    if given is not fields:
        return
    for key in fields:
        if key in _KNOWN_FIELDS:
            continue
        problem = f"unknown field{did_you_mean(key, _SUGGESTED_FIELDS)}"
        if field := Policy.spellings().get(str(key)):
            problem = (
                f"belongs to a policy; write 'catchup': {{{field!r}: …}} here, or set it in catchup_entries"
            )
        yield path("", key), problem
    if not fields.get("task"):
        yield "task", "missing, so there is nothing to run; add the name of a task"
    if isinstance(fields.get("schedule"), bool):
        yield "schedule", f"{EXPECTED_SCHEDULE}, got {fields['schedule']}"
