"""Celery's entries as declared: what a user may write in ``beat_schedule``, and what it becomes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any, TypeVar

from celery.beat import ScheduleEntry
from celery.schedules import BaseSchedule, schedstate

from celery_catchup.configuration import UNSET, Configuration, Declaration
from celery_catchup.cron import CronTable
from celery_catchup.cron_dialects import Dialect, parse_cron
from celery_catchup.engine import Declared
from celery_catchup.entries import Entry, Role, Schedule, too_frequent
from celery_catchup.errors import ConfigurationError, Mistake, ScheduleError
from celery_catchup.foresight import app_mistakes, entry_cautions, entry_mistakes
from celery_catchup.model import Instant, to_datetime, to_instant
from celery_catchup.policy import Policy
from celery_catchup.schedule_forms import ScheduleForm, ScheduleSpec, read_schedule
from celery_catchup.schedules import NotReplayableError, describe, fingerprint, stable_text, timetable_of
from celery_catchup.stepped import SteppedTable
from celery_catchup.timetables import Timetable
from celery_catchup.wording import error_told, path
from celery_catchup.zones import zone_named

HOUSEKEEPING = "celery.backend_cleanup"
"""Celery's own entry; a policy for "every other entry" does not mean it."""


class WrittenSchedule(BaseSchedule):  # type: ignore[misc]
    """A cron string, a list or a mapping in the place of a Celery schedule.

    Without a policy such an entry runs as any other under beat: once when it is due, however
    late. Only schedules that start runs count then.
    """

    def __init__(self, written: object, *, app: Any = None, nowfun: Any = None) -> None:
        super().__init__(nowfun=nowfun, app=app)
        self.written = written

    def remaining_estimate(self, last_run_at: datetime) -> timedelta | None:
        """Time until the first slot after the last run; negative when it has passed."""
        following = [
            slot
            for table in self._timetables()
            if (slot := table.next_after(to_instant(last_run_at))) is not None
        ]
        return to_datetime(min(following)) - self.now() if following else None

    def is_due(self, last_run_at: datetime) -> schedstate:
        """As beat asks: whether to run now, and when to ask again."""
        remaining = self.remaining_estimate(self.maybe_make_aware(last_run_at))
        if remaining is None:
            return schedstate(False, None)
        if remaining > timedelta(0):
            return schedstate(False, remaining.total_seconds())
        following = self.remaining_estimate(self.now())
        return schedstate(True, None if following is None else following.total_seconds())

    def newest(self, until: Instant) -> Instant | None:
        """The newest slot up to then, which a late run is for."""
        slots = [table.previous_before(until + 1) for table in self._timetables()]
        return max((slot for slot in slots if slot is not None), default=None)

    def _timetables(self) -> Iterator[Timetable]:
        form = read_schedule(self.written, where="schedule", timezone=self.tz)
        dialect = Dialect(self.app.conf.get("catchup_cron_dialect") or Dialect.EXTENDED)
        for spec in form.start:
            yield _timetable(spec, zone=self.tz, dialect=dialect, anchor=0, name="schedule")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WrittenSchedule) and other.written == self.written

    def __hash__(self) -> int:
        return hash(repr(self.written))

    def __repr__(self) -> str:
        return f"<{self.written!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.written,)


class CatchupEntry(ScheduleEntry):  # type: ignore[misc]
    """An entry of the beat schedule; takes a policy as ``catchup`` and our forms of schedules."""

    def __init__(
        self,
        name: str | None = None,
        task: str | None = None,
        last_run_at: datetime | None = None,
        total_run_count: int | None = None,
        schedule: object = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        relative: bool = False,  # noqa: FBT001, FBT002 - Celery's signature
        app: Any = None,
        catchup: object = UNSET,
    ) -> None:
        options = dict(options or {})
        # add_periodic_task(..., catchup=…) puts it among the options.
        self.catchup = options.pop("catchup", catchup)
        if isinstance(schedule, str | list | tuple | Mapping):
            schedule = WrittenSchedule(schedule, app=app)
        super().__init__(
            name=name,
            task=task,
            last_run_at=last_run_at,
            total_run_count=total_run_count,
            schedule=schedule,
            args=args,
            kwargs=kwargs,
            options=options,
            relative=relative,
            app=app,
        )

    def declaration(self) -> Declaration:
        """The entry as the configuration reads it."""
        schedule = self.schedule.written if isinstance(self.schedule, WrittenSchedule) else self.schedule
        return Declaration(schedule, self.catchup)


Made = TypeVar("Made")


def made_entries(entries: Mapping[str, Any], make: Callable[[str, Any], Made]) -> dict[str, Made]:
    """Each entry as Celery makes it; those that cannot be one are mistakes, told together."""
    made, mistakes = {}, []
    for name, fields in entries.items():
        try:
            made[name] = make(name, fields)
        except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
            told = f"cannot be made an entry ({error_told(error)}); mend its fields"
            mistakes.append(Mistake(path("beat_schedule", name), told))
    if mistakes:
        raise ConfigurationError(mistakes)
    return made


