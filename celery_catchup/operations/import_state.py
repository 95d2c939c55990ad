"""Import the last runs of another scheduler as watermarks, so that a switch loses no slot."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from celery_catchup.config.configuration import BACKEND_CLEANUP
from celery_catchup.config.policy import OnResume
from celery_catchup.events.log_lines import logfmt
from celery_catchup.model import to_instant
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.previews import preview
from celery_catchup.store import AuditAction, StoredState
from celery_catchup.store.controls import EntryToImport, with_imported_entries
from celery_catchup.store.store import stored_instant

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LastRun:
    """When another scheduler last sent an entry, and how often."""

    at: datetime
    count: int = 0


class ImportResult(StrEnum):
    """The result of the import for one entry."""

    TAKEN_OVER = "taken over"
    KNOWN = "known already"
    UNDECLARED = "not declared"
    FUTURE = "in the future"
    DISCARDS = "discards"
    STORED = "stored"
    NOT_TRANSLATED = "not translated"


@dataclass(frozen=True, slots=True)
class ImportedEntry:
    """One entry: when the other scheduler last sent it, and what the next tick does about the time since.

    ``dispatched`` and ``skipped`` are null for an entry without a policy, and ``problem`` is why an entry
    cannot be stored here.
    """

    entry: str
    last_run_at: datetime | None
    fate: ImportResult
    dispatched: int | None = None
    skipped: int | None = None
    problem: str | None = None


def import_last_runs(
    operator: Operator, found: Mapping[str, LastRun], *, dry_run: bool = False
) -> list[ImportedEntry]:
    """Let entries that are new here continue after their last runs elsewhere.

    An entry that is known here keeps its state: importing twice changes nothing. Stop the other
    scheduler first, or what it sends afterwards is sent twice.
    """
    stored = operator.read_for_change()
    found = {name: found[name] for name in sorted(found) if name != BACKEND_CLEANUP}
    fates = {name: _fate(operator, stored, name, run) for name, run in found.items()}
    imported = [
        EntryToImport(name, to_instant(run.at), run.count, policy=name in operator.declared)
        for name, run in found.items()
        if fates[name] is ImportResult.TAKEN_OVER
    ]
    ahead = with_imported_entries(stored, imported)
    named = [entry.name for entry in imported if entry.policy]
    previews = preview(operator, named, stored=ahead) if named else []
    if imported and not dry_run:
        change = operator.change(AuditAction.IMPORT, [entry.name for entry in imported])
        operator.controls.import_entries(imported, change=change)
        for entry in imported:
            logger.info(logfmt("Entry taken over", entry=entry.name, by=operator.by))
    counts = {one.entry: (one.dispatched, one.skipped) for one in previews}
    return [
        ImportedEntry(name, run.at, fates[name], *counts.get(name, (None, None)))
        for name, run in found.items()
    ]


@dataclass(frozen=True, slots=True)
class Definition:
    """An entry of another scheduler: its fields here, or why it has none, and its last run there."""

    fields: Mapping[str, object] | None
    last_run: LastRun | None = None
    problem: str = ""


def import_definitions(
    operator: Operator, found: Mapping[str, Definition], *, policy: object, dry_run: bool = False
) -> list[ImportedEntry]:
    """Store the entries that exist only in another scheduler; each continues after its last run there.

    A declared entry, and one that is stored already, is left alone: importing twice changes nothing.
    """
    operator.read_for_change()
    here = {*operator.declared_schedule, BACKEND_CLEANUP}
    new = {name: found[name] for name in sorted(found) if name not in here}
    fields = {name: {"catchup": policy, **one.fields} for name, one in new.items() if one.fields is not None}
    known = operator.entry_records.read(fields)
    stored = operator.stored_entries
    problems = {name: one.problem for name, one in new.items() if one.fields is None}
    problems |= stored.problems(one for name, one in fields.items() if name not in known)
    wanted = {
        name: (one, None if (run := new[name].last_run) is None else to_instant(run.at))
        for name, one in fields.items()
        if name not in known and name not in problems
    }
    counts: dict[str, tuple[int, int]] = {}
    if wanted and not dry_run:
        stored.take_over(wanted)
        after = operator.follow_stored()
        enabled = [name for name in wanted if name in after.declared]
        previews = preview(after, enabled) if enabled else []
        counts = {one.entry: (one.dispatched, one.skipped) for one in previews}

    def imported(name: str, run: LastRun | None) -> ImportedEntry:
        fate = ImportResult.KNOWN if name in known else ImportResult.STORED
        fate = ImportResult.NOT_TRANSLATED if name in problems else fate
        dispatched, skipped = counts.get(name, (None, None))
        at = None if run is None else run.at
        return ImportedEntry(name, at, fate, dispatched, skipped, problems.get(name))

    return [imported(name, one.last_run) for name, one in new.items()]


def _fate(operator: Operator, stored: StoredState, name: str, run: LastRun) -> ImportResult:
    if name not in operator.schedule:
        return ImportResult.UNDECLARED
    if name in (stored.first_seen if name in operator.declared else stored.last_runs):
        return ImportResult.KNOWN
    at = to_instant(run.at)
    if at > operator.now():
        return ImportResult.FUTURE
    policy = operator.configuration.policies.get(name)
    earlier = at < (stored_instant(stored.watermark) or 0)
    if policy is not None and earlier and policy.on_resume is OnResume.DISCARD:
        return ImportResult.DISCARDS
    return ImportResult.TAKEN_OVER
