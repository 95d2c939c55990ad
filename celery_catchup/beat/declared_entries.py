"""Celery's entries as declared: what a user may write in ``beat_schedule``, and what it becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from functools import cached_property
from typing import Any, TypeVar

from celery.beat import ScheduleEntry
from celery.schedules import BaseSchedule, schedstate

from celery_catchup.beat.celery_schedules import NotReplayableError, stable_text, timetable_of
from celery_catchup.beat.fingerprints import Shape
from celery_catchup.beat.startup_checks import app_mistakes, entry_mistakes, entry_warnings
from celery_catchup.config.configuration import UNSET, Configuration, Declaration
from celery_catchup.config.drift import record_of
from celery_catchup.config.policy import Policy
from celery_catchup.config.schedule_syntax import EXPECTED_SCHEDULE, ScheduleSpec, read_schedule
from celery_catchup.engine import Declared
from celery_catchup.engine.tracked_entries import Anchors
from celery_catchup.error_text import did_you_mean, error_told, path, shown
from celery_catchup.errors import ConfigurationError, Mistake, ScheduleError
from celery_catchup.model import Instant, to_datetime, to_instant
from celery_catchup.planning.entry import Entry, Schedule, too_frequent
from celery_catchup.store.opening import key_prefix
from celery_catchup.timetables.cron_dialects import Dialect, parse_cron
from celery_catchup.timetables.cron_table import CronTable
from celery_catchup.timetables.forward_only import ForwardOnlyTable
from celery_catchup.timetables.timetable import Timetable
from celery_catchup.timetables.zones import usable_zone

BACKEND_CLEANUP = "celery.backend_cleanup"
"""Celery's own entry; a policy for "every other entry" does not mean it."""


class ConfiguredSchedule(BaseSchedule):  # type: ignore[misc]
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
        return isinstance(other, ConfiguredSchedule) and other.written == self.written

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
            schedule = ConfiguredSchedule(schedule, app=app)
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
        schedule = self.schedule.written if isinstance(self.schedule, ConfiguredSchedule) else self.schedule
        return Declaration(schedule, self.catchup)


Made = TypeVar("Made")

_FIELDS = "task schedule args kwargs options relative catchup name app last_run_at total_run_count".split()
"""What an entry of ``beat_schedule`` may have; the first seven are for people."""
_WRITABLE = 7
_TYPES: Mapping[str, tuple[str, Any]] = {
    "args": ("a list such as [1, 'a']", Iterable),
    "kwargs": ("a mapping such as {'day': 1}", Mapping),
    "options": ("a mapping such as {'queue': 'slow'}", Mapping),
}
"""What Celery makes a message of; anything else fails when it is sent."""


def build_entries(
    entries: Mapping[str, Any], make: Callable[[str, Any], Made], *, refused: dict[str, str] | None = None
) -> dict[str, Made]:
    """Each entry as Celery makes it; those that cannot be one are mistakes, told together. With ``refused``
    they are left out instead, and why is put there."""
    made: dict[str, Made] = {}
    mistakes: list[Mistake] = []
    for name, fields in entries.items():
        found = list(_field_mistakes(name, fields))
        try:
            if not found:
                made[name] = make(name, fields)
        except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
            told = f"cannot be made an entry ({error_told(error)}); mend its fields"
            found.append(Mistake(path("beat_schedule", name), told))
        if found and refused is not None:
            refused[name] = "; ".join(map(str, found))
        else:
            mistakes += found
    if mistakes:
        raise ConfigurationError(mistakes)
    return made


def mistakes_by_entry(mistakes: Iterable[Mistake], names: Iterable[str]) -> dict[str, str]:
    """The entries that these mistakes are in, and what is wrong with each."""
    places = {path("beat_schedule", name): name for name in names}
    found: dict[str, str] = {}
    for mistake in mistakes:
        holding = [place for place in places if _is_within(mistake.where, place)]
        if holding:
            name = places[max(holding, key=len)]  # a name may have dots, and begin as another one
            found[name] = f"{found[name]}; {mistake}" if name in found else str(mistake)
    return found


def _is_within(where: str, place: str) -> bool:
    return where == place or where.startswith((f"{place}.", f"{place}["))


def declaration_of(entry: ScheduleEntry) -> Declaration:
    """The entry as the configuration reads it; one of a class of the user's has no policy of its own."""
    return entry.declaration() if hasattr(entry, "declaration") else Declaration(entry.schedule, UNSET)


def destination_of(app: Any) -> str:
    """Where the app's messages go, as a text to be compared: two beats of one app have it in common."""
    where = (key_prefix(app), app.conf.task_default_queue, app.connection_for_write().virtual_host)
    return stable_text(where)


def _field_mistakes(name: str, fields: Any) -> Iterator[Mistake]:
    """What Celery would refuse without saying where it belongs, or would accept and never run. An entry
    that is made already has its fields as attributes."""
    place = path("beat_schedule", name)
    given = fields if isinstance(fields, Mapping) else getattr(fields, "__dict__", {})
    for key, (expected, kind) in _TYPES.items():
        value = given.get(key)
        if value and (not isinstance(value, kind) or isinstance(value, str | bytes)):
            yield Mistake(
                path(place, key), f"expected {expected}, got {shown(value)}; write it as {expected}"
            )
    if not isinstance(fields, Mapping):
        return
    for key in fields:
        if key in _FIELDS:
            continue
        field = Policy.spellings().get(str(key))
        if field is None:
            problem = f"unknown field{did_you_mean(key, _FIELDS[:_WRITABLE])}"
        else:
            problem = (
                f"belongs to a policy; write 'catchup': {{{field!r}: …}} here, or set it in catchup_entries"
            )
        yield Mistake(path(place, key), problem)
    if not fields.get("task"):
        yield Mistake(f"{place}.task", "missing, so there is nothing to run; add the name of a task")
    if isinstance(fields.get("schedule"), bool):
        yield Mistake(f"{place}.schedule", f"{EXPECTED_SCHEDULE}, got {fields['schedule']}")


