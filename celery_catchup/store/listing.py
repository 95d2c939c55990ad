"""Listing: what people look at, read from the sorted sets and never by scanning keys.

Every call is bounded: it looks at so many runs at the most, and says where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from typing import Any

from redis import Redis

from celery_catchup.model import Instant, RunState, Trigger
from celery_catchup.store.keys import Keys

LOOKED_AT = 10_000
"""Runs that one call looks at; what is beyond is told by the page's cursor."""
FEW = 4000
"""Runs in a state that are all read to be sorted; of more, a page of all runs has enough."""
IDS_LOOKED_AT = 200_000
"""Ids that are compared with the beginning of one; they are cheap, and mostly the first pages match."""
_PAGE = 500
_IDS_PAGE = 10_000
_SKIPS = 1000

_STATES, _TRIGGERS = frozenset(map(str, RunState)), frozenset(map(str, Trigger))

Record = dict[str, Any]
Position = tuple[Instant, str]
"""Where a run is in a listing: its slot and its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which runs to list; empty means any. ``after`` is the position of the last run of a page before."""

    entries: tuple[str, ...] = ()
    triggers: frozenset[Trigger] = frozenset()
    states: frozenset[RunState] = frozenset()
    since: Instant | None = None
    until: Instant | None = None
    after: Position | None = None
    limit: int = 50

    @property
    def words(self) -> list[list[bytes]]:
        """What the text of a record has in it, when it is among them."""
        return [[f'"{word}"'.encode() for word in group] for group in (self.triggers, self.states) if group]

    def takes(self, record: Record) -> bool:
        """Whether a run is among them."""
        return (
            (not self.entries or record["entry"] in self.entries)
            and (not self.triggers or record["trigger"] in self.triggers)
            and (not self.states or record["state"] in self.states)
            and (self.since is None or record["slot"] >= self.since)
            and (self.until is None or record["slot"] <= self.until)
            and (self.after is None or (record["slot"], record["id"]) < self.after)
        )


@dataclass(frozen=True, slots=True)
class Page:
    """Runs, the newest slot first; ``following`` is where to go on when there may be more."""

    records: list[Record] = field(default_factory=list)
    following: Position | None = None


