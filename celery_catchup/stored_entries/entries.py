"""Create, change, list and delete entries at run time, from any process of the app."""

from __future__ import annotations

import builtins
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from celery_catchup.clock import Clock, SystemClock
from celery_catchup.config.configuration import mistakes_by_entry
from celery_catchup.config.mistakes import Mistakes, config_error
from celery_catchup.config.name_patterns import entries_of, is_pattern
from celery_catchup.error_text import shown
from celery_catchup.errors import (
    EntryChangedError,
    EntryError,
    EntryExistsError,
    EntryMissingError,
    Mistake,
    StoreError,
)
from celery_catchup.model import Instant, to_instant
from celery_catchup.store import Actor, AuditAction, Change, EntryRecords, Store
from celery_catchup.store.entry_records import ConflictError, Effect, RecordChange, RecordConflict
from celery_catchup.store.opening import open_store
from celery_catchup.stored_entries.changes import (
    Action,
    Applied,
    EntryChange,
    changed_values,
    compare,
    covered,
    effect_of,
)
from celery_catchup.stored_entries.stored_entry import EntryFields, StoredEntry, decode, encode
from celery_catchup.stored_entries.validation import (
    PLACE,
    parse_entries,
    parse_schedules,
    schedule_mistakes,
    too_long,
)

MOST_ENTRIES = 10_000
"""Most entries of one `Entries.apply`."""
_TRIES = 10
"""How often a change without an expected revision is repeated when others change the same entry."""
_stores: WeakKeyDictionary[Any, Store] = WeakKeyDictionary()
_lock = threading.Lock()


def entries(app: Any, *, actor: str = "") -> Entries:
    """Return the stored entries of an app; ``actor`` is the user or program that changes them, for the audit
    trail; by default the user of this process.

    Calls share one pool of connections for each app, and may be made from any thread.
    """
    with _lock:
        store = _stores.get(app)
        if store is None:
            store = _stores[app] = open_store(app)
    return Entries(app, store, actor=Actor.in_python(actor))


