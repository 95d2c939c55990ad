"""Load the whole configuration of an app: settings, policies and schedules, with all mistakes at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo
from itertools import islice
from types import MappingProxyType
from typing import Final

from celery_catchup.config.durations import format_duration
from celery_catchup.config.entry_policies import entry_warnings, merge_policy
from celery_catchup.config.exclusions import dialect_problems, named_calendars
from celery_catchup.config.fields import text
from celery_catchup.config.for_each import Expansion
from celery_catchup.config.mistakes import Mistakes, config_error
from celery_catchup.config.policy import Lane, Policy
from celery_catchup.config.schedule_syntax import ScheduleForm, read_schedule
from celery_catchup.config.settings import ENTRY_PRESETS, PREFIX, Settings, Source
from celery_catchup.error_text import did_you_mean, path, shown
from celery_catchup.errors import CronError, Mistake
from celery_catchup.timetables.cron_dialects import parse_cron
from celery_catchup.timetables.zones import usable_zone, zone_named

ENTRIES = PREFIX + "entries"
DECLARED = "beat_schedule"
"""Where declared entries are written, for messages about mistakes."""
BACKEND_CLEANUP = "celery.backend_cleanup"
"""The name of Celery's own entry, which a policy for "every other entry" does not apply to."""
EVERY_OTHER = "*"
"""The name in ``catchup_entries`` of the policy for entries without one of their own."""

# Enough to see what names look like; the error also suggests the nearest one.
_NAMES_SHOWN = 4
# How much the ledger outlives the longest window if its lifetime is not set.
_LEDGER_SPARE = timedelta(days=1)


RESERVED_OPTIONS = ("task_id", "producer", "publisher", "connection")
"""Options that an entry cannot set: they decide the id of a run and how it reaches the broker."""
_NOT_HERE = (
    "works for one declared entry at a time: not under '*', and not for stored entries; create a stored "
    "entry for each value instead"
)
UNSET: Final = object()
"""Stands for "nothing was written", which differs from None."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """One entry of the beat schedule as declared; ``policy`` is the one on the entry itself.

    ``starts`` and ``ends`` bound it where its policy does not. A ``plain`` one never has a policy. One with
    an ``expansion`` is made by ``for_each``: its policy is that of the template, unless it has its own.
    """

    schedule: object
    policy: object = UNSET
    starts: datetime | None = None
    ends: datetime | None = None
    plain: bool = False
    expansion: Expansion | None = None


@dataclass(frozen=True, slots=True)
class EntryTemplate:
    """A declaration with ``for_each``, and the mistakes in it that only its other fields and the names of
    other entries show."""

    declaration: Declaration
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration without mistakes.

    Every declared entry has a form. Its policy is None if it behaves exactly as under Celery's own
    scheduler; an entry with a schedule that Celery does not have always has a policy.
    """

    settings: Settings
    policies: Mapping[str, Policy | None]
    forms: Mapping[str, ScheduleForm]
    longest_window: timedelta = timedelta()
    """The ledger must keep runs longer than this."""
    warnings: tuple[str, ...] = ()
    """Valid settings whose effect may not be what the user expects."""
    expansions: Mapping[str, Expansion] = field(default_factory=dict)
    """The entries that ``for_each`` makes."""


def load(
    raw: Mapping[str, object],
    *,
    declared: Mapping[str, Declaration],
    timezone: tzinfo,
    place: str = DECLARED,
    templates: Mapping[str, EntryTemplate] = MappingProxyType({}),
) -> Configuration:
    """Load the ``catchup_*`` settings and the entries of an app in ``timezone``; ``place`` is where the
    entries are written. ``templates`` are the entries with ``for_each``, which others are made of.

    Raises one `ConfigurationError` that holds every mistake.
    """
    mistakes = Mistakes()
    settings: Settings | None = None
    with mistakes.collect():
        settings = Settings.read(raw)
    zone = usable_zone(timezone)
    policies = raw.get(ENTRIES)  # `Settings` reports it if it is not a mapping
    app = _App(settings or Settings(), policies if isinstance(policies, Mapping) else {}, zone, place)
    # Deleting a row of a database must not keep beat from starting.
    whole = app.settings.source is Source.SETTINGS
    mistakes += _strange_names(app.given if whole else {}, declared, templates, place)
    made_of = app.templates(templates, mistakes)
    entries = app.entries(declared, made_of, mistakes)
    # Windows are compared with the real setting only, not with the default.
    mistakes += () if settings is None else _ledger_mistakes(settings, entries)
    mistakes.raise_if_any()
    return Configuration(
        _with_ledger_ttl(app.settings, entries),
        policies={name: entry.policy for name, entry in entries.items()},
        forms={name: entry.form for name, entry in entries.items()},
        longest_window=_longest_window(entries)[0],
        warnings=tuple(
            warning for entry in (*made_of.values(), *entries.values()) for warning in entry.warnings
        ),
        expansions={name: one.expansion for name, one in declared.items() if one.expansion is not None},
    )


