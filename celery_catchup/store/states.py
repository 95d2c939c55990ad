"""The stored state of entries between ticks: one hash for each fact, one round trip for all of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import NamedTuple, TypeAlias

from redis.client import Pipeline

from celery_catchup.errors import UnfitStoreError
from celery_catchup.model import Instant, RunState, SkipReason
from celery_catchup.planning.entry import RecordedRun
from celery_catchup.store.audit import Change, recorded
from celery_catchup.store.leadership import Leadership
from celery_catchup.store.store import AT_ONCE, StorePart, portions, read_json, read_run, read_span, texts

SCHEMA = 1
"""Version of the stored state; a newer one is refused, an older one would be migrated here."""


@dataclass(frozen=True)
class StoredState:
    """The stored state of the scheduler and, by their names, of its entries."""

    watermark: str | None
    fresh: bool
    declares: str | None = None
    first_seen: Mapping[str, str] = field(default_factory=dict)
    anchors: Mapping[str, str] = field(default_factory=dict)
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    policies: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[str, str] = field(default_factory=dict)
    decided: Mapping[str, str] = field(default_factory=dict)
    paused: Mapping[str, str] = field(default_factory=dict)
    manual: Mapping[str, str] = field(default_factory=dict)
    last_runs: Mapping[str, str] = field(default_factory=dict)
    stopped: Mapping[str, str] = field(default_factory=dict)
    left_off: Mapping[str, str] = field(default_factory=dict)


def held_entries(stored: StoredState) -> dict[str, int]:
    """Return the entries whose catch-up waits for an approval, each with its number of runs."""
    pauses = {name: read_json(text) or {} for name, text in stored.paused.items()}
    return {name: one["held"] for name, one in pauses.items() if one.get("paused") and one.get("held")}


@dataclass(frozen=True, slots=True)
class OpenRuns:
    """The numbers of an entry's active and waiting runs."""

    active: int
    waiting: int


COLUMNS = tuple(one.name for one in fields(StoredState) if one.name not in ("watermark", "fresh", "declares"))
"""The hashes by entry."""
Stretch: TypeAlias = tuple[int, Instant, Instant]
"""A schedule, and the first and last of some of its slots."""


class _Members(NamedTuple):
    """Members of a sorted set with scores in ``(after, until]``; without an end, the first few."""

    key: str
    after: Instant
    until: Instant | None


_FOLLOWING = 50
"""Records of skipped slots after a range that are looked at, because they may begin in it."""
_RUNS_AT_ONCE = 2000
"""Runs that one command reads."""
_WHOLE = ""
"""A field of the accepted set, beside the entries: all of the set is stored."""