@dataclass(frozen=True)
class ResolvedEntries:
    """Entries with a policy, and the names of those that run as under Celery's own scheduler.

    ``not_replayable`` says why an entry lost its policy; ``warnings`` are about everything else.
    """

    declared: tuple[Declared, ...]
    unmanaged: tuple[str, ...]
    not_replayable: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    records: Mapping[str, str] = field(default_factory=dict)
    """Every entry as it is remembered, so that a start with other entries can be noticed."""


def resolve_entries(
    entries: Mapping[str, ScheduleEntry], configuration: Configuration, *, timezone: tzinfo
) -> ResolvedEntries:
    """Part the entries; a schedule that cannot be replayed loses its policy, with a warning.

    Schedules that are too frequent for beat to observe, or that have no slots, are mistakes.
    """
    declared, unmanaged, not_replayable = [], [], []
    mistakes: list[Mistake] = []
    warnings = list(configuration.warnings)
    records: dict[str, str] = {}
    zone = usable_zone(timezone)
    for name, policy in configuration.policies.items():
        form = configuration.forms[name]
        shape = Shape(form, policy, zone)
        records[name] = record_of(entries[name], schedule=shape.fingerprint(), policy=policy, form=form)
        if policy is None:
            unmanaged.append(name)
            continue
        maker = _Maker(name, policy, configuration, shape)
        try:
            mistakes += [*maker.mistakes(), *entry_mistakes(entries[name])]
            declared.append(maker.declared(str(entries[name].task)))
            warnings += entry_warnings(declared[-1].build(0), form, entries[name].options)
        except NotReplayableError as error:
            unmanaged.append(name)
            not_replayable.append(str(error))
        except ScheduleError as error:
            mistakes.append(Mistake(f"{path('beat_schedule', name)}.schedule", str(error)))
    if declared:
        mistakes += app_mistakes(entries[declared[0].name].app)
    if mistakes:
        raise ConfigurationError(mistakes)
    return ResolvedEntries(tuple(declared), tuple(unmanaged), tuple(not_replayable), tuple(warnings), records)


class _Maker:
    """Makes the planner's entry of a declared one."""

    def __init__(self, name: str, policy: Policy, configuration: Configuration, shape: Shape) -> None:
        self.name, self.policy, self.settings, self.shape = name, policy, configuration.settings, shape

    def build(self, anchors: Anchors) -> Entry:
        """The entry; one whose schedules do not depend on an anchor is made once."""
        return self._sample if self._is_fixed or anchors == 0 else self._build(anchors)

    @cached_property
    def _sample(self) -> Entry:
        """The entry from 1970 on, for what is the same from every anchor."""
        return self._build(0)

    @cached_property
    def _is_fixed(self) -> bool:
        return all(isinstance(schedule.timetable, CronTable) for schedule in self._sample.schedules)

    def _build(self, anchors: Anchors) -> Entry:
        schedules = tuple(
            Schedule(self._timetable(spec, place, anchors), spec.overrides, role, spec.id)
            for place, (role, spec) in enumerate(self.shape.roles())
        )
        return Entry(self.name, schedules, self.policy)

    def declared(self, task: str) -> Declared:
        moving = {
            place: schedule.id or str(place)
            for place, schedule in enumerate(self.build(0).schedules)
            if isinstance(schedule.timetable, ForwardOnlyTable)
        }
        return Declared(
            self.name,
            task,
            self.shape.fingerprint(),
            self.build,
            moving=moving,
            former=self.shape.former_fingerprint(),
        )

    def mistakes(self) -> Iterator[Mistake]:
        for spec, schedule in zip(self.shape.form, self.build(0).schedules, strict=True):
            problem = too_frequent(schedule.timetable, poll_interval=self.settings.poll_interval)
            if problem is not None:
                yield Mistake(spec.where, problem)

    def _timetable(self, spec: ScheduleSpec, place: int, anchors: Anchors) -> Timetable:
        """Intervals keep the entry's anchor; a schedule that can only step forwards has its own."""
        kept = {"": anchors} if isinstance(anchors, int) else anchors
        table = self._anchored(spec, kept.get("", 0))
        own = kept.get(spec.id or str(place))
        return self._anchored(spec, own) if own is not None and isinstance(table, ForwardOnlyTable) else table

    def _anchored(self, spec: ScheduleSpec, anchor: Instant) -> Timetable:
        zone, dialect = self.shape.zone_of(spec), self.settings.cron_dialect
        return _timetable(spec, zone=zone, dialect=dialect, anchor=anchor, name=self.name)


def _timetable(
    spec: ScheduleSpec, *, zone: tzinfo, dialect: Dialect, anchor: Instant, name: str
) -> Timetable:
    if isinstance(spec.source, str):
        return parse_cron(spec.source, zone=usable_zone(zone), dialect=dialect)
    return timetable_of(spec.source, zone=zone, anchor=anchor, name=name)