def mistakes_by_entry(
    mistakes: Iterable[Mistake], names: Iterable[str], *, place: str = DECLARED
) -> dict[str, str]:
    """Map the entries that these mistakes are in to what is wrong with each."""
    places = {path(place, name): name for name in names}
    found: dict[str, list[str]] = {}
    for mistake in mistakes:
        name = entry_at(mistake.where, places)
        if name is not None:
            found.setdefault(name, []).append(str(mistake))
    return {name: "; ".join(texts) for name, texts in found.items()}


def entry_at(where: str, places: Mapping[str, str]) -> str | None:
    """Return which of the entries, by their places, a mistake is in; None if it is in no entry."""
    # A name may have dots, and begin like another one: the longest counts.
    ends = (len(where), *(i for i in range(len(where) - 1, -1, -1) if where[i] in ".["))
    return next((places[where[:end]] for end in ends if where[:end] in places), None)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A parsed entry, and where its policy was written."""

    form: ScheduleForm
    policy: Policy | None
    where: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _App:
    """The context in which every entry is parsed."""

    settings: Settings
    given: Mapping[str, object]
    timezone: tzinfo
    place: str

    def templates(self, templates: Mapping[str, EntryTemplate], mistakes: Mistakes) -> dict[str, _Entry]:
        """Parse every entry with ``for_each`` once, for all that are made of it."""
        found = {}
        for name, template in templates.items():
            with mistakes.collect():
                found[name] = self._entry(name, template.declaration, default=None, is_template=True)
            where = self._place(name, template.declaration)
            mistakes += [Mistake(path(where, "for_each"), problem) for problem in template.problems]
        return found

    def entries(
        self, declared: Mapping[str, Declaration], made_of: Mapping[str, _Entry], mistakes: Mistakes
    ) -> dict[str, _Entry]:
        """Parse every declared entry; collect the mistakes of those that cannot be parsed."""
        default: Policy | None = None
        if EVERY_OTHER in self.given:
            with mistakes.collect():
                default = self._policy(self.given[EVERY_OTHER], where=path(ENTRIES, EVERY_OTHER))
        entries = {}
        alike = {of: replace(entry, warnings=()) for of, entry in made_of.items()}
        for name, declaration in declared.items():
            expansion = declaration.expansion
            if expansion is not None and declaration.policy is UNSET:
                if expansion.of in alike:  # the mistakes of another one are reported already
                    entries[name] = alike[expansion.of]
                continue
            with mistakes.collect():
                entries[name] = self._entry(name, declaration, default=default)
        return entries

    def _entry(
        self, name: str, declaration: Declaration, *, default: Policy | None, is_template: bool = False
    ) -> _Entry:
        mistakes = Mistakes()
        place = path(self.place, name)
        raw, where = self._written(name, declaration, place=place)
        policy = default
        with mistakes.collect():
            policy = default if raw is UNSET else self._policy(raw, where=where)
            policy = None if declaration.plain else _bounded(policy, declaration)
            if policy is not None and policy.for_each is not None:
                if not is_template:
                    raise config_error(path(where, "for_each"), _NOT_HERE)
                policy = policy.without_for_each()
            mistakes += _exclusion_mistakes(policy, self.settings, where=where)
        zone = self.timezone if policy is None or policy.timezone is None else zone_named(policy.timezone)
        with mistakes.collect():
            form = read_schedule(declaration.schedule, where=f"{place}.schedule", timezone=zone)
            mistakes += _cron_mistakes(form, self.settings)
            warnings = tuple(entry_warnings(name, policy, form, own=raw is not UNSET))
            if not mistakes and not declaration.plain:
                policy, form = merge_policy(
                    policy, form, own=raw is not UNSET, managed=_is_managed(declaration)
                )
                policy = _bounded(policy, declaration)
        mistakes.raise_if_any()
        return _Entry(form, policy, where, warnings)

    def _written(self, name: str, declaration: Declaration, *, place: str) -> tuple[object, str]:
        """Return the entry's own policy as written, and where."""
        if declaration.policy is UNSET:
            own = name if name in self.given else EVERY_OTHER
            return self.given.get(name, UNSET), path(ENTRIES, own)
        if name in self.given:
            where = path(ENTRIES, name)
            raise config_error(where, f"the entry has a policy at {place}.catchup too; keep one of them")
        return declaration.policy, f"{place}.catchup"

    def _place(self, name: str, declaration: Declaration) -> str:
        """Return where the entry's own policy is written."""
        written_there = declaration.policy is not UNSET
        return f"{path(self.place, name)}.catchup" if written_there else path(ENTRIES, name)

    def _policy(self, raw: object, *, where: str) -> Policy:
        policy = Policy.from_raw(raw, where=where, timezone=self.timezone)
        preset = ENTRY_PRESETS[self.settings.preset] if self.settings.preset else {}
        lane = Lane(
            queue=policy.catch_up.queue or self.settings.queue,
            priority=self.settings.priority if policy.catch_up.priority is None else policy.catch_up.priority,
        )
        policy = policy.model_copy(update={"catch_up": lane})
        defaults = {"hold_above": self.settings.hold_above, **preset}
        return policy.model_copy(
            update={field: value for field, value in defaults.items() if field not in policy.model_fields_set}
        )


