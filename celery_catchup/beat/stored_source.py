"""Follow the entries that are created at run time: read what changed, and resolve it."""

from __future__ import annotations

import json
import logging
from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from datetime import timedelta
from sys import intern
from typing import Any, TypeVar

from celery.beat import ScheduleEntry

from celery_catchup.beat.catchup_entry import ConfiguredSchedule, StoredScheduleEntry
from celery_catchup.beat.resolved_entries import resolve_entries
from celery_catchup.beat.startup_checks import entry_mistakes
from celery_catchup.config.app_settings import raw_settings
from celery_catchup.config.configuration import ENTRIES, load, mistakes_by_entry, name_problem
from celery_catchup.config.policy import Policy
from celery_catchup.config.schedule_syntax import ScheduleForm
from celery_catchup.config.settings import PREFIX
from celery_catchup.engine import Declared, StoredChanges
from celery_catchup.error_text import path, shown
from celery_catchup.errors import ConfigurationError, Mistake
from celery_catchup.events.log_lines import log_configuration_warnings, logfmt
from celery_catchup.model import Instant
from celery_catchup.store import EntryRecords
from celery_catchup.store.entry_records import ConflictError, RecordChange
from celery_catchup.stored_entries.stored_entry import StoredEntry, decode
from celery_catchup.stored_entries.validation import PLACE
from celery_catchup.timetables.zones import LAST_INSTANT

logger = logging.getLogger(__name__)

_Part = TypeVar("_Part")

_LEDGER_TTL = PREFIX + "ledger_ttl"
_ROUNDS = 5
"""How often changes are looked for that were made meanwhile; the next tick reads what is left."""
_WARNINGS = 20
"""Warnings about stored entries that are logged at once; there may be one for each of thousands."""


class StoredSource:
    """The enabled stored entries: they join ``schedule``, and leave it when they are deleted or disabled.

    An entry that cannot be used is left out and reported; it affects no other. A declared entry wins over a
    stored one of the same name.
    """

    def __init__(self, app: Any, records: EntryRecords, schedule: MutableMapping[str, ScheduleEntry]) -> None:
        self._app, self._records, self._schedule = app, records, schedule
        self.revision = -1
        self.entries: dict[str, StoredScheduleEntry] = {}
        """The entries in use."""
        self._shadowed: set[str] = set()

    def read_changes(self, revision: int, *, reload: bool) -> StoredChanges:
        """Read what has changed up to this revision or a later one; with ``reload``, or after the server went
        back, read everything again."""
        known = self.revision
        if known < 0 or reload or revision < known:
            records = self._records.read_all() if revision or known > 0 else {}
            touched = {*records, *self.entries}
        else:
            touched, revision = self._changed(known, revision)
            records = self._records.read(touched)
        found, refused = resolve_stored(self._app, records, taken=self._taken)
        self._shadowed = (self._shadowed - touched) | {name for name in refused if self._taken(name)}
        gone = [name for name in touched if name not in found.entries and name not in refused]
        self._replace(found.entries, [*gone, *refused])
        self.revision = revision
        log_configuration_warnings(found.warnings[:_WARNINGS])
        if len(found.warnings) > _WARNINGS:
            more = len(found.warnings) - _WARNINGS
            logger.warning(logfmt("Configuration warning", detail=f"{more} more about stored entries"))
        if touched and known >= 0:
            logger.info(logfmt("Entries changed", stored=len(self.entries), changed=len(touched)))
        return StoredChanges(tuple(found.declared.values()), gone, refused, found.longest_window)

    def _changed(self, known: int, revision: int) -> tuple[set[str], int]:
        """Return the names of the entries that have changed since a revision, and up to which one.

        An entry that changes again while its name is looked for has a later revision, and would be left as it
        was before both changes: those are looked for, too.
        """
        touched = set[str]()
        for _ in range(_ROUNDS):
            touched.update(self._records.changed(known, revision))
            known, revision = revision, self._records.version()
            if revision <= known:
                break
        return touched, known

    def rejoin(self) -> None:
        """Let the stored entries join a schedule that was filled again."""
        for name, entry in self.entries.items():
            self._schedule.setdefault(name, entry)
        if not all(map(self._taken, self._shadowed)):
            self.revision = -1  # the declared entry is gone

    def _taken(self, name: str) -> bool:
        return name in self._schedule and not isinstance(self._schedule[name], StoredScheduleEntry)

    def _replace(self, changed: Mapping[str, StoredScheduleEntry], gone: Iterable[str]) -> None:
        for name in gone:
            if self.entries.pop(name, None) is not None and not self._taken(name):
                del self._schedule[name]
        self.entries |= changed
        self._schedule.update(changed)

    def delete_finished(self, names: Iterable[str], *, before: Instant) -> None:
        """Delete those of these entries whose only slot was earlier, unless they change meanwhile."""
        for name in names:
            entry = self.entries.get(name)
            only = None if entry is None else _only_slot(entry)
            if entry is not None and only is not None and only < before:
                try:
                    self._records.write([RecordChange(name, entry.revision)], change=None, now=before)
                except ConflictError:
                    continue


