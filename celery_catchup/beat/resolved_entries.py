"""Resolve the declared entries: those with a policy, ready for the engine, and those without."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from functools import cached_property
from typing import Any

from celery.beat import ScheduleEntry
from celery.schedules import crontab

from celery_catchup.beat.catchup_entry import spec_timetable
from celery_catchup.beat.celery_internals import app_of
from celery_catchup.beat.celery_schedules import CRON_FIELDS, decides_like
from celery_catchup.beat.fingerprints import (
    entry_fingerprint,
    former_fingerprint,
    schedule_roles,
    spec_zone,
    stable_text,
)
from celery_catchup.beat.simulated_schedules import NotReplayableError
from celery_catchup.beat.startup_checks import app_mistakes, entry_mistakes, entry_warnings
from celery_catchup.config.configuration import DECLARED, Configuration
from celery_catchup.config.drift import record_of
from celery_catchup.config.exclusions import compile_exclusions, named_calendars
from celery_catchup.config.for_each import Expansion
from celery_catchup.config.policy import Policy
from celery_catchup.config.schedule_syntax import ScheduleForm, ScheduleSpec
from celery_catchup.config.settings import Settings
from celery_catchup.engine import Declared
from celery_catchup.engine.tracked_entries import Anchors
from celery_catchup.error_text import path
from celery_catchup.errors import ConfigurationError, Mistake, ScheduleError
from celery_catchup.model import Instant
from celery_catchup.planning.entry import NO_EXCLUSIONS, Entry, Schedule, too_frequent
from celery_catchup.store.opening import key_prefix
from celery_catchup.timetables.cron_table import CronTable
from celery_catchup.timetables.exclusions import Exclusions
from celery_catchup.timetables.forward_only import ForwardOnlyTable
from celery_catchup.timetables.timetable import OneSlot, Timetable
from celery_catchup.timetables.zones import usable_zone, zone_named


@dataclass(frozen=True)
class ResolvedEntries:
    """Entries with a policy, and the names of those that run as under Celery's own scheduler.

    ``not_replayable`` says why an entry lost its policy; ``warnings`` are about everything else.
    ``records`` has every entry as it is remembered, so that a start with other entries is noticed.
    """

    declared: tuple[Declared, ...]
    unmanaged: tuple[str, ...]
    not_replayable: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    records: Mapping[str, str] = field(default_factory=dict)


def resolve_entries(
    entries: Mapping[str, ScheduleEntry],
    configuration: Configuration,
    *,
    timezone: tzinfo,
    place: str = DECLARED,
) -> ResolvedEntries:
    """Resolve the entries, which are written in ``place``; one whose schedule cannot be replayed loses its
    policy.

    Schedules that are too frequent for beat to observe, or that have no slots, are mistakes.
    """
    declared, unmanaged, not_replayable = [], [], []
    mistakes: list[Mistake] = []
    warnings = list(configuration.warnings)
    records: dict[str, str] = {}
    twins: dict[Hashable, tuple[Declared, Entry]] = {}
    zone, serializer = usable_zone(timezone), _usual_serializer(entries)
    for name, policy in configuration.policies.items():
        form, entry = configuration.forms[name], entries[name]
        alike = _alike(form, policy, entry.options.get("expires"))
        twin, sample = twins.get(alike, (None, None))
        fingerprint = entry_fingerprint(form, policy, zone) if twin is None else twin.fingerprint
        expansion = configuration.expansions.get(name, _ALONE)
        if (recorded := expansion.record or name) not in records:
            records[recorded] = record_of(
                entry, schedule=fingerprint, policy=policy, form=form, varies=expansion.varies
            )
        if policy is None:
            unmanaged.append(name)
            continue
        if twin is not None and sample is not None:
            mistakes += entry_mistakes(entry, place=path(place, name), serializer=serializer)
            declared.append(_renamed(twin, sample, name, str(entry.task), expansion.tenant))
            continue
        builder = _EntryBuilder(name, form, policy, zone, configuration.settings, expansion.tenant)
        try:
            wrong = [*builder.mistakes()]
            declared.append(builder.declared(str(entry.task), fingerprint))
            doubtful = [*entry_warnings(builder.build(0), form, entry.options)]
            if alike is not None and builder.is_fixed and not wrong and not doubtful:
                twins[alike] = declared[-1], builder.build(0)
            mistakes += [*wrong, *entry_mistakes(entry, place=path(place, name), serializer=serializer)]
            warnings += doubtful
        except NotReplayableError as error:
            unmanaged.append(name)
            not_replayable.append(str(error))
        except ScheduleError as error:
            mistakes.append(Mistake(f"{path(place, name)}.schedule", str(error)))
    if declared:
        mistakes += app_mistakes(entries[declared[0].name].app)
    if mistakes:
        raise ConfigurationError(dict.fromkeys(mistakes))  # entries of one for_each share some
    return ResolvedEntries(tuple(declared), tuple(unmanaged), tuple(not_replayable), tuple(warnings), records)


def _usual_serializer(entries: Mapping[str, ScheduleEntry]) -> str:
    """Return the serializer of tasks that do not name one; Celery looks for a setting in several places."""
    return next((str(one.app.conf.task_serializer) for one in entries.values()), "")


_ALONE = Expansion("", "")
"""The place of an entry that ``for_each`` has not made."""


def _alike(form: ScheduleForm, policy: Policy | None, expires: object) -> Hashable:
    """Return the same for entries that differ in task, arguments and name only, if they have one crontab;
    None for others. Without twins, resolving 10,000 entries on a few crontabs takes twice as long."""
    specs = tuple(form)
    if policy is None or len(specs) != 1 or not form.start or specs[0].overrides or specs[0].id:
        return None
    source: Any = specs[0].source
    if not isinstance(source, str):
        if not decides_like(source, crontab):
            return None
        source = (
            type(source),
            id(app_of(source)),
            str(vars(source).get("tz")),
            *(frozenset(getattr(source, name)) for name in CRON_FIELDS),
        )
    return id(policy), repr(expires), source


def _renamed(twin: Declared, sample: Entry, name: str, task: str, tenant: str) -> Declared:
    """Return an entry that differs from its twin in name, task and tenant."""
    entry = sample.renamed(name, tenant)
    return replace(twin, name=name, task=task, build=lambda _: entry)


def destination_of(app: Any) -> str:
    """Return where the app's messages go as a text to compare; two beats of one app have the same."""
    where = (key_prefix(app), app.conf.task_default_queue, app.connection_for_write().virtual_host)
    return stable_text(where)