def _bounded(policy: Policy | None, declaration: Declaration) -> Policy | None:
    """Return the policy with the bounds of the declaration, where it sets none itself."""
    if policy is None:
        return None
    bounds = {"start_date": declaration.starts, "end_date": declaration.ends}
    missing = {name: at for name, at in bounds.items() if at and getattr(policy, name) is None}
    return policy.model_copy(update=missing) if missing else policy


def _strange_names(
    given: Mapping[str, object],
    declared: Mapping[str, Declaration],
    templates: Mapping[str, EntryTemplate],
    place: str,
) -> Iterator[Mistake]:
    for name in (*declared, *templates):
        problem = name_problem(name)
        if problem:
            yield Mistake(path(place, name), problem)
    for name in given:
        expansion = declared[name].expansion if name in declared else None
        if expansion is not None:
            problem = f"for_each of {shown(expansion.of)} makes this entry; set the policy there"
            yield Mistake(path(ENTRIES, name), problem)
        if name not in declared and name not in templates and name != EVERY_OTHER:
            names = {**declared, **templates}
            known = f"(known: {_some(names)})" if names else "(it is empty)"
            problem = f"no such entry in beat_schedule {known}{did_you_mean(name, names)}"
            yield Mistake(path(ENTRIES, name), problem)


def name_problem(name: object) -> str | None:
    """Return why a name cannot be used in keys and log lines."""
    try:
        text(name)
    except ValueError as error:
        return f"the entry's name cannot be used: {error}"
    if not name:
        return "the entry's name is empty, got ''; give it one"
    return "'*' stands for all other entries; choose another name" if name == EVERY_OTHER else None


def _some(names: Collection[object]) -> str:
    """Return the first few names; a schedule may have thousands."""
    first = [path("", name) for name in islice(names, _NAMES_SHOWN)]
    return ", ".join(first + ["…"] * (len(names) > len(first)))


def _cron_mistakes(form: ScheduleForm, settings: Settings) -> Iterator[Mistake]:
    for spec in form:
        if isinstance(spec.source, str):
            try:
                parse_cron(spec.source, dialect=settings.cron_dialect)
            except CronError as error:
                yield Mistake(spec.where, str(error))


def _exclusion_mistakes(policy: Policy | None, settings: Settings, *, where: str) -> Iterator[Mistake]:
    if policy is None or not policy.exclude:
        return
    exclude, place = policy.exclude, path(where, "exclude")
    for name in named_calendars(exclude):
        if name not in settings.calendars:
            advice = did_you_mean(name, settings.calendars) or f"; add it to {PREFIX}calendars"
            yield Mistake(place, f"unknown calendar {shown(name)}{advice}")
    for problem in dialect_problems(exclude, settings.cron_dialect):
        yield Mistake(place, problem)


def _is_managed(declaration: Declaration) -> bool:
    """Return whether Celery lacks such schedules, so that their zone, dates and roles need a policy."""
    return isinstance(declaration.schedule, list | tuple | Mapping)


def _ledger_mistakes(settings: Settings, entries: Mapping[str, _Entry]) -> Iterator[Mistake]:
    """Refuse a ledger that forgets runs inside the window: their slots would run again."""
    longest, where = _longest_window(entries)
    if "ledger_ttl" in settings.model_fields_set and longest >= settings.ledger_ttl:
        kept, needed = format_duration(settings.ledger_ttl), format_duration(longest)
        yield Mistake(
            f"{PREFIX}ledger_ttl",
            f"{kept} is not longer than the window of {where}, {needed}: a run forgotten inside the window "
            f"could run again; set more than {needed}, or a shorter window",
        )


def _with_ledger_ttl(settings: Settings, entries: Mapping[str, _Entry]) -> Settings:
    """Return the settings; a ``ledger_ttl`` that is not set follows the longest window."""
    needed = _longest_window(entries)[0] + _LEDGER_SPARE
    if "ledger_ttl" in settings.model_fields_set or needed <= settings.ledger_ttl:
        return settings
    return settings.model_copy(update={"ledger_ttl": needed})


def _longest_window(entries: Mapping[str, _Entry]) -> tuple[timedelta, str]:
    """Return the longest window of all schedules, and where it was written."""
    windows = [found for entry in entries.values() for found in _windows(entry)]
    return max(windows, default=(timedelta(), ""))


def _windows(entry: _Entry) -> Iterator[tuple[timedelta, str]]:
    if entry.policy is not None and entry.policy.window is not None:
        yield entry.policy.window, entry.where
    for spec in entry.form.start:
        if spec.overrides is not None and spec.overrides.window is not None:
            yield spec.overrides.window, spec.where