class Listing:
    """Reads the ledger for people."""

    def __init__(self, client: Redis, keys: Keys) -> None:
        self._client, self._keys = client, keys

    # -- runs ------------------------------------------------------------------------------

    def runs(self, wanted: Wanted, *, lanes: Iterable[str] = ()) -> Page:
        """A page of runs. ``lanes`` are the names whose chains hold runs that wait: entries, and lanes
        of backfills."""
        few = self._few(wanted.states, lanes)
        if few is not None:
            records = self.records(few, having=wanted.words)
            found = sorted(records, key=lambda one: (one["slot"], one["id"]), reverse=True)
            return _page((one for one in found if wanted.takes(one)), wanted.limit)
        return self._paged(wanted)

    def _few(self, states: frozenset[RunState], lanes: Iterable[str]) -> list[str] | None:
        """The ids of all runs in these states, where there is a set of just them and it is small."""
        keys: list[str] = []
        for state in states:
            if state is RunState.DEAD:
                keys.append(self._keys.dead)
            elif state in (RunState.QUEUED, RunState.RUNNING):
                keys.append(self._keys.leases)
            elif state is RunState.WAITING:
                keys += [self._keys.delayed, self._keys.retries, *map(self._keys.chain, lanes)]
            else:
                return None
        if not keys:
            return None
        with self._client.pipeline(transaction=False) as pipe:
            for key in dict.fromkeys(keys):
                pipe.zrange(key, 0, FEW)
            ids = {run.decode() for some in pipe.execute() for run in some}
        return list(ids) if len(ids) <= FEW else None

    def _paged(self, wanted: Wanted) -> Page:
        looked_at = 0
        last: Position | None = None
        found: list[Record] = []
        positions = self._positions(wanted)
        while looked_at < LOOKED_AT and (part := list(islice(positions, _PAGE))):
            looked_at += len(part)
            for record in self.records([run_id for _, run_id in part], having=wanted.words):
                if wanted.takes(record):
                    found.append(record)
                    if len(found) > wanted.limit:
                        return _page(iter(found), wanted.limit)
            last = part[-1]
        return Page(found, last if looked_at >= LOOKED_AT else None)

    def _positions(self, wanted: Wanted) -> Iterator[Position]:
        """The runs of the range, the newest slot first."""
        keys = [self._keys.runs_of(entry) for entry in dict.fromkeys(wanted.entries)] or [self._keys.runs]
        return merge(*(self._descending(key, wanted) for key in keys), reverse=True)

    def _descending(self, key: str, wanted: Wanted) -> Iterator[Position]:
        top: str | int = "+inf" if wanted.until is None else wanted.until
        if wanted.after is not None:
            top = wanted.after[0] if wanted.until is None else min(wanted.after[0], wanted.until)
        bottom = "-inf" if wanted.since is None else wanted.since
        start = 0
        while True:
            part: Any = self._client.zrevrangebyscore(
                key, top, bottom, start=start, num=_PAGE, withscores=True
            )
            for run_id, slot in part:
                position = (int(slot), run_id.decode())
                if wanted.after is None or position < wanted.after:
                    yield position
            if len(part) < _PAGE:
                return
            start += _PAGE

    def records(self, ids: Sequence[str], *, having: Sequence[Sequence[bytes]] = ()) -> list[Record]:
        """The records of these runs, with their ids; those that are gone or cannot be read are left out.

        ``having``: of each of these groups a word must be there; it saves reading most of the others.
        """
        found: list[Record] = []
        for begin in range(0, len(ids), _PAGE):
            some = ids[begin : begin + _PAGE]
            stored: Any = self._client.hmget(self._keys.ledger, list(some))
            for run_id, text in zip(some, stored, strict=True):
                if _has(text, having) and (record := _read(text)) is not None:
                    found.append({"id": run_id, **record})
        return found

    def between(self, entries: Iterable[str], first: Instant, last: Instant) -> dict[str, list[Record]]:
        """Of each entry the runs with slots from ``first`` to ``last``, the oldest first; of more than
        `LOOKED_AT` of them the newest."""
        names = list(entries)
        with self._client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.zrevrangebyscore(self._keys.runs_of(name), last, first, start=0, num=LOOKED_AT)
            ids = dict(zip(names, pipe.execute(), strict=True))
        asked = [name for name in names if ids[name]]
        with self._client.pipeline(transaction=False) as pipe:
            for name in asked:
                pipe.hmget(self._keys.ledger, ids[name])
            stored = dict(zip(asked, pipe.execute(), strict=True))
        return {
            name: [
                {"id": run_id.decode(), **record}
                for run_id, text in zip(reversed(ids[name]), reversed(stored.get(name, ())), strict=True)
                if (record := _read(text)) is not None
            ]
            for name in names
        }

    def ids_like(self, beginning: str, *, most: int) -> list[str]:
        """Ids of runs that begin so, the newest slots first; no more than ``most`` of them."""
        if self._client.hexists(self._keys.ledger, beginning):
            return [beginning]
        found: list[str] = []
        mark = beginning.encode()
        for start in range(0, IDS_LOOKED_AT, _IDS_PAGE):
            ids: Any = self._client.zrevrange(self._keys.runs, start, start + _IDS_PAGE - 1)
            found += [run_id.decode() for run_id in ids if run_id.startswith(mark)]
            if len(ids) < _IDS_PAGE or len(found) >= most:
                break
        return found[:most]

    # -- dead letters and skips ------------------------------------------------------------

    def dead(self) -> Iterator[tuple[Record, Record, Instant]]:
        """Dead runs, those that died last first: the run, what is known of its failure, and when it
        died. They are read page by page, as far as somebody goes on asking."""
        for start in range(0, LOOKED_AT, _PAGE):
            scored: Any = self._client.zrevrange(self._keys.dead, start, start + _PAGE - 1, withscores=True)
            yield from self._letters({run_id.decode(): int(at) for run_id, at in scored})
            if len(scored) < _PAGE:
                return

    def dead_run(self, run_id: str) -> tuple[Record, Record, Instant] | None:
        """The same of one run; None when it is no dead letter."""
        died: Any = self._client.zscore(self._keys.dead, run_id)
        return None if died is None else next(self._letters({run_id: int(died)}), None)

    def _letters(self, died: Mapping[str, Instant]) -> Iterator[tuple[Record, Record, Instant]]:
        records = self.records(list(died))
        letters: Any = self._client.hmget(self._keys.letters, [one["id"] for one in records] or [""])
        for record, text in zip(records, letters, strict=False):
            yield record, _letter(text), died[record["id"]]

    def skips(
        self, entries: Iterable[str], *, since: Instant | None = None, until: Instant | None = None
    ) -> dict[str, list[Record]]:
        """Of each entry the skipped spans that reach into the range, the newest first."""
        names = list(entries)
        bottom = "-inf" if since is None else since
        with self._client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.zrevrangebyscore(self._keys.skips(name), "+inf", bottom, start=0, num=_SKIPS)
            answers = pipe.execute()
        spans = {
            name: [json.loads(text) for text in texts] for name, texts in zip(names, answers, strict=True)
        }
        return {
            name: [span for span in found if until is None or span["first"] <= until]
            for name, found in spans.items()
        }

    # -- counts ----------------------------------------------------------------------------

    def leader(self) -> tuple[dict[str, str], dict[str, str]]:
        """The leader's record, and the scheduler's: watermark, last tick, progress of the catch-up."""
        with self._client.pipeline(transaction=True) as pipe:
            pipe.hgetall(self._keys.leader)
            pipe.hgetall(self._keys.scheduler)
            leader, scheduler = pipe.execute()
        return _texts(leader), _texts(scheduler)

    def counts(self) -> dict[str, int]:
        """How many runs are in flight, wait for another attempt, are to be published, or are dead."""
        names = ("leases", "retries", "delayed", "outbox", "dead", "runs")
        with self._client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.zcard(getattr(self._keys, name))
            return dict(zip(names, pipe.execute(), strict=True))

    def overdue(self, server_ms: int) -> int:
        """How many runs have a lease that ran out before this moment of the server's clock."""
        count: Any = self._client.zcount(self._keys.leases, "-inf", server_ms)
        return int(count)


def _page(found: Iterator[Record], limit: int) -> Page:
    records = list(islice(found, limit))
    more = next(found, None)
    last = (records[-1]["slot"], records[-1]["id"]) if records and more is not None else None
    return Page(records, last)


def _has(text: bytes | None, groups: Sequence[Sequence[bytes]]) -> bool:
    return text is not None and all(any(word in text for word in group) for group in groups)


def _read(text: bytes | None) -> Record | None:
    try:
        record: Record | None = None if text is None else json.loads(text)
        if record is not None:
            if record["state"] not in _STATES or record["trigger"] not in _TRIGGERS:
                return None
            int(record["slot"])
            str(record["entry"])
    except (ValueError, KeyError, TypeError):
        return None
    return record


def _letter(text: bytes | None) -> Record:
    try:
        letter = json.loads(text or b"{}")
    except ValueError:
        return {}
    return letter if isinstance(letter, dict) else {}


def _texts(answer: dict[bytes, bytes]) -> dict[str, str]:
    return {key.decode(): value.decode(errors="replace") for key, value in answer.items()}
