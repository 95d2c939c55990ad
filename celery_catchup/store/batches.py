"""Batches: decisions as values, and how they are written for the script that commits them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, TypeVar

from celery_catchup.model import Instant, Skip
from celery_catchup.store.templates import Template

MOST_BYTES = 1_000_000
"""Of messages in one commit: the server answers nobody else meanwhile. A larger one is committed alone."""
MOST_RUNS = 500
"""In one commit, for the same reason."""
AT_ONCE = 500
"""Entries that one command reads or notes."""

Item = TypeVar("Item")


def portions(items: Iterable[Item], size: int = AT_ONCE) -> Iterator[list[Item]]:
    """The items in lists of at most ``size``; none when there are no items."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


@dataclass(slots=True)
class NewRun:
    """A run to be recorded; ``run`` is what the ledger keeps. One that may start at once has its
    message, and where that goes."""

    id: str
    run: Mapping[str, Any]
    send_at: Instant
    message: str = ""
    route: tuple[str, int] | None = None
    countdown_ms: int | None = None
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Ends:
    """That the entry's active runs end before the new ones join, and why."""

    terminate: bool
    why: str


@dataclass(slots=True)
class EntryBatch:
    """The decisions on one entry. ``expected`` is the watermark they were made from; ``missed`` is how
    many of the slots were late, whatever was decided on them.

    ``busy`` is how many active and waiting runs the plan took the entry to have, None when it does
    not matter; ``after`` is from where on it took the ledger to have no run of the entry, None when
    it was asked. When one of them does not hold, nothing of the entry is committed.
    """

    name: str
    expected: Instant | None
    decided: Instant
    capacity: int
    runs: Sequence[NewRun] = ()
    skips: Sequence[tuple[Skip, Instant | None]] = ()
    anchor: str | None = None
    resumes: bool = False
    missed: int = 0
    busy: int | None = None
    after: Instant | None = None
    ends: Ends | None = None


@dataclass(frozen=True, slots=True)
class UnmanagedBatch:
    """Messages of an entry without a policy, and what is then known of it."""

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
    plain: Sequence[UnmanagedBatch] = ()
    templates: Mapping[str, Template] = field(default_factory=dict)
    progress: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Committed:
    """``changed``: positions of entries that were not as their plans took them to be, and have to be
    planned again; ``existing``: runs that were in the ledger already; ``damaged``: positions of entries
    with a key that is not what it should be, and the key."""

    changed: frozenset[int]
    existing: frozenset[str]
    damaged: Mapping[int, str]


def encode(batch: Batch, *, stored: Collection[str]) -> tuple[str, list[str]]:
    """A batch as the script takes it: what is decided, in columns, and longer texts: two for each run.

    Of the templates that are ``stored`` already only the ids are sent; the texts of the others follow.
    """
    routes = _Routes()
    fresh = [name for name in batch.templates if name not in stored]
    encoded = {
        "templates": fresh,
        "stored": [name for name in batch.templates if name in stored],
        "entries": _entry_columns(batch.entries),
        "runs": _run_columns(batch.entries, routes),
        "timing": _timing(batch.entries),
        "more": {str(i): more for i, one in enumerate(batch.entries, 1) if (more := _more(one))},
        "plain": _plain_columns(batch.plain, routes),
        "progress": dict(batch.progress),
        "routes": routes.all,
    }
    texts = [
        text for entry in batch.entries for new in entry.runs for text in (_record(new.run), new.message)
    ]
    return _dumps(encoded), texts + [batch.templates[name].encoded() for name in fresh]


class _Routes:
    """Queues by number; 0 is none."""

    def __init__(self) -> None:
        self.all: list[tuple[str, int]] = []
        self._numbers: dict[tuple[str, int] | None, int] = {None: 0}

    def number(self, route: tuple[str, int] | None) -> int:
        if route not in self._numbers:
            assert route is not None
            self.all.append(route)
            self._numbers[route] = len(self.all)
        return self._numbers[route]


def _entry_columns(entries: Sequence[EntryBatch]) -> dict[str, list[Any]]:
    """Instants of hashes are text in the script."""
    return {
        "name": [one.name for one in entries],
        "expected": ["" if one.expected is None else str(one.expected) for one in entries],
        "decided": [str(one.decided) for one in entries],
        "capacity": [one.capacity for one in entries],
        "busy": [-1 if one.busy is None else one.busy for one in entries],
        "after": ["" if one.after is None else str(one.after) for one in entries],
        "runs": [len(one.runs) for one in entries],
    }


def _run_columns(entries: Sequence[EntryBatch], routes: _Routes) -> dict[str, list[Any]]:
    runs = [new for one in entries for new in one.runs]
    return {
        "id": [new.id for new in runs],
        "slot": [str(new.run["slot"]) for new in runs],
        "score": [_score(new.run) for new in runs],
        "send_at": [new.send_at for new in runs],
        "trigger": [new.run["trigger"] for new in runs],
        "route": [routes.number(new.route) for new in runs],
    }


def _timing(entries: Sequence[EntryBatch]) -> dict[str, dict[str, int]]:
    """The countdown and expiry (ms) of runs that have one, by their number."""
    runs = enumerate((new for one in entries for new in one.runs), 1)
    return {
        str(number): {
            name: value
            for name, value in (("countdown", new.countdown_ms), ("expires", new.expires_ms))
            if value is not None
        }
        for number, new in runs
        if new.countdown_ms is not None or new.expires_ms is not None
    }


def _score(run: Mapping[str, Any]) -> str:
    """The place in the chain; the fraction keeps slots of the same instant in the order of declaration."""
    return f"{run['slot']}.{run['schedule']:03}" if run["schedule"] else str(run["slot"])


def _more(entry: EntryBatch) -> dict[str, Any] | None:
    """What most entries do not have."""
    if not (entry.skips or entry.resumes or entry.missed or entry.ends or entry.anchor is not None):
        return None
    return {
        "skips": [_skip(skip, previous) for skip, previous in entry.skips],
        **({"missed": entry.missed} if entry.missed else {}),
        **({"resumes": True} if entry.resumes else {}),
        **({"ends": asdict(entry.ends)} if entry.ends else {}),
        **({} if entry.anchor is None else {"anchor": entry.anchor}),
    }


def _plain_columns(plain: Sequence[UnmanagedBatch], routes: _Routes) -> dict[str, list[Any]]:
    return {
        "name": [one.name for one in plain],
        "expected": [one.expected for one in plain],
        "value": [one.value for one in plain],
        "route": [routes.number((one.queue, one.db) if one.messages else None) for one in plain],
        "messages": [one.messages for one in plain],
    }


def _record(run: Mapping[str, Any]) -> str:
    """Without the brace at its end: the script goes on with the run's state."""
    return _dumps(run)[:-1]


_dumps = json.JSONEncoder(separators=(",", ":")).encode


def _skip(skip: Skip, previous: Instant | None) -> dict[str, Any]:
    """``previous`` is the slot before the span: a span that ends there is made longer instead."""
    fields: dict[str, Any] = {
        "schedule": skip.schedule,
        "first": skip.first,
        "last": skip.last,
        "count": skip.count,
        "reason": str(skip.reason),
    }
    return fields if previous is None else {**fields, "previous": previous}
