"""Open an app for its operator: configuration, entries, store.

Everything is opened when it is first used: an operation that needs only the configuration opens no
connection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from celery_catchup.beat.catchup_entry import CatchupEntry, build_entries
from celery_catchup.beat.entry_sources import ExpandingSource, open_source
from celery_catchup.beat.for_each_values import StoredValues
from celery_catchup.beat.resolved_entries import ResolvedEntries, destination_of, resolve_entries
from celery_catchup.beat.stored_source import ResolvedStored, resolve_stored
from celery_catchup.clock import Clock, SystemClock
from celery_catchup.config.app_settings import misplaced_settings, raw_settings, read_settings
from celery_catchup.config.configuration import (
    BACKEND_CLEANUP,
    ENTRIES,
    EVERY_OTHER,
    Configuration,
    Declaration,
    load,
)
from celery_catchup.config.drift import digest, is_current
from celery_catchup.config.mistakes import Mistakes
from celery_catchup.config.name_patterns import entries_of, is_pattern, matching
from celery_catchup.config.settings import PREFIX, FirstStart
from celery_catchup.dispatch import Dispatcher
from celery_catchup.engine import Declared
from celery_catchup.engine.takeover import load_entries
from celery_catchup.engine.tracked_entries import TrackedEntry
from celery_catchup.error_text import did_you_mean, shown
from celery_catchup.errors import ConfigurationError
from celery_catchup.events import Events
from celery_catchup.model import Instant, to_instant, to_milliseconds
from celery_catchup.operations.refusals import NoPolicyError, UnknownEntryError
from celery_catchup.store import (
    Actor,
    AuditAction,
    AuditTrail,
    Backfills,
    Change,
    Controls,
    DeadlineRecords,
    EntryRecords,
    Leases,
    Ledger,
    Notes,
    States,
    Store,
    StoredState,
)
from celery_catchup.store.decisions import Decisions
from celery_catchup.store.history import History
from celery_catchup.store.listing import Listing
from celery_catchup.store.opening import open_store
from celery_catchup.store.recovery import Recovery
from celery_catchup.store.survey import Survey
from celery_catchup.store.workers import Workers
from celery_catchup.stored_entries.entries import Entries

_POLL_INTERVAL = PREFIX + "poll_interval"
MOST_PER_REQUEST = 100_000
"""Slots that one request of a web server may plan, over all its entries."""
_ANY_INTERVAL = "1ms"
"""Entries without a policy may run more often than beat could observe."""


_Part = TypeVar("_Part")


def _part(open_part: Callable[[Store], _Part]) -> cached_property[_Part]:
    """Declare a part of the store that is opened when it is first used."""
    return cached_property(lambda operator: open_part(operator.store))


class Operator:
    """An app's configuration, entries and store. Close it after use.

    ``actor`` is the person or program, for the audit trail. With ``only`` it reads no other entry, so that
    neither their number nor a mistake in them matters. ``most_planned`` is how many slots one preview may
    have over all its entries; a process that serves other requests too sets it.
    """

    clock: ClassVar[Clock] = SystemClock()
    most_planned: int | None = None

    def __init__(self, app: Any, *, actor: Actor, only: str | None = None) -> None:
        self.app, self.actor, self._only = app, actor, only

    @property
    def by(self) -> str:
        """The person or program, for log lines and records."""
        return str(self.actor)

    def change(
        self,
        action: AuditAction,
        entries: Iterable[str] = (),
        targets: Iterable[str] = (),
        **parameters: object,
    ) -> Change:
        """Return the record of a change by this operator, as the store's methods take it."""
        return Change(
            actor=self.actor,
            action=action,
            entries=tuple(dict.fromkeys(entries)),
            targets=tuple(targets),
            parameters=parameters,
        )

    def now(self) -> Instant:
        """Return the present time."""
        return to_instant(self.clock.now())

    def close(self) -> None:
        """Close the store and the connection to the broker, if they were opened."""
        for name in ("sender", "store"):
            if name in vars(self):
                getattr(self, name).close()

    # -- what is declared ------------------------------------------------------------------

    @cached_property
    def schedule(self) -> dict[str, CatchupEntry]:
        """All entries by name: those that are declared, then those that were created at run time."""
        return {**self.declared_schedule, **self.stored.entries}

    @cached_property
    def stored(self) -> ResolvedStored:
        """The entries that were created at run time and can be used."""
        if self._only is None:
            revision = self.entry_records.version()
            records = self.entry_records.read_all() if revision else {}
        else:
            revision = 0
            known = self._only in self.declared_schedule
            records = {} if known else self.entry_records.read([self._only])
        found, _ = resolve_stored(self.app, records, taken=self.declared_schedule.__contains__)
        return replace(found, revision=revision)

    def follow_stored(self) -> Operator:
        """Return an operator with the stored entries as they are now: this one if none has changed, else
        one that reads only those that have."""
        before, revision = self.stored, self.entry_records.version()
        if revision == before.revision:
            return self
        if revision < before.revision:  # the server went back
            names = {*before.entries, *(records := self.entry_records.read_all())}
        else:
            names = set(self.entry_records.changed(before.revision, revision))
            records = self.entry_records.read(names)
        changed, _ = resolve_stored(self.app, records, taken=self.declared_schedule.__contains__)
        other = Operator(self.app, actor=self.actor)
        other.most_planned = self.most_planned
        kept = ("source", "store", "declared_schedule", "declared_configuration", "declared_resolved")
        vars(other).update({name: getattr(self, name) for name in (*kept, "every_declared")})
        vars(other)["stored"] = replace(before.updated(changed, names), revision=revision)
        return other

    @cached_property
    def declared_schedule(self) -> dict[str, CatchupEntry]:
        """The declared entries by name. Like beat, it imports the app's modules for them."""
        self.app.loader.import_default_modules()
        self.app.finalize()
        entries = self.source.entries()
        if self._only is not None and self._only in entries:
            entries = {self._only: entries[self._only]}
        # One wrong row of a database must not hide the others.
        refused = None if self.source.strict else dict[str, str]()
        return build_entries(entries, self._entry, refused=refused)

    @cached_property
    def source(self) -> ExpandingSource:
        """The source of the entries: the settings, or a database."""
        chosen = read_settings(self.app, only=("source",)).source
        return open_source(self.app, chosen, StoredValues(self.app))

    def _entry(self, name: str, fields: CatchupEntry | Mapping[str, Any]) -> CatchupEntry:
        if isinstance(fields, CatchupEntry):
            fields.app = fields.app or self.app  # as Celery's scheduler does
            return fields
        return CatchupEntry(**{**fields, "name": name, "app": self.app})

    @cached_property
    def declared_configuration(self) -> Configuration:
        """The configuration without stored entries; raises `ConfigurationError` with all its mistakes."""
        return self._load(self.declared_schedule, {})

    @cached_property
    def configuration(self) -> Configuration:
        """The whole configuration; raises `ConfigurationError` with all its mistakes."""
        declared, stored = self.declared_configuration, self.stored
        policies, forms = {**declared.policies, **stored.policies}, {**declared.forms, **stored.forms}
        return replace(declared, policies=policies, forms=forms)

    @cached_property
    def declared_resolved(self) -> ResolvedEntries:
        """Declared entries with a policy, and those without."""
        return resolve_entries(
            self.declared_schedule, self.declared_configuration, timezone=self.app.timezone
        )

    @cached_property
    def resolved(self) -> ResolvedEntries:
        """Entries with a policy, and those without."""
        declared = self.declared_resolved
        return replace(declared, declared=(*declared.declared, *self.stored.declared.values()))

    def configured(self, policies: Mapping[str, object]) -> Configuration:
        """Load the configuration with other policies for these entries."""
        return self._load(self.schedule, policies)

    def _load(
        self,
        schedule: Mapping[str, CatchupEntry],
        policies: Mapping[str, object],
        *,
        poll_interval: object = None,
    ) -> Configuration:
        raw = raw_settings(self.app) | ({_POLL_INTERVAL: poll_interval} if poll_interval else {})
        declared = self.source.declarations(schedule)
        declared.pop(BACKEND_CLEANUP, None)
        templates = self.source.templates
        written: Any = raw.get(ENTRIES) or {}
        if self._only in declared and isinstance(written, Mapping):
            expansion = declared[self._only].expansion
            wanted = (self._only, EVERY_OTHER, None if expansion is None else expansion.of)
            templates = {name: one for name, one in templates.items() if name in wanted}
            written = raw[ENTRIES] = {name: one for name, one in written.items() if name in wanted}
        if policies:
            raw[ENTRIES] = {name: one for name, one in written.items() if name not in policies}
            declared |= {
                name: Declaration(declared[name].schedule, one, expansion=declared[name].expansion)
                for name, one in policies.items()
            }
        mistakes = Mistakes(misplaced_settings(self.app))
        with mistakes.collect():
            found = load(raw, declared=declared, timezone=self.app.timezone, templates=templates)
        mistakes.raise_if_any()
        return found

    def resolve(self, configuration: Configuration) -> ResolvedEntries:
        """Resolve the entries under a configuration."""
        return resolve_entries(self.schedule, configuration, timezone=self.app.timezone)

    @cached_property
    def declared(self) -> Mapping[str, Declared]:
        """The entries with a policy by name."""
        return {one.name: one for one in self.resolved.declared}

    @cached_property
    def every_entry(self) -> tuple[Declared, ...]:
        """All entries whose schedule lists its slots; those without a policy as if their catch-up were
        off, even where a policy would not be allowed."""
        return (*self.every_declared, *self.stored.declared.values())

    @cached_property
    def _every_by_name(self) -> Mapping[str, Declared]:
        return {one.name: one for one in self.every_entry}

    @cached_property
    def every_declared(self) -> tuple[Declared, ...]:
        """The same without stored entries."""
        resolved, configuration = self.declared_resolved, self.declared_configuration
        unmanaged = [name for name in resolved.unmanaged if name in configuration.policies]
        if unmanaged:
            with suppress(ConfigurationError):
                policies, schedule = dict.fromkeys(unmanaged, False), self.declared_schedule
                configuration = self._load(schedule, policies, poll_interval=_ANY_INTERVAL)
                resolved = resolve_entries(schedule, configuration, timezone=self.app.timezone)
        return resolved.declared

    # -- what is stored --------------------------------------------------------------------

    @cached_property
    def store(self) -> Store:
        """The app's store; it connects with the first command."""
        return open_store(self.app, self.declared_configuration.settings)

    entry_records = _part(EntryRecords)
    states = _part(States)
    ledger = _part(Ledger)
    listing = _part(Listing)
    deadlines = _part(DeadlineRecords)
    survey = _part(Survey)
    history = _part(History)
    decisions = _part(Decisions)
    controls = _part(Controls)
    audit = _part(AuditTrail)
    backfills = _part(Backfills)
    workers = _part(Workers)
    notes = _part(Notes)
    recovery = _part(Recovery)

    @cached_property
    def stored_entries(self) -> Entries:
        """Creates and changes entries at run time."""
        return Entries(self.app, self.store, actor=self.actor)

    @cached_property
    def leases(self) -> Leases:
        """Ends runs."""
        ttl_ms = to_milliseconds(self.configuration.settings.run_lease_ttl)
        return Leases(self.store, ttl_ms=ttl_ms)

    @cached_property
    def sender(self) -> Dispatcher:
        """Builds messages."""
        return Dispatcher(self.app, state=self.store.client, state_db=self.store.db)

    def open_shared(self) -> None:
        """Open everything that copies of this operator share."""
        _ = (self.source, self.schedule, self.declared, self._every_by_name)
        _ = (self.configuration, self.listing, self.states)

    def read_stored(self, names: Iterable[str] | None = None) -> StoredState:
        """Read the stored state of all entries or of these, whatever version has written it."""
        return self.states.load(any_schema=True, names=names)

    def read_for_change(self, names: Iterable[str] | None = None) -> StoredState:
        """Read the stored state before a change; raise `StoreError` if a newer version has written it."""
        return self.states.load(names=names)

    def declares_as_leader(self) -> bool:
        """Whether the beat that leads, or led last, has the entries of this app, as far as is known."""
        theirs = self.read_stored(()).declares
        return not is_current(theirs) or theirs == digest(self.resolved.records, destination_of(self.app))

    def tracked(
        self, stored: StoredState, now: Instant, names: Collection[str] | None = None
    ) -> dict[str, TrackedEntry]:
        """Return all entries, or only these, as the planner sees them; without a policy as if their
        catch-up were off. An entry whose schedule fails is left out."""
        found = self._every_by_name
        declared = list(found.values()) if names is None else [found[name] for name in names if name in found]
        match = self.configuration.settings.first_start is FirstStart.MATCH
        loaded = load_entries(declared, stored, now=now, match_first=match, events=Events())
        return {one.entry.name: one for one in loaded.entries}

    # -- names -----------------------------------------------------------------------------

    def known(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the entries of these names and patterns; raise `UnknownEntryError` for one that matches
        neither a declared nor a stored entry, nor one that is removed and not forgotten."""
        wanted = tuple(dict.fromkeys(names))
        if all(name in self.schedule for name in wanted):
            return wanted
        return self._found(wanted, {name: None for name in self._remembered() if name != BACKEND_CLEANUP})

    def names_like(self, text: str, *, most: int) -> tuple[str, ...]:
        """Return the entries of this name or pattern, or the first ones whose names contain the text; raise
        `UnknownEntryError` if there is none."""
        if text in self.schedule:
            return (text,)
        known = self._remembered()
        if text in known:
            return (text,)
        names = [name for name in known if name != BACKEND_CLEANUP]
        found = matching(text, names) if is_pattern(text) else []
        found = found or [name for name in names if text.casefold() in name.casefold()]
        return tuple(found[:most]) or self.known([text])

    def in_schedule(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the entries of these names and patterns; raise `UnknownEntryError` for one that matches no
        entry of the schedule."""
        return self._found(dict.fromkeys(names), self.schedule)

    def with_policy(self, names: Iterable[str], *, advice: str) -> tuple[str, ...]:
        """Return the entries of these names and patterns. A pattern leaves out entries without a policy;
        raise `NoPolicyError` with the advice for a name of such an entry, or if nothing is left."""
        wanted: dict[str, None] = {}
        for written in dict.fromkeys(names):
            found = self.in_schedule([written])
            managed = [name for name in found if name in self.declared]
            if not managed:
                reasons = [text for text in self.resolved.not_replayable if text.startswith(f"{found[0]}: ")]
                raise NoPolicyError(
                    reasons[0] if reasons else f"entry {shown(found[0])} has no catch-up policy; {advice}"
                )
            wanted.update(dict.fromkeys(managed))
        return tuple(wanted)

    def one(self, name: str) -> str:
        """Return the name of an entry of the schedule; raise `UnknownEntryError` for another, or a
        pattern."""
        if name not in self.schedule:
            raise self._unknown(name, self.schedule)
        return name

    def _remembered(self) -> dict[str, None]:
        """Return the names of all entries, those that are removed and not forgotten last."""
        stored = self.read_stored()
        return dict.fromkeys((*self.schedule, *stored.first_seen, *stored.last_runs))

    def _found(self, wanted: Iterable[str], known: Mapping[str, object]) -> tuple[str, ...]:
        """Return the known entries of these names and patterns."""
        found: dict[str, None] = {}
        for written in wanted:
            names = entries_of(written, known)
            if not names:
                raise self._unknown(written, known)
            found.update(dict.fromkeys(names))
        return tuple(found)

    def _unknown(self, written: str, known: Mapping[str, object]) -> UnknownEntryError:
        some = ", ".join(sorted(known)[:4]) + (", …" if len(known) > 4 else "")
        there = f"known: {some}" if known else "beat_schedule is empty"
        what = "no entry matches" if is_pattern(written) else "no such entry:"
        return UnknownEntryError(f"{what} {shown(written)} ({there}){did_you_mean(written, known)}")