class States(StorePart):
    """Reads and writes the state of entries."""

    def version(self) -> bytes | None:
        """Return the counter of changes from outside."""
        found: bytes | None = self._client.get(self._keys.version)
        return found

    def load(
        self, *, any_schema: bool = False, names: Iterable[str] | None = None, by_script: bool = False
    ) -> StoredState:
        """Read everything, in one round trip for a few hundred entries. With ``names`` read only the
        state of these entries, and all pauses and stops. Raises `UnfitStoreError` if a newer version has
        written the state, unless ``any_schema`` is set. ``by_script`` is faster, and needs the rights of
        the leader.

        Each command reads a bounded number of entries, so that no other client waits for it. A change
        from outside meanwhile increments the version counter, and is read again.
        """
        wanted = None if names is None else list(names)
        whole = [name for name in COLUMNS if wanted is None or name in ("paused", "stopped")]
        with self._client.pipeline(transaction=False) as pipe:
            pipe.hgetall(self._keys.meta)
            pipe.hgetall(self._keys.scheduler)
            for column in whole:
                pipe.hscan(self._keys.named(column), 0, count=AT_ONCE)
            meta, scheduler, *begun = pipe.execute()
        meta = texts(meta)
        columns = {
            name: self._rest(name, *first, by_script=by_script)
            for name, first in zip(whole, begun, strict=True)
        }
        if wanted is not None:
            columns |= self._named([name for name in COLUMNS if name not in whole], wanted)
        if not any_schema:
            _check_schema(meta)
        watermark = texts(scheduler).get("watermark")
        return StoredState(watermark, "schema" not in meta, meta.get("declares"), **columns)

    def _column(self, column: str, *, by_script: bool = False) -> dict[str, str]:
        first = self._client.hscan(self._keys.named(column), 0, count=AT_ONCE)
        return self._rest(column, *first, by_script=by_script)

    def _rest(
        self, column: str, cursor: int, found: Mapping[bytes, bytes], *, by_script: bool
    ) -> dict[str, str]:
        """Complete a column whose first part was read already."""
        column_texts, key = texts(found), self._keys.named(column)
        while cursor and by_script:
            args = {"cursor": cursor, "count": AT_ONCE}
            following, text = self._store.call("scan_column", args, more_keys=[key])
            cursor, pairs = int(following), list(json.loads(text.decode(errors="replace")))
            column_texts |= zip(pairs[::2], pairs[1::2], strict=True)
        while cursor:
            cursor, found = self._client.hscan(key, cursor, count=AT_ONCE)
            column_texts |= texts(found)
        return column_texts

    def _named(self, columns: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, str]]:
        """Read these columns of the entries, in one round trip."""
        asked = [(column, tuple(part)) for column in columns for part in portions(names)]
        answers = self._ask(asked, lambda pipe, one: pipe.hmget(self._keys.named(one[0]), one[1]))
        found: dict[str, dict[str, str]] = {column: {} for column in columns}
        for (column, part), values in answers.items():
            known = zip(part, values, strict=True)
            found[column] |= {
                name: value.decode(errors="replace") for name, value in known if value is not None
            }
        return found

    def stopping(self) -> set[str]:
        """Return the runs whose failure has stopped the chain of their entry."""
        return {run for runs in self._client.hvals(self._keys.stopped) for run in runs.decode().split()}

    def accepted(self, *, by_script: bool = False) -> dict[str, str]:
        """Return the record of each entry of the accepted set; empty before a whole set was accepted."""
        found = self._column("accepted", by_script=by_script)
        return found if found.pop(_WHOLE, None) else {}

    def accept(self, records: Mapping[str, str], *, by: Leadership | Change) -> bool:
        """Store the accepted set, a bounded number of records in each step; False if another beat leads. The
        leader does it, or an operator, whichever beat leads."""
        wanted, known = {**records, _WHOLE: "1"}, self._column("accepted")
        # The mark of a whole set comes last.
        names = [*sorted({*known, *wanted} - {_WHOLE}), _WHOLE]
        changes = [(name, wanted.get(name)) for name in names if known.get(name) != wanted.get(name)]
        change = by if isinstance(by, Change) else None
        fence = by.fence() if isinstance(by, Leadership) else {"owner": "", "epoch": ""}
        done = 0
        for part in portions(changes):
            done += len(part)
            record = recorded(change and change.so_far(done, len(changes)))
            args = {**fence, "records": json.dumps(part), "change": record}
            if not self._store.call("accept_entries", args):
                return False
        return True

    def last_runs(self) -> dict[str, str]:
        """Return the state of entries without a policy, also of those that are not declared any more."""
        return self._column("last_runs")

    def scheduler(self) -> Mapping[str, str]:
        """Return watermark, last tick and progress of the catch-up, as stored."""
        return texts(self._client.hgetall(self._keys.scheduler))

    def declares(self) -> str | None:
        """Return the digest of the leader's entries; None before the first leader."""
        answer = self._client.hget(self._keys.meta, "declares")
        return None if answer is None else answer.decode(errors="replace")

    def store_entries(
        self,
        leadership: Leadership,
        entries: Iterable[Mapping[str, object]],
        *,
        watermark: Instant | None = None,
        declares: str = "",
        left_off: Mapping[str, Instant | None] | None = None,
    ) -> bool:
        """Store new and changed entries, a bounded number in each step, and a watermark in place of an
        impossible one; False if another beat leads. ``left_off`` has the watermarks of entries that are
        not declared any more; None for those that are back."""
        parts = list(portions(entries)) or [[]]
        removed = {name: None if at is None else str(at) for name, at in (left_off or {}).items()}
        # The schema comes last: until then the store counts as new, and the next leader still imports
        # entries that are not stored yet.
        schemas = [None] * (len(parts) - 1) + [SCHEMA]
        for part, schema in zip(parts, schemas, strict=True):
            args = {
                **leadership.fence(),
                "schema": schema,
                "watermark": watermark,
                "declares": declares,
                "entries": json.dumps(part),
                "left_off": json.dumps(removed),
            }
            if not self._store.call("store_entries", args):
                return False
            watermark, removed = None, {}  # they go with the first part
        return True

    def open_runs(self, entries: Iterable[str]) -> dict[str, OpenRuns]:
        """Count active and waiting runs of each entry, in one round trip."""
        keys = {name: (self._keys.active(name), self._keys.chain(name)) for name in entries}
        counts = self._ask(chain.from_iterable(keys.values()), lambda pipe, key: pipe.zcard(key))
        return {name: OpenRuns(counts[active], counts[waiting]) for name, (active, waiting) in keys.items()}

    def recorded(self, entry: str, after: Instant, until: Instant) -> list[RecordedRun]:
        """Return the entry's runs in the ledger with slots in ``(after, until]``."""
        return self.recorded_of({entry: (after, until)})[entry]

    def recorded_of(self, ranges: Mapping[str, tuple[Instant, Instant]]) -> dict[str, list[RecordedRun]]:
        """Return each entry's runs in the ledger with slots in its range ``(after, until]``, and those that
        stand for slots in it; this takes two round trips, and more for an entry with thousands of runs."""
        ids, covers = self._runs_and_covers(ranges)
        wanted = dict.fromkeys(run_id for entry in ranges for run_id in (*ids[entry], *covers[entry]))
        parts = map(tuple, portions(wanted, _RUNS_AT_ONCE))
        records = self._ask(parts, lambda pipe, part: pipe.hmget(self._keys.ledger, part))
        stored = {i: text for part, some in records.items() for i, text in zip(part, some, strict=True)}
        return {
            entry: [
                _recorded(run_id, text, at, covers[entry].get(run_id, ()))
                for run_id, at in (ids[entry] | dict.fromkeys(covers[entry].keys() - ids[entry])).items()
                if (text := stored[run_id]) is not None
            ]
            for entry in ranges
        }

    def _runs_and_covers(
        self, ranges: Mapping[str, tuple[Instant, Instant]]
    ) -> tuple[dict[str, dict[str, Instant]], dict[str, dict[str, list[Stretch]]]]:
        """Return the ids and slots of each entry's runs, and which slots a run stands for. A record of
        skipped slots is stored under the last of them, so that one which begins in the range may follow."""
        keys, asked = self._keys, list[_Members]()
        for entry, (after, until) in ranges.items():
            asked += [
                _Members(keys.runs_of(entry), after, until),
                _Members(keys.skips(entry), after, until),
                _Members(keys.skips(entry), until, None),
            ]
        found = self._members(asked)
        ids, covers = dict[str, dict[str, Instant]](), dict[str, dict[str, list[Stretch]]]()
        for number, entry in enumerate(ranges):
            runs, inside, later = (found[one] for one in asked[3 * number : 3 * number + 3])
            ids[entry] = {run_id.decode(): int(at) for run_id, at in runs}
            by_run = covers.setdefault(entry, {})
            for one in (read_span(text) for text, _ in (*inside, *later)):
                if one and one.get("reason") == SkipReason.COVERED and one["run_id"]:
                    by_run.setdefault(one["run_id"], []).append((one["schedule"], one["first"], one["last"]))
        return ids, covers

    def _members(self, asked: Sequence[_Members]) -> dict[_Members, list[tuple[bytes, float]]]:
        """Return the members of sorted sets, with their scores."""
        found: dict[_Members, list[tuple[bytes, float]]] = {one: [] for one in asked}

        def following(pipe: Pipeline, one: _Members) -> object:
            top, most = ("+inf", _FOLLOWING) if one.until is None else (one.until, _RUNS_AT_ONCE)
            return pipe.zrangebyscore(one.key, f"({one.after}", top, len(found[one]), most, withscores=True)

        while asked:
            answers = self._ask(asked, following)
            for one, some in answers.items():
                found[one] += some
            asked = [one for one, some in answers.items() if len(some) == _RUNS_AT_ONCE]
        return found

    def hold(self, leadership: Leadership, held: Mapping[str, tuple[Instant, int]], *, now: Instant) -> bool:
        """Hold entries, each with up to where it is decided and how many runs wait for an approval; False
        if another beat leads."""
        rows = [(name, decided, runs) for name, (decided, runs) in held.items()]
        return all(
            self._store.call(
                "hold_entries", {**leadership.fence(), "entries": json.dumps(part), "now_ms": now}
            )
            for part in portions(rows)
        )

    def report_failures(
        self, leadership: Leadership, *, failing: Mapping[str, str], undecided: Instant | None
    ) -> None:
        """Store which entries and backfills fail now, and the oldest due slot that is undecided."""
        args = {"undecided": undecided, "failing": json.dumps(dict(failing))}
        self._store.call("report_failures", {**leadership.fence(), **args})

    def failing(self) -> dict[str, str]:
        """Return the failing entries and backfills, each as it was reported."""
        return texts(self._client.hgetall(self._keys.failing))


def _recorded(run_id: str, text: bytes, at: Instant | None, covers: Sequence[Stretch]) -> RecordedRun:
    run = read_run(text)
    if run is None:
        # An unreadable record proves that the slot had a run: it is not run again.
        return RecordedRun(run_id, at or 0, RunState.DEAD)
    slot = run["slot"] if at is None else at
    return RecordedRun(run_id, slot, RunState(run["state"]), run.get("first"), tuple(covers))


def _check_schema(meta: Mapping[str, str]) -> None:
    written = meta.get("schema", str(SCHEMA))
    if not written.isdecimal():
        raise UnfitStoreError(
            f"expected a number as the schema of the stored state, got {written[:40]!r}; another program "
            "has written it: set catchup_namespace to a name of its own"
        )
    if int(written) > SCHEMA:
        raise newer_schema(written)


def newer_schema(written: str) -> UnfitStoreError:
    """Return the error for a stored state that a newer version has written."""
    return UnfitStoreError(
        f"the stored state has schema {written}, this version of celery_catchup knows {SCHEMA}; upgrade it"
    )