class Entries:
    """The entries of an app that are kept in Redis. The leading beat uses a change from its next tick on.

    Wrong fields raise one `ConfigurationError` with every mistake, and conflicts an `EntryError`; nothing is
    written then.
    """

    clock: ClassVar[Clock] = SystemClock()

    def __init__(self, app: Any, store: Store, *, actor: Actor) -> None:
        self._app, self._records, self._actor = app, EntryRecords(store), actor

    # -- read ------------------------------------------------------------------------------

    def get(self, name: str) -> StoredEntry:
        """Return an entry; `EntryMissingError` if there is none of this name."""
        found = self._read([name]).get(name)
        if found is None:
            raise self._missing(name)
        return found

    def names(self, written: Iterable[str]) -> builtins.list[str]:
        """Return the entries of these names and patterns; `EntryMissingError` for one that matches none."""
        wanted = builtins.list(dict.fromkeys(written))
        known = dict.fromkeys(self._read(wanted))
        if any(is_pattern(one) and one not in known for one in wanted):
            known = dict.fromkeys(sorted(self._records.read_all()))
        found: dict[str, None] = {}
        for one in wanted:
            names = entries_of(one, known)
            if not names:
                raise self._missing(one)
            found.update(dict.fromkeys(names))
        return builtins.list(found)

    def find(self, names: Iterable[str]) -> dict[str, StoredEntry]:
        """Return these entries by name; those that do not exist or cannot be read are left out."""
        return _readable(self._records.read(names))

    def check_free(self, name: str) -> None:
        """Raise `EntryExistsError` if an entry could not be created because its name is taken."""
        if name in self._read([name]):
            raise _exists(name)

    def _missing(self, name: str) -> EntryMissingError:
        declared = name in self._app.conf.beat_schedule
        advice = "; the declared entry of this name is changed in the settings" if declared else ""
        return EntryMissingError(f"no stored entry has the name {shown(name)}{advice}")

    def list(
        self, *, prefix: str = "", labels: Mapping[str, str] | None = None, task: str | None = None
    ) -> builtins.list[StoredEntry]:
        """List the entries by name: those whose names begin with ``prefix``, that have all these labels, and
        run this task."""
        found = covered(self._all().values(), labels or {})
        return sorted(
            (one for one in found if one.name.startswith(prefix) and task in (None, one.task)),
            key=lambda one: one.name,
        )

    def export(
        self, *, prefix: str = "", labels: Mapping[str, str] | None = None, task: str | None = None
    ) -> builtins.list[dict[str, Any]]:
        """Return the entries as `apply` takes them; fields at their defaults are left out."""
        return [one.fields() for one in self.list(prefix=prefix, labels=labels, task=task)]

    # -- write -----------------------------------------------------------------------------

    def create(
        self, name: str, *, task: str, schedule: object, dry_run: bool = False, **fields: Any
    ) -> StoredEntry:
        """Create an entry; `EntryExistsError` if its name is taken.

        ``schedule`` is a cron string, ``{"every": "15m"}``, ``{"at": "2026-12-01T09:00:00Z"}``, a list, or
        ``start``/``stop``/``restart``. ``fields`` are args, kwargs, options, catchup, description, labels and
        enabled. A dry run validates, and writes nothing.
        """
        if dry_run:
            self.check_free(name)
        written = {**fields, "name": name, "task": task, "schedule": schedule}
        return self._change(None, written, dry_run=dry_run)

    def update(
        self, name: str, *, revision: int | None = None, dry_run: bool = False, **fields: Any
    ) -> StoredEntry:
        """Change some fields of an entry, and return it.

        With ``revision``, raise `EntryChangedError` if the entry has another one: it was changed since you
        read it.
        """
        for last in range(_TRIES - 1, -1, -1):
            before = self._expected(name, revision)
            try:
                written = {**before.fields(), **fields, "name": name}
                return self._change(before, written, dry_run=dry_run)
            except EntryChangedError:
                if revision is not None or not last:
                    raise
        raise AssertionError("unreachable")

    def delete(self, name: str, *, revision: int | None = None) -> None:
        """Delete an entry. Its history and its watermark are kept as long as the ledger keeps runs."""
        for last in range(_TRIES - 1, -1, -1):
            before = self._expected(name, revision)
            try:
                change = self._deletion([name])
                self._write([RecordChange(name, before.revision)], change)
            except EntryChangedError:
                if revision is not None or not last:
                    raise
            else:
                return

    def delete_many(self, names: Iterable[str], *, dry_run: bool = False) -> Applied:
        """Delete these entries, all or none; `EntryMissingError` if one does not exist."""
        wanted = builtins.list(dict.fromkeys(names))
        found = self._read(wanted)
        for name in wanted:
            if name not in found:
                raise self._missing(name)
        changes = tuple(EntryChange(name, Action.DELETED) for name in wanted)
        if dry_run:
            return Applied(changes, 0, self._records.version())
        removals = [RecordChange(name, found[name].revision) for name in wanted]
        revision = self._write(removals, self._deletion(wanted))
        return Applied(changes, 0, revision)

    def apply(
        self,
        entries: Iterable[Mapping[str, object]],
        *,
        prune: Mapping[str, str] | None = None,
        dry_run: bool = False,
    ) -> Applied:
        """Make the stored entries as given: create those that are missing, change those that differ.

        All changes are made, or none; repeating a call changes nothing. With ``prune``, entries that have
        these labels and are not given are deleted. At most 10,000 entries.
        """
        raws = builtins.list(entries)
        if len(raws) > MOST_ENTRIES:
            raise config_error(
                PLACE, f"expected at most {MOST_ENTRIES} entries, got {len(raws)}; divide them"
            )
        if prune is not None and not prune:
            raise config_error("prune", "expected at least one label, got {}; it would cover every entry")
        parsed, mistakes = parse_entries(raws)
        for last in range(_TRIES - 1, -1, -1):
            known = self._all() if prune else self._read([one.name for one in parsed])
            wanted = {one.name: self._with(known.get(one.name), one) for one in parsed}
            gone = (
                [one for one in covered(known.values(), prune or {}) if one.name not in wanted]
                if prune
                else []
            )
            pairs = [(known.get(name), one) for name, one in wanted.items()]
            changes = [change for before, after in pairs if (change := compare(before, after))]
            self._check(parsed, pairs, mistakes, raws)
            changes += [change for one in gone if (change := compare(one, None))]
            if dry_run or not changes:
                return Applied(
                    tuple(changes), len(wanted) - _present(changes, wanted), self._records.version()
                )
            touched = {one.entry for one in changes}
            writes = [_write_of(before, after) for before, after in pairs if after.name in touched]
            writes += (RecordChange(one.name, one.revision) for one in gone)
            try:
                revision = self._write(writes, self._application(changes, prune))
            except (EntryChangedError, EntryMissingError):
                if not last:
                    raise
            else:
                return Applied(tuple(changes), len(wanted) - _present(changes, wanted), revision)
        raise AssertionError("unreachable")

    def problems(self, entries: Iterable[Mapping[str, object]]) -> dict[str, str]:
        """Return what is wrong with each of these entries, by name; those without mistakes are left out."""
        given = builtins.list(entries)
        parsed, mistakes = parse_entries(given)
        examined = [*parsed, *parse_schedules(given, parsed=parsed)]
        mistakes += schedule_mistakes(self._app, examined, new=(), now=self._now())
        return mistakes_by_entry(mistakes, [str(one.get("name")) for one in given], place=PLACE)

    def take_over(self, entries: Mapping[str, tuple[Mapping[str, object], Instant | None]]) -> Applied:
        """Create the entries of another scheduler, all or none; each counts from its last run there."""
        raws = [fields for fields, _ in entries.values()]
        parsed, mistakes = parse_entries(raws)
        pairs: builtins.list[tuple[StoredEntry | None, StoredEntry]] = [
            (None, self._with(None, one)) for one in parsed
        ]
        self._check(parsed, pairs, mistakes, raws)
        writes = [replace(_write_of(None, one), since=entries[one.name][1]) for _, one in pairs]
        names = tuple(one.name for _, one in pairs)
        change = Change(
            actor=self._actor, action=AuditAction.IMPORT, entries=names, parameters={"stored": True}
        )
        revision = self._write(writes, change)
        return Applied(tuple(EntryChange(one.name, Action.CREATED) for _, one in pairs), 0, revision)

    # -- inside ----------------------------------------------------------------------------

    def _change(self, before: StoredEntry | None, raw: Mapping[str, object], *, dry_run: bool) -> StoredEntry:
        parsed, mistakes = parse_entries([raw])
        pairs = [(before, self._with(before, one)) for one in parsed]
        self._check(parsed, pairs, mistakes, [raw])
        ((_, entry),) = pairs
        if entry is before or dry_run:
            return entry
        change = Change(
            actor=self._actor,
            action=AuditAction.ENTRIES_EDIT if before else AuditAction.ENTRIES_ADD,
            entries=(entry.name,),
            parameters=changed_values(compare(before, entry)),
        )
        return replace(entry, revision=self._write([_write_of(before, entry)], change))

    def _deletion(self, names: Sequence[str]) -> Change:
        return Change(actor=self._actor, action=AuditAction.ENTRIES_DELETE, entries=tuple(names))

    def _application(self, changes: Sequence[EntryChange], prune: Mapping[str, str] | None) -> Change:
        counts = Counter(str(one.action) for one in changes)
        return Change(
            actor=self._actor,
            action=AuditAction.ENTRIES_APPLY,
            entries=tuple(one.entry for one in changes),
            parameters={**counts, "prune": prune},
        )

    def _check(
        self,
        parsed: Sequence[EntryFields],
        pairs: Sequence[tuple[StoredEntry | None, StoredEntry]],
        found: Sequence[Mistake],
        raws: Sequence[object],
    ) -> None:
        """Raise every mistake of the entries that change, after those found already."""
        effects = {after.name: effect_of(before, after) for before, after in pairs if after is not before}
        changed = [one for one in parsed if one.name in effects]
        new = {name for name, effect in effects.items() if effect is not Effect.NONE}
        mistakes = Mistakes(found)
        if mistakes:
            changed += parse_schedules(raws, parsed=parsed)
        mistakes += schedule_mistakes(self._app, changed, new=new, now=self._now())
        mistakes += too_long(after for _, after in pairs if after.name in effects)
        mistakes.raise_if_any()
        declared = self._app.conf.beat_schedule
        for before, after in pairs:
            if before is None and after.name in declared:
                raise _taken(after.name)

    def _with(self, before: StoredEntry | None, fields: EntryFields) -> StoredEntry:
        """Return the entry with these fields, and who changed it when."""
        written = {name: getattr(fields, name) for name in EntryFields.model_fields}
        now, by = self.clock.now(), str(self._actor)
        if before is None:
            return StoredEntry(**written, created_at=now, created_by=by, changed_at=now, changed_by=by)
        after = replace(before, **written)
        if after.fields() == before.fields():
            return before
        return replace(after, changed_at=now, changed_by=by)

    def _expected(self, name: str, revision: int | None) -> StoredEntry:
        found = self.get(name)
        if revision is not None and found.revision != revision:
            raise _changed(RecordConflict(name, "changed", found.revision), revision)
        return found

    def _write(self, changes: Sequence[RecordChange], change: Change) -> int:
        try:
            return self._records.write(changes, change=change, now=self._now())
        except ConflictError as error:
            expected = {one.name: one.expected for one in changes}
            raise _conflict(error.conflicts[0], expected) from None

    def _now(self) -> int:
        return to_instant(self.clock.now())

    def _read(self, names: Iterable[str]) -> dict[str, StoredEntry]:
        return _decoded(self._records.read(names))

    def _all(self) -> dict[str, StoredEntry]:
        """Read every entry; a damaged one, which beat reports, hides no other."""
        return _readable(self._records.read_all())