def entry_facts(app: Any, entries: Mapping[str, ScheduleEntry]) -> list[str]:
    """What two beats of one app have in common beside their policies, as texts to be compared: where
    messages go, and each entry's task, schedule and arguments."""
    where = (key_prefix(app), app.conf.task_default_queue, app.connection_for_write().virtual_host)
    facts = [stable_text(where)]
    for name, one in entries.items():
        if name != HOUSEKEEPING:
            what = (name, one.task, describe(one.schedule), one.args, one.kwargs, one.options)
            try:
                facts.append(json.dumps(what, sort_keys=True, default=stable_text))
            except (TypeError, ValueError):  # keys that are not texts, or a circle
                facts.append(stable_text((name, one.task, describe(one.schedule))))
    return facts


def key_prefix(app: Any) -> str:
    """What the app puts before the names of its queues on a Redis server that it shares with others."""
    return str((app.conf.get("broker_transport_options") or {}).get("global_keyprefix") or "")


@dataclass(frozen=True)
class Division:
    """Entries with a policy, and the names of those that run as under Celery's own scheduler.

    ``warnings`` are of schedules that cannot be replayed, ``cautions`` of all that works otherwise
    than it may look.
    """

    declared: tuple[Declared, ...]
    plain: tuple[str, ...]
    warnings: tuple[str, ...]
    cautions: tuple[str, ...] = ()


def divide(
    entries: Mapping[str, ScheduleEntry], configuration: Configuration, *, timezone: tzinfo
) -> Division:
    """Part the entries; a schedule that cannot be replayed loses its policy, with a warning.

    Schedules that are too frequent for beat to observe, or that have no slots, are mistakes.
    """
    declared, plain, warnings = [], [], []
    mistakes: list[Mistake] = []
    cautions: list[str] = []
    for name, policy in configuration.policies.items():
        if policy is None:
            plain.append(name)
            continue
        maker = _Maker(name, policy, configuration, timezone)
        try:
            mistakes += [*maker.mistakes(), *entry_mistakes(entries[name])]
            declared.append(maker.declared(str(entries[name].task)))
            cautions += entry_cautions(declared[-1].build(0), entries[name].options)
        except NotReplayableError as error:
            plain.append(name)
            warnings.append(str(error))
        except ScheduleError as error:
            mistakes.append(Mistake(f"{path('beat_schedule', name)}.schedule", str(error)))
    if declared:
        mistakes += app_mistakes(entries[declared[0].name].app)
    if mistakes:
        raise ConfigurationError(mistakes)
    return Division(tuple(declared), tuple(plain), tuple(warnings), tuple(cautions))


class _Maker:
    """Makes the planner's entry of a declared one."""

    def __init__(self, name: str, policy: Policy, configuration: Configuration, timezone: tzinfo) -> None:
        self.name, self.policy, self.settings = name, policy, configuration.settings
        self.form: ScheduleForm = configuration.forms[name]
        self.zone = zone_named(policy.timezone) if policy.timezone else timezone
        self._fixed: Entry | None = None

    def build(self, anchor: Instant) -> Entry:
        """The entry; one whose schedules do not depend on the anchor is made once."""
        if self._fixed is not None:
            return self._fixed
        entry = self._build(anchor)
        if all(isinstance(schedule.timetable, CronTable) for schedule in entry.schedules):
            self._fixed = entry
        return entry

    def _build(self, anchor: Instant) -> Entry:
        roles = (
            (Role.START, self.form.start),
            (Role.STOP, self.form.stop),
            (Role.RESTART, self.form.restart),
        )
        schedules = tuple(
            Schedule(self._timetable(spec, anchor), spec.overrides, role)
            for role, specs in roles
            for spec in specs
        )
        return Entry(self.name, schedules, self.policy)

    def declared(self, task: str) -> Declared:
        entry = self.build(0)
        stepped = any(isinstance(schedule.timetable, SteppedTable) for schedule in entry.schedules)
        return Declared(self.name, task, self._fingerprint(), self.build, moves_anchor=stepped)

    def mistakes(self) -> Iterator[Mistake]:
        for spec, schedule in zip(self.form, self.build(0).schedules, strict=True):
            problem = too_frequent(schedule.timetable, poll_interval=self.settings.poll_interval)
            if problem is not None:
                yield Mistake(spec.where, problem)

    def _timetable(self, spec: ScheduleSpec, anchor: Instant) -> Timetable:
        own = spec.overrides.timezone if spec.overrides is not None else None
        zone = zone_named(own) if own else self.zone
        return _timetable(spec, zone=zone, dialect=self.settings.cron_dialect, anchor=anchor, name=self.name)

    def _fingerprint(self) -> str:
        shapes = [
            f"{spec.source}@{self.zone}"
            if isinstance(spec.source, str)
            else fingerprint(spec.source, zone=self.zone)
            for spec in self.form
        ]
        return " | ".join(shapes)


def _timetable(
    spec: ScheduleSpec, *, zone: tzinfo, dialect: Dialect, anchor: Instant, name: str
) -> Timetable:
    if isinstance(spec.source, str):
        return parse_cron(spec.source, zone=zone, dialect=dialect)
    return timetable_of(spec.source, zone=zone, anchor=anchor, name=name)
