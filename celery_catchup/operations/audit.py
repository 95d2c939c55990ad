"""Read the audit trail: who changed what, when, and from where."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from celery_catchup.config.name_patterns import entries_of
from celery_catchup.model import to_datetime, to_instant
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.runs import cursor_at, position_of
from celery_catchup.store.audit import Origin, Position


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One change. ``targets`` are runs, a backfill or a key. At most 20 entries and targets are named; the
    counts are those of all. ``outcome`` is ``done``, how many of a bulk change were made (``3 of 5``), or
    ``begun`` if the change was interrupted."""

    id: str
    at: datetime
    actor: str
    origin: str
    action: str
    entries: tuple[str, ...]
    entry_count: int
    targets: tuple[str, ...]
    target_count: int
    parameters: dict[str, Any]
    outcome: str

    def concerns(self, entry: str) -> bool:
        """Whether the change was one of this entry, or of entries that the pattern matches. If more entries
        changed than are named, it may be."""
        return self.entry_count > len(self.entries) or bool(entries_of(entry, self.entries))


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Changes, the newest first; ``cursor`` leads to the next page."""

    records: tuple[AuditRecord, ...]
    cursor: str | None


def list_changes(
    operator: Operator,
    *,
    entries: Collection[str] = (),
    actor: str = "",
    origins: Collection[Origin] = (),
    since: datetime | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> AuditPage:
    """List changes of these entries, by actors whose names contain ``actor``, from these origins. Entries
    that do not exist any more have changes, too."""
    after = None if cursor is None else position_of(cursor)
    wanted = actor.casefold()
    found: Iterator[tuple[Position, AuditRecord]] = (
        (place, record)
        for place, record in (
            (place, _record(place, stored))
            for place, stored in operator.audit.newest(
                after=after, since=None if since is None else to_instant(since)
            )
        )
        if (not entries or any(map(record.concerns, entries)))
        and wanted in record.actor.casefold()
        and (not origins or record.origin in origins)
    )
    page = list(islice(found, limit))
    more = bool(page) and next(found, None) is not None
    return AuditPage(tuple(record for _, record in page), cursor_at(*page[-1][0]) if more else None)


def _record(place: Position, stored: Mapping[str, Any]) -> AuditRecord:
    """Convert a stored record; what is missing or of a wrong type is empty."""
    entries, targets = _texts(stored.get("entries")), _texts(stored.get("targets"))
    parameters = stored.get("parameters")
    return AuditRecord(
        id=place[1],
        at=to_datetime(place[0]),
        actor=str(stored.get("actor") or ""),
        origin=str(stored.get("origin") or ""),
        action=str(stored.get("action") or ""),
        entries=entries,
        entry_count=_count(stored.get("entry_count"), entries),
        targets=targets,
        target_count=_count(stored.get("target_count"), targets),
        parameters=parameters if isinstance(parameters, dict) else {},
        outcome=str(stored.get("outcome") or ""),
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _count(value: object, named: Collection[str]) -> int:
    return value if isinstance(value, int) and value > len(named) else len(named)