@dataclass
class _EntryBuilder:
    """Builds the planner's entry from a declared one."""

    name: str
    form: ScheduleForm
    policy: Policy
    zone: tzinfo
    settings: Settings
    tenant: str

    def build(self, anchors: Anchors) -> Entry:
        """Build the entry; one whose schedules do not depend on an anchor is built once."""
        return self._sample if self.is_fixed or anchors == 0 else self._build(anchors)

    @cached_property
    def _sample(self) -> Entry:
        """The entry from 1970 on, for what is the same from every anchor."""
        return self._build(0)

    @cached_property
    def is_fixed(self) -> bool:
        """Whether its schedules do not depend on an anchor."""
        return all(isinstance(schedule.timetable, CronTable | OneSlot) for schedule in self._sample.schedules)

    def _build(self, anchors: Anchors) -> Entry:
        schedules = tuple(
            Schedule(self._timetable(spec, place, anchors), spec.overrides, role, spec.id)
            for place, (role, spec) in enumerate(schedule_roles(self.form))
        )
        return Entry(self.name, schedules, self.policy, self._exclusions, self.tenant)

    @cached_property
    def _exclusions(self) -> Exclusions:
        exclude = self.policy.exclude
        if not exclude:
            return NO_EXCLUSIONS
        zone = zone_named(self.policy.timezone) if self.policy.timezone else self.zone
        used = {name: self.settings.calendars[name] for name in named_calendars(exclude)}
        return compile_exclusions(exclude, zone, tuple(used.items()))

    def declared(self, task: str, fingerprint: str) -> Declared:
        moving = {
            place: schedule.id or str(place)
            for place, schedule in enumerate(self._sample.schedules)
            if isinstance(schedule.timetable, ForwardOnlyTable)
        }
        former = former_fingerprint(self.form, self.policy, self.zone)
        return Declared(self.name, task, fingerprint, self.build, moving=moving, former=former)

    def mistakes(self) -> Iterator[Mistake]:
        for spec, schedule in zip(self.form, self._sample.schedules, strict=True):
            problem = too_frequent(schedule.timetable, poll_interval=self.settings.poll_interval)
            if problem is not None:
                yield Mistake(spec.where, problem)

    def _timetable(self, spec: ScheduleSpec, place: int, anchors: Anchors) -> Timetable:
        """Build a timetable: intervals keep the entry's anchor, forward-only schedules have their own."""
        kept = {"": anchors} if isinstance(anchors, int) else anchors
        table = self._anchored(spec, kept.get("", 0))
        own = kept.get(spec.id or str(place))
        return self._anchored(spec, own) if own is not None and isinstance(table, ForwardOnlyTable) else table

    def _anchored(self, spec: ScheduleSpec, anchor: Instant) -> Timetable:
        zone = spec_zone(spec, self.policy, default=self.zone)
        dialect = self.settings.cron_dialect
        return spec_timetable(spec, zone=zone, dialect=dialect, anchor=anchor, name=self.name)