def _readable(records: Mapping[str, tuple[int, str]]) -> dict[str, StoredEntry]:
    found = {}
    for name, (revision, text) in records.items():
        with suppress(ValueError):
            found[name] = decode(name, revision, text)
    return found


def _decoded(records: Mapping[str, tuple[int, str]]) -> dict[str, StoredEntry]:
    found = {}
    for name, (revision, text) in records.items():
        try:
            found[name] = decode(name, revision, text)
        except ValueError as error:
            raise StoreError(
                f"the record of stored entry {shown(name)} cannot be read ({error}); another program, or a "
                "newer version, has written it"
            ) from None
    return found


def _write_of(before: StoredEntry | None, after: StoredEntry) -> RecordChange:
    return RecordChange(after.name, before.revision if before else 0, encode(after), effect_of(before, after))


def _present(changes: Iterable[EntryChange], wanted: Mapping[str, object]) -> int:
    return sum(one.entry in wanted for one in changes)


def _conflict(found: RecordConflict, expected: Mapping[str, int]) -> Exception:
    match found.why:
        case "exists":
            return _exists(found.name)
        case "declared":
            return _taken(found.name)
        case "missing":
            return EntryMissingError(f"no stored entry has the name {shown(found.name)} any more")
        case "changed":
            return _changed(found, expected[found.name])
        case _:
            return EntryError("the call took too long and was not finished; repeat it")


def _exists(name: str) -> EntryExistsError:
    return EntryExistsError(f"a stored entry has the name {shown(name)}; update it, or choose another")


def _taken(name: str) -> EntryExistsError:
    return EntryExistsError(f"a declared entry has the name {shown(name)}; choose another name")


def _changed(found: RecordConflict, expected: int) -> EntryChangedError:
    return EntryChangedError(
        f"stored entry {shown(found.name)} has revision {found.revision}, expected {expected}: someone else "
        "has changed it; read it again"
    )
