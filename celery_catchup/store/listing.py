"""Lists of runs, dead letters and skips, read from sorted sets and never by scanning keys.

Every call is bounded: it reads a limited number of runs, and returns where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import count, islice
from typing import Any, NamedTuple

from celery_catchup.model import Instant, RunState, Trigger
from celery_catchup.store.store import (
    AT_ONCE,
    StorePart,
    is_instant,
    portions,
    read_json,
    read_run,
    read_span,
    texts,
)

LOOKED_AT = 10_000
"""Runs that one call reads; the cursor of the page leads to the others."""
FEW = 4000
"""Most runs in a state that are all read and sorted; a page of all runs has enough of more."""
IDS_LOOKED_AT = 200_000
"""Ids that are compared with a prefix; this is cheap, and mostly the first pages match."""
_IDS_PAGE = 10_000
_SKIPS = 1000

_TRIGGERS = tuple(Trigger)  # compared, not hashed: a damaged record may hold a list

UNREADABLE = "unreadable"
"""A member of a record that takes the place of one which cannot be read."""
_UNREADABLE = {
    UNREADABLE: True,
    "entry": "?",
    "state": str(RunState.FAILED),
    "trigger": str(Trigger.MANUAL),
    "slot": 0,
    "attempt": 1,
    "error": "the record of this run cannot be read: another program has changed it",
}

Record = dict[str, Any]
Position = tuple[Instant, str]
"""The place of a run in a list: its slot and its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Conditions on runs; empty means any. ``after`` is the position of the last run of the previous page."""

    entries: tuple[str, ...] = ()
    triggers: frozenset[Trigger] = frozenset()
    states: frozenset[RunState] = frozenset()
    since: Instant | None = None
    until: Instant | None = None
    after: Position | None = None
    lane: str | None = None
    limit: int = 50

    @property
    def words(self) -> list[list[bytes]]:
        """Groups of words; the text of a matching record contains one of each group."""
        found = [[f'"{word}"'.encode() for word in group] for group in (self.triggers, self.states) if group]
        return found if self.lane is None else [*found, [self.lane.rpartition("\x1f")[2].encode()]]

    def takes(self, record: Record) -> bool:
        """Whether a run matches."""
        return (
            (not self.entries or record["entry"] in self.entries or UNREADABLE in record)
            and (not self.triggers or record["trigger"] in self.triggers)
            and (not self.states or record["state"] in self.states)
            and (self.lane is None or record.get("lane") == self.lane)
            and (self.since is None or record["slot"] >= self.since)
            and (self.until is None or record["slot"] <= self.until)
            and (self.after is None or (record["slot"], record["id"]) < self.after)
        )


@dataclass(frozen=True, slots=True)
class RunPage:
    """Runs, newest slot first; ``following`` is the cursor if there may be more."""

    records: list[Record] = field(default_factory=list)
    following: Position | None = None


class OverdueSlot(NamedTuple):
    """A slot that is overdue, and the deadline that it has missed."""

    entry: str
    schedule: int
    slot: Instant
    deadline: Instant

    @property
    def place(self) -> tuple[str, int, Instant]:
        """Which slot it is, whatever its deadline."""
        return self.entry, self.schedule, self.slot

    @property
    def member(self) -> str:
        """The slot as the store keeps it; the same text every time."""
        return json.dumps(self.place, separators=(",", ":"))


class Listing(StorePart):
    """Reads the ledger for lists and pages."""

    # -- runs ------------------------------------------------------------------------------

    def runs(self, wanted: RunFilter, *, lanes: Iterable[str] = ()) -> RunPage:
        """Return a page of runs. ``lanes`` are the names whose chains hold waiting runs: entries, and
        lanes of backfills."""
        few = self._few(wanted.states, lanes)
        if few is not None:
            records = self.records(few, having=wanted.words)
            found = sorted(records, key=lambda one: (one["slot"], one["id"]), reverse=True)
            return _page((one for one in found if wanted.takes(one)), wanted.limit)
        return self._paged(wanted)

    def _few(self, states: frozenset[RunState], lanes: Iterable[str]) -> list[str] | None:
        """Return the ids of all runs in these states if there is a small set of them, else None."""
        sets = {
            RunState.DEAD: [self._keys.dead],
            RunState.QUEUED: [self._keys.leases],
            RunState.RUNNING: [self._keys.leases],
            RunState.WAITING: [self._keys.delayed, self._keys.retries],
        }
        if not states or not states <= sets.keys():
            return None
        keys = {key for state in states for key in sets[state]}
        if RunState.WAITING in states:
            keys.update(map(self._keys.chain, lanes))
        found = self._ask(keys, lambda pipe, key: pipe.zrange(key, 0, FEW))
        ids = {run.decode() for some in found.values() for run in some}
        return list(ids) if len(ids) <= FEW else None

    def _paged(self, wanted: RunFilter) -> RunPage:
        looked_at = 0
        last: Position | None = None
        found: list[Record] = []
        positions = self._positions(wanted)
        while looked_at < LOOKED_AT and (part := list(islice(positions, AT_ONCE))):
            looked_at += len(part)
            slots = {run_id: slot for slot, run_id in part}
            for record in self.records(list(slots), having=wanted.words):
                record["slot"] = slots[record["id"]]  # the place in the list, also of an unreadable one
                if wanted.takes(record):
                    found.append(record)
                    if len(found) > wanted.limit:
                        return _page(iter(found), wanted.limit)
            last = part[-1]
        return RunPage(found, last if looked_at >= LOOKED_AT else None)

    def _positions(self, wanted: RunFilter) -> Iterator[Position]:
        """Yield the runs of the range, newest slot first."""
        keys = [self._keys.runs_of(entry) for entry in dict.fromkeys(wanted.entries)] or [self._keys.runs]
        return merge(*(self._descending(key, wanted) for key in keys), reverse=True)

    def _descending(self, key: str, wanted: RunFilter) -> Iterator[Position]:
        tops = [wanted.until, None if wanted.after is None else wanted.after[0]]
        top = min((one for one in tops if one is not None), default="+inf")
        bottom = "-inf" if wanted.since is None else wanted.since
        for start in count(0, AT_ONCE):
            part = self._client.zrevrangebyscore(key, top, bottom, start, AT_ONCE, withscores=True)
            for run_id, slot in part:
                position = (int(slot) if is_instant(slot) else 0, run_id.decode())
                if wanted.after is None or position < wanted.after:
                    yield position
            if len(part) < AT_ONCE:
                return

    def records(self, ids: Sequence[str], *, having: Sequence[Sequence[bytes]] = ()) -> list[Record]:
        """Return the records of these runs, with their ids; missing ones are left out, and an unreadable one
        is a failed run that says so.

        With ``having``, a record must contain a word of each group; this saves decoding most of the others.
        """
        found: list[Record] = []
        for part in portions(ids):
            stored = self._client.hmget(self._keys.ledger, part)
            kept = [text if _has(text, having) else None for text in stored]
            found += _decoded(part, kept)
        return found

    def ids_like(self, beginning: str, *, most: int) -> list[str]:
        """Return up to ``most`` ids of runs with this prefix, newest slots first."""
        if self._client.hexists(self._keys.ledger, beginning):
            return [beginning]
        found: list[str] = []
        mark = beginning.encode()
        for start in range(0, IDS_LOOKED_AT, _IDS_PAGE):
            ids = self._client.zrevrange(self._keys.runs, start, start + _IDS_PAGE - 1)
            found += [run_id.decode() for run_id in ids if run_id.startswith(mark)]
            if len(ids) < _IDS_PAGE or len(found) >= most:
                break
        return found[:most]

    # -- dead letters and skips ------------------------------------------------------------

    def dead(self, *, after: Position | None = None) -> Iterator[tuple[Record, Record, Instant]]:
        """Yield dead runs, latest death first: the run, its failure, and when it died. They are read
        page by page, as far as the caller iterates; those up to the place ``after`` are left out."""
        top = "+inf" if after is None else after[0]
        for start in range(0, LOOKED_AT, AT_ONCE):
            scored = self._client.zrevrangebyscore(
                self._keys.dead, top, "-inf", start=start, num=AT_ONCE, withscores=True
            )
            died = {run_id.decode(): int(at) for run_id, at in scored}
            yield from self._letters(
                {run_id: at for run_id, at in died.items() if after is None or (at, run_id) < after}
            )
            if len(scored) < AT_ONCE:
                return

    def dead_run(self, run_id: str) -> tuple[Record, Record, Instant] | None:
        """Return the same of one run; None if it is not a dead letter."""
        died = self._client.zscore(self._keys.dead, run_id)
        return None if died is None else next(self._letters({run_id: int(died)}), None)

    def _letters(self, died: Mapping[str, Instant]) -> Iterator[tuple[Record, Record, Instant]]:
        records = self.records(list(died))
        letters = self._client.hmget(self._keys.letters, [one["id"] for one in records] or [""])
        for record, text in zip(records, letters, strict=False):
            yield record, read_json(text) or {}, died[record["id"]]

    def skips(
        self, entries: Iterable[str], *, since: Instant | None = None, until: Instant | None = None
    ) -> dict[str, list[Record]]:
        """Return each entry's skipped spans that reach into the range, newest first."""
        bottom = "-inf" if since is None else since
        answers = self._ask(
            entries,
            lambda pipe, name: pipe.zrevrangebyscore(
                self._keys.skips(name), "+inf", bottom, start=0, num=_SKIPS
            ),
        )
        return {
            name: [
                span for span in map(read_span, spans) if span and (until is None or span["first"] <= until)
            ]
            for name, spans in answers.items()
        }

    def deadlines_of(self, slots: Iterable[OverdueSlot]) -> dict[OverdueSlot, Instant]:
        """Return the deadlines of those of these slots that are overdue, in one round trip."""
        scores = self._ask(slots, lambda pipe, one: pipe.zscore(self._keys.overdue, one.member))
        return {one: int(score) for one, score in scores.items() if score is not None}

    # -- counts ----------------------------------------------------------------------------

    def leader(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the leader's record, and the scheduler's: watermark, last tick, progress of the catch-up."""
        with self._client.pipeline(transaction=True) as pipe:
            pipe.hgetall(self._keys.leader)
            pipe.hgetall(self._keys.scheduler)
            leader, scheduler = pipe.execute()
        return texts(leader), texts(scheduler)

    def counts(self) -> dict[str, int]:
        """Count the runs in flight, to retry, to send later, to publish, dead, and in all; and the slots that
        are overdue."""
        names = ("leases", "retries", "delayed", "outbox", "dead", "runs", "overdue")
        return self._ask(names, lambda pipe, name: pipe.zcard(getattr(self._keys, name)))

    def oldest_unpublished(self) -> Instant | None:
        """Return since when the oldest run in the outbox waits to be published."""
        first = self._client.zrange(self._keys.outbox, 0, 0, withscores=True)
        return int(first[0][1]) if first else None

    def runs_at(self, places: Iterable[tuple[str, Instant]]) -> dict[tuple[str, Instant], list[str]]:
        """Return the ids of the runs of these entries and slots, in one round trip."""
        answers = self._ask(
            places, lambda pipe, one: pipe.zrangebyscore(self._keys.runs_of(one[0]), one[1], one[1])
        )
        return {place: [run.decode() for run in ids] for place, ids in answers.items()}

    def count_runs(self, entry: str) -> int:
        """Count the runs of an entry."""
        return int(self._client.zcard(self._keys.runs_of(entry)))

    def in_flight(self, most: int) -> tuple[list[Record], int]:
        """Return the records of up to ``most`` active runs, those whose lease ends first, and the number of
        all."""
        ids = [run.decode() for run in self._client.zrange(self._keys.leases, 0, most - 1)]
        return self.records(ids), int(self._client.zcard(self._keys.leases))

    def overdue(self, server_ms: int) -> int:
        """Count the runs whose lease expired before this moment of the server's clock."""
        return int(self._client.zcount(self._keys.leases, "-inf", server_ms))


def _page(found: Iterator[Record], limit: int) -> RunPage:
    records = list(islice(found, limit))
    more = next(found, None)
    last = (records[-1]["slot"], records[-1]["id"]) if records and more is not None else None
    return RunPage(records, last)


def _has(text: bytes | None, groups: Sequence[Sequence[bytes]]) -> bool:
    return text is not None and all(any(word in text for word in group) for group in groups)


def _decoded(ids: Sequence[str], stored: Sequence[bytes | None]) -> list[Record]:
    """Decode records, with their ids; leave out missing ones."""
    found = []
    for run_id, text in zip(ids, stored, strict=True):
        if text is not None:
            run = read_run(text)
            readable = run is not None and run.get("trigger") in _TRIGGERS
            found.append({"id": run_id, **(run if run is not None and readable else _UNREADABLE)})
    return found