@dataclass(frozen=True)
class ResolvedStored:
    """Stored entries that can be used, by name, up to a revision."""

    entries: Mapping[str, StoredScheduleEntry] = field(default_factory=dict)
    declared: Mapping[str, Declared] = field(default_factory=dict)
    policies: Mapping[str, Policy | None] = field(default_factory=dict)
    forms: Mapping[str, ScheduleForm] = field(default_factory=dict)
    longest_window: timedelta = timedelta()
    revision: int = 0
    warnings: tuple[str, ...] = ()
    unused: Mapping[str, str] = field(default_factory=dict)
    """Why other stored entries do not run: they are disabled, or have mistakes."""

    def updated(self, changed: ResolvedStored, touched: Collection[str]) -> ResolvedStored:
        """Return the entries after a change of those that were touched; some of them may be gone."""

        def merged(before: Mapping[str, _Part], after: Mapping[str, _Part]) -> dict[str, _Part]:
            return {name: one for name, one in before.items() if name not in touched} | dict(after)

        return ResolvedStored(
            merged(self.entries, changed.entries),
            merged(self.declared, changed.declared),
            merged(self.policies, changed.policies),
            merged(self.forms, changed.forms),
            max(self.longest_window, changed.longest_window),
            unused=merged(self.unused, changed.unused),
        )


def resolve_stored(
    app: Any, records: Mapping[str, tuple[int, str]], *, taken: Callable[[str], bool]
) -> tuple[ResolvedStored, dict[str, str]]:
    """Resolve the enabled entries of these records; return them, and the reasons for those that cannot be
    used.

    Of entries with the same schedule and policy only the first is resolved, and the others share what was
    built for it: one entry for each of 100,000 customers costs as much as a declared one.
    """
    entries, refused = dict[str, StoredScheduleEntry](), dict[str, str]()
    unused = dict[str, str]()
    builder = _Builder(app)
    for name, (revision, text) in sorted(records.items()):
        try:
            entry = decode(name, revision, text)
            if not entry.enabled:
                unused[name] = "disabled"
                continue
            if taken(name):
                refused[name] = f"a declared entry has the name {shown(name)}, and wins; delete one of them"
                continue
            built = builder.build(entry)
            wrong = [*_own_mistakes(built)]
            if wrong:
                refused[name] = "; ".join(map(str, wrong))
            else:
                entries[name] = built
        except (ConfigurationError, ValueError, TypeError, ArithmeticError, AttributeError) as error:
            refused[name] = f"{path(PLACE, name)}: cannot be used ({error}); correct it, or delete it"
    alike = builder.alike(entries)
    while alike:
        try:
            found = resolve_built(app, {name: entries[name] for name in alike})
            return replace(_with_others(found, entries, alike), unused=unused | refused), refused
        except ConfigurationError as error:
            wrong_ones = mistakes_by_entry(error.mistakes, alike, place=PLACE)
            # A mistake of the settings themselves is in no entry: beat has not started with it.
            wrong_ones = wrong_ones or dict.fromkeys(alike, str(error))
            for first, why in wrong_ones.items():
                refused |= {
                    name: why.replace(path(PLACE, first), path(PLACE, name)) for name in alike.pop(first)
                }
    return ResolvedStored(unused=unused | refused), refused


def _own_mistakes(entry: StoredScheduleEntry) -> Iterator[Mistake]:
    """Find the mistakes that entries with the same schedule and policy do not share."""
    place = path(PLACE, entry.name)
    problem = name_problem(entry.name)
    if problem is not None:
        yield Mistake(place, problem)
    yield from entry_mistakes(entry, place=place, serializer=entry.app.conf.task_serializer)


