"""Batches: decisions as values, and their encoding for the script that commits them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from celery_catchup.model import Instant, Skip, Slot, Trigger
from celery_catchup.store.templates import Template

MOST_BYTES = 1_000_000
"""Most bytes of messages in one commit, because the server serves no other client meanwhile. A larger
message is committed alone."""
MOST_RUNS = 500
"""Most runs in one commit, for the same reason."""
_OUTBOX = -1
"""The number that the script has for the outbox, in place of a queue's."""


@dataclass(slots=True)
class NewRun:
    """A new run; ``record`` is its record in the ledger, as JSON without the closing brace; the script adds
    its state. A run that may start at once has its message and destination, or is for the outbox."""

    id: str
    slot: Slot
    trigger: Trigger
    record: str
    send_at: Instant
    message: str = ""
    route: tuple[str, int] | None = None
    countdown_ms: int | None = None
    expires_ms: int | None = None
    outbox: bool = False

    @property
    def run(self) -> dict[str, Any]:
        """Decode the record."""
        fields: dict[str, Any] = json.loads(f"{self.record}}}")
        return fields


@dataclass(frozen=True, slots=True)
class Ends:
    """The order to end the entry's active runs before the new ones join, and the reason."""

    terminate: bool
    why: str


@dataclass(frozen=True, slots=True)
class CatchupRecord:
    """A catch-up that decides the slots in ``(after, at]``, and the facts that its plan depends on."""

    at: Instant
    after: Instant
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class More:
    """Decisions that a live slot does not have; entries with the same plan share one. Each skip comes with
    the slot before it. ``resumes`` is the record of the pause whose end is decided; a record that was written
    since stays. ``missed`` is the number of late slots, run or skipped; ``catchup`` is there if slots were
    missed."""

    skips: Sequence[tuple[Skip, Instant | None]] = ()
    anchor: str | None = None
    resumes: str = ""
    missed: int = 0
    ends: Ends | None = None
    catchup: CatchupRecord | None = None

    def __bool__(self) -> bool:
        return bool(self.skips or self.anchor or self.resumes or self.missed or self.ends or self.catchup)


@dataclass(slots=True)
class EntryBatch:
    """The decisions on one entry. ``expected`` is the watermark at which its plan started.

    ``busy`` is the number of active and waiting runs that the plan assumed, None if it does not
    matter. ``after`` is the instant after which the plan assumed no run in the ledger, None if it has
    read the ledger. If an assumption is wrong, the script skips the entry and reports it.
    """

    name: str
    expected: Instant | None
    decided: Instant
    capacity: int
    runs: Sequence[NewRun] = ()
    more: More | None = None
    busy: int | None = None
    after: Instant | None = None


@dataclass(frozen=True, slots=True)
class UnmanagedBatch:
    """Messages of an entry without a policy, and its new state."""

    name: str
    expected: str
    value: str
    queue: str = ""
    db: int = 0
    messages: Sequence[str] = ()


@dataclass(frozen=True)
class Batch:
    """Decisions that become durable together."""

    entries: Sequence[EntryBatch] = ()
    unmanaged: Sequence[UnmanagedBatch] = ()
    templates: Mapping[str, Template] = field(default_factory=dict)
    progress: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Committed:
    """The result of a commit. ``changed`` has the positions of entries for which an assumption was
    wrong: plan them again. ``existing`` has runs that were in the ledger already. ``damaged`` has the
    positions of entries with a key of the wrong type, and the key."""

    changed: frozenset[int]
    existing: frozenset[str]
    damaged: Mapping[int, str]


def encode(batch: Batch, *, stored: Collection[str]) -> tuple[str, list[str]]:
    """Encode a batch for the script: the decisions as columns, and longer texts, two for each run.

    Of templates that are ``stored`` already only the ids are sent; the texts of the others follow.
    """
    runs = [new for entry in batch.entries for new in entry.runs]
    fresh = [name for name in batch.templates if name not in stored]
    routes: dict[tuple[str, int] | None, int] = {None: 0}  # queues by number
    more = {id(one.more): one.more for one in batch.entries if one.more is not None}
    numbers = {identity: number for number, identity in enumerate(more, 1)}
    encoded = {
        "templates": fresh,
        "stored": [name for name in batch.templates if name in stored],
        "entries": {
            "name": [one.name for one in batch.entries],
            # Instants of hashes are text in the script.
            "expected": ["" if one.expected is None else str(one.expected) for one in batch.entries],
            "decided": [str(one.decided) for one in batch.entries],
            "capacity": [one.capacity for one in batch.entries],
            "busy": [-1 if one.busy is None else one.busy for one in batch.entries],
            "after": ["" if one.after is None else str(one.after) for one in batch.entries],
            "runs": [len(one.runs) for one in batch.entries],
            "more": [numbers.get(id(one.more), 0) for one in batch.entries],
        },
        "more": [_present(one) for one in more.values()],
        "runs": {
            "id": [new.id for new in runs],
            "slot": [str(new.slot.at) for new in runs],
            "score": [_score(new.slot) for new in runs],
            "send_at": [new.send_at for new in runs],
            "trigger": [new.trigger for new in runs],
            "route": [_OUTBOX if new.outbox else routes.setdefault(new.route, len(routes)) for new in runs],
            "countdown": _some([new.countdown_ms for new in runs]),
            "expires": _some([new.expires_ms for new in runs]),
        },
        "unmanaged": {
            "name": [one.name for one in batch.unmanaged],
            "expected": [one.expected for one in batch.unmanaged],
            "value": [one.value for one in batch.unmanaged],
            "route": [
                routes.setdefault((one.queue, one.db) if one.messages else None, len(routes))
                for one in batch.unmanaged
            ],
            "messages": [one.messages for one in batch.unmanaged],
        },
        "progress": dict(batch.progress),
        "routes": list(routes)[1:],
    }
    texts = [text for new in runs for text in (new.record, new.message)]
    return _dumps(encoded), texts + [batch.templates[name].encoded for name in fresh]


_dumps = json.JSONEncoder(separators=(",", ":")).encode


def _score(slot: Slot) -> str:
    """Return the place in the chain; the fraction keeps slots of the same instant in the order of
    declaration."""
    return f"{slot.at}.{slot.schedule:03}" if slot.schedule else str(slot.at)


def _present(more: More) -> dict[str, Any]:
    """Encode the decisions that are there. A span of skips that ends at the slot before is extended."""
    skips = [asdict(skip) | {"previous": previous} for skip, previous in more.skips]
    found = {name: value for name, value in asdict(more).items() if value}
    return found | {"skips": [{k: v for k, v in skip.items() if v is not None} for skip in skips]}


def _some(column: list[int | None]) -> list[int | bool]:
    """Encode a column that most runs have no value in."""
    return [False if value is None else value for value in column] if column.count(None) < len(column) else []