def _with_others(
    found: ResolvedStored, entries: Mapping[str, StoredScheduleEntry], alike: Mapping[str, Sequence[str]]
) -> ResolvedStored:
    """Return what was resolved for the first of each group with the others of the group."""
    declared = dict(found.declared)
    for first, names in alike.items():
        same = found.declared[first]
        declared |= {name: _renamed(same, name, entries[name].task) for name in names if name != first}
    usable = {name: entries[name] for names in alike.values() for name in names}
    return replace(
        found,
        entries=usable,
        declared=declared,
        policies={name: found.policies[first] for first, names in alike.items() for name in names},
        forms={name: found.forms[first] for first, names in alike.items() for name in names},
        warnings=tuple(_for_all(warning, alike) for warning in found.warnings),
    )


def _renamed(same: Declared, name: str, task: str) -> Declared:
    """Return an entry that differs from another one in name and task."""
    sample = same.build(0)
    if same.build(1) is not sample:  # it counts from its own anchor
        return replace(same, name=name, task=task, build=lambda anchors: same.build(anchors).renamed(name))
    entry = sample.renamed(name)
    return replace(same, name=name, task=task, build=lambda _: entry)


def _for_all(warning: str, alike: Mapping[str, Sequence[str]]) -> str:
    """Add to a warning how many more entries it is about."""
    for first, names in alike.items():
        if len(names) > 1 and warning.startswith(f"entry {shown(first)}:"):
            return f"{warning} ({len(names) - 1} more stored entries are like it)"
    return warning


def resolve_built(app: Any, entries: Mapping[str, StoredScheduleEntry]) -> ResolvedStored:
    """Resolve stored entries that are built; raise `ConfigurationError` with all their mistakes."""
    # The ledger's lifetime follows the windows of stored entries, so it is in conflict with none of them.
    raw = {name: value for name, value in raw_settings(app).items() if name not in (ENTRIES, _LEDGER_TTL)}
    declared = {name: entry.declaration() for name, entry in entries.items()}
    configuration = load(raw, declared=declared, timezone=app.timezone, place=PLACE)
    resolved = resolve_entries(entries, configuration, timezone=app.timezone, place=PLACE)
    return ResolvedStored(
        entries,
        {one.name: one for one in resolved.declared},
        configuration.policies,
        configuration.forms,
        configuration.longest_window,
        warnings=resolved.warnings,
    )


def build_stored(app: Any, entry: StoredEntry) -> StoredScheduleEntry:
    """Build an entry of the beat schedule from a stored one."""
    return _Builder(app).build(entry)


class _Builder:
    """Builds entries of the beat schedule; those with the same schedule and policy share them."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._shared: dict[str, tuple[ConfiguredSchedule, object]] = {}
        self._groups: dict[str, list[str]] = {}
        self._built_at = app.now()

    def build(self, entry: StoredEntry) -> StoredScheduleEntry:
        """Build an entry."""
        options = {intern(name): value for name, value in entry.options.items()}
        # Beside schedule and policy, only the expiry of messages is compared with the slots.
        shape = json.dumps((entry.schedule, entry.catchup, options.get("expires")))
        if shape not in self._shared:
            self._shared[shape] = ConfiguredSchedule(entry.schedule, app=self._app), entry.policy()
        schedule, policy = self._shared[shape]
        self._groups.setdefault(shape, []).append(entry.name)
        return StoredScheduleEntry(
            name=entry.name,
            task=intern(entry.task),
            schedule=schedule,
            args=tuple(entry.args),
            kwargs={intern(name): value for name, value in entry.kwargs.items()},
            options=options,
            catchup=policy,
            revision=entry.revision,
            last_run_at=self._built_at,
            app=self._app,
        )

    def alike(self, kept: Container[str]) -> dict[str, list[str]]:
        """Return the names of those entries that are kept, in groups that share schedule and policy, by the
        first of each."""
        groups = ([name for name in names if name in kept] for names in self._groups.values())
        return {names[0]: names for names in groups if names}


def _only_slot(entry: StoredScheduleEntry) -> Instant | None:
    """Return the slot of an entry that runs once."""
    written = entry.declaration().schedule
    if not isinstance(written, Mapping) or "at" not in written:
        return None
    slot: Instant | None = entry.schedule.newest(LAST_INSTANT)
    return slot
