"""What is known of the entries between ticks: one hash a fact, one round trip for all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis import Redis

from celery_catchup.errors import UnfitStoreError
from celery_catchup.model import Instant, RunState
from celery_catchup.planning.entry import RecordedRun
from celery_catchup.store.batches import AT_ONCE, portions
from celery_catchup.store.keys import Keys
from celery_catchup.store.leadership import Leadership
from celery_catchup.store.records import read_run
from celery_catchup.store.scripts import Scripts

SCHEMA = 1
"""Version of what is stored; a newer one is refused, an older one would be migrated here."""


@dataclass(frozen=True)
class Stored:
    """Everything the store knows of the entries, as it was read."""

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


@dataclass(frozen=True, slots=True)
class Busy:
    """How many runs of an entry are active, and how many wait."""

    active: int
    waiting: int


_RUNS_AT_ONCE = 2000
"""Runs that one command reads."""
COLUMNS = (
    "first_seen",
    "anchors",
    "fingerprints",
    "policies",
    "changed",
    "decided",
    "paused",
    "manual",
    "last_runs",
    "stopped",
    "left_off",
)
"""What is known of entries: a hash each."""


_WHOLE = ""
"""In the accepted set, which has no entry of this name: all of it is stored."""


class States:
    """Reads and notes the state of entries."""

    def __init__(self, client: Redis, scripts: Scripts, keys: Keys) -> None:
        self._client, self._scripts, self._keys = client, scripts, keys

    def load(self, *, any_schema: bool = False, names: Iterable[str] | None = None) -> Stored:
        """Everything, in one round trip for a few hundred entries; `StoreError` when a newer version has
        written it, unless it is only to be looked at. With ``names`` only what is known of these entries,
        and all pauses and stops.

        Each command reads a bounded number of entries, so that no other client waits for it. What
        changes meanwhile from outside grows the version counter, and is read again.
        """
        wanted = None if names is None else list(names)
        whole = [name for name in COLUMNS if wanted is None or name in ("paused", "stopped")]
        with self._client.pipeline(transaction=False) as pipe:
            pipe.hgetall(self._keys.meta)
            pipe.hgetall(self._keys.scheduler)
            for column in whole:
                pipe.hscan(getattr(self._keys, column), 0, count=AT_ONCE)
            meta, scheduler, *begun = pipe.execute()
        meta, scheduler = _texts(meta), _texts(scheduler)
        columns = {name: self._rest(name, *first) for name, first in zip(whole, begun, strict=True)}
        columns |= self._named([name for name in COLUMNS if name not in whole], wanted or [])
        if not any_schema:
            _check_schema(meta)
        return Stored(
            watermark=scheduler.get("watermark"),
            fresh="schema" not in meta,
            declares=meta.get("declares"),
            **columns,
        )

    def stopping(self) -> set[str]:
        """The runs whose failure has stopped their entry's chain."""
        answer: Any = self._client.hvals(self._keys.stopped)
        return {run for runs in answer for run in runs.decode().split()}

    def _rest(self, column: str, cursor: int, found: Mapping[bytes, bytes]) -> dict[str, str]:
        """A column whose first part was read already."""
        texts = _texts(found)
        while cursor:
            answer: Any = self._client.hscan(getattr(self._keys, column), cursor, count=AT_ONCE)
            cursor, found = answer
            texts |= _texts(found)
        return texts

    def _named(self, columns: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, str]]:
        """What these columns know of the entries, in one round trip."""
        if not columns:
            return {}
        parts = list(portions(names))
        with self._client.pipeline(transaction=False) as pipe:
            for column in columns:
                for part in parts:
                    pipe.hmget(getattr(self._keys, column), part)
            answers = iter(pipe.execute() if parts else ())
        found: dict[str, dict[str, str]] = {}
        for column in columns:
            values = [value for _ in parts for value in next(answers)]
            found[column] = {
                name: value.decode(errors="replace")
                for name, value in zip(names, values, strict=True)
                if value is not None
            }
        return found

    def accepted(self) -> dict[str, str]:
        """The record of each entry of the set that was last accepted; none before one was, as a whole."""
        found = self._records()
        return found if found.pop(_WHOLE, None) else {}

    def accept(self, records: Mapping[str, str], *, leadership: Leadership | None = None) -> bool:
        """Let these be the accepted set, a bounded number of them in each step; False when another beat
        leads. Without ``leadership`` an operator does it, whoever leads."""
        wanted, known = {**records, _WHOLE: "1"}, self._records()
        # The mark of a whole set comes last.
        names = [*sorted({*known, *wanted} - {_WHOLE}), _WHOLE]
        changes = [(name, wanted.get(name)) for name in names if known.get(name) != wanted.get(name)]
        fence = {"owner": "", "epoch": ""} if leadership is None else leadership.fence()
        keys = {"leader": self._keys.leader, "accepted": self._keys.accepted}
        return all(
            self._scripts.call("accept", keys, {**fence, "records": json.dumps(part)})
            for part in portions(changes)
        )

    def _records(self) -> dict[str, str]:
        answer: Any = self._client.hscan(self._keys.accepted, 0, count=AT_ONCE)
        return self._rest("accepted", *answer)

    def last_runs(self) -> dict[str, str]:
        """What is known of entries without a policy, also of those that are not declared any more."""
        answer: Any = self._client.hscan(self._keys.last_runs, 0, count=AT_ONCE)
        return self._rest("last_runs", *answer)

    def scheduler(self) -> Mapping[str, str]:
        """Watermark, last tick and progress of the catch-up, as written."""
        answer: Any = self._client.hgetall(self._keys.scheduler)
        return _texts(answer)

    def declares(self) -> str | None:
        """The digest of the leader's entries; None before the first one."""
        answer: Any = self._client.hget(self._keys.meta, "declares")
        return None if answer is None else answer.decode(errors="replace")

    def adopt(
        self,
        leadership: Leadership,
        entries: Iterable[Mapping[str, object]],
        *,
        watermark: Instant | None = None,
        declares: str = "",
        left_off: Mapping[str, Instant | None] | None = None,
    ) -> bool:
        """Note new and changed entries, a bounded number in each step, and a watermark in place of one
        that cannot be right; False when somebody else leads. ``left_off``: up to where entries that are not
        declared any more are decided; None for those that were, and have been seen to since."""
        parts = list(portions(entries)) or [[]]
        # The schema comes last: until then the store counts as new, and what another leader knows of
        # entries that are not noted yet is still asked for.
        return all(
            self._adopt(
                leadership,
                part,
                watermark="" if watermark is None or number else watermark,
                schema=SCHEMA if number == len(parts) - 1 else "",
                declares=declares,
                left_off={} if number else left_off or {},
            )
            for number, part in enumerate(parts)
        )

    def _adopt(
        self,
        leadership: Leadership,
        entries: Sequence[Mapping[str, object]],
        *,
        watermark: Instant | str,
        schema: int | str,
        declares: str,
        left_off: Mapping[str, Instant | None],
    ) -> bool:
        noted = self._scripts.call(
            "adopt",
            {
                name: getattr(self._keys, name)
                for name in (
                    "leader",
                    "first_seen",
                    "anchors",
                    "fingerprints",
                    "policies",
                    "changed",
                    "meta",
                    "scheduler",
                    "decided",
                    "stopped",
                    "left_off",
                )
            },
            {
                **leadership.fence(),
                "schema": schema,
                "watermark": watermark,
                "declares": declares,
                "entries": json.dumps(entries),
                "left_off": json.dumps(
                    {name: None if at is None else str(at) for name, at in left_off.items()}
                ),
            },
        )
        return bool(noted)

    def busy(self, entries: Iterable[str]) -> dict[str, Busy]:
        """Active and waiting runs of each entry, in one round trip."""
        names = list(entries)
        with self._client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.zcard(self._keys.active(name))
                pipe.zcard(self._keys.chain(name))
            counts = pipe.execute()
        return {name: Busy(*counts[2 * i : 2 * i + 2]) for i, name in enumerate(names)}

    def recorded(self, entry: str, after: Instant, until: Instant) -> list[RecordedRun]:
        """The entry's runs in the ledger with slots in ``(after, until]``."""
        return self.recorded_of({entry: (after, until)})[entry]

    def recorded_of(self, ranges: Mapping[str, tuple[Instant, Instant]]) -> dict[str, list[RecordedRun]]:
        """Each entry's runs in the ledger with slots in its range ``(after, until]``; two round trips, and
        more for an entry with thousands of them."""
        found: dict[str, list[tuple[bytes, float]]] = {entry: [] for entry in ranges}
        asked = list(ranges)
        while asked:
            with self._client.pipeline(transaction=False) as pipe:
                for entry in asked:
                    (after, until), known = ranges[entry], len(found[entry])
                    key = self._keys.runs_of(entry)
                    pipe.zrangebyscore(
                        key, f"({after}", until, start=known, num=_RUNS_AT_ONCE, withscores=True
                    )
                answers = pipe.execute()
            for entry, some in zip(asked, answers, strict=True):
                found[entry] += some
            asked = [e for e, some in zip(asked, answers, strict=True) if len(some) == _RUNS_AT_ONCE]
        ids = [run_id for some in found.values() for run_id, _ in some]
        texts: list[Any] = []
        with self._client.pipeline(transaction=False) as pipe:
            for part in portions(ids, _RUNS_AT_ONCE):
                pipe.hmget(self._keys.ledger, part)
            if ids:
                texts = [text for answer in pipe.execute() for text in answer]
        stored = {run_id: text for run_id, text in zip(ids, texts, strict=True) if text is not None}
        return {
            entry: [
                (run_id.decode(), int(at), _state(stored[run_id])) for run_id, at in some if run_id in stored
            ]
            for entry, some in found.items()
        }

    def report(
        self, leadership: Leadership, *, failing: Mapping[str, str], undecided: Instant | None
    ) -> None:
        """Say which entries and backfills fail at present, and since when the oldest due slot waits."""
        keys = {name: getattr(self._keys, name) for name in ("leader", "scheduler", "failing")}
        args = {"undecided": "" if undecided is None else undecided, "failing": json.dumps(dict(failing))}
        self._scripts.call("report", keys, {**leadership.fence(), **args})

    def failing(self) -> dict[str, str]:
        """Entries and backfills that fail at present, each as it was reported."""
        answer: Any = self._client.hgetall(self._keys.failing)
        return _texts(answer)


def _state(text: bytes) -> RunState:
    run = read_run(text)
    # unreadable, but it was there: its slot is not run again
    return RunState.DEAD if run is None else RunState(run["state"])


def _check_schema(meta: Mapping[str, str]) -> None:
    written = meta.get("schema", str(SCHEMA))
    if not written.isdecimal():
        raise UnfitStoreError(
            f"the stored state has schema {written[:40]!r}, which is no number; somebody else has "
            "written it: set catchup_namespace to a name of its own"
        )
    if int(written) > SCHEMA:
        raise newer_schema(written)


def newer_schema(written: str) -> UnfitStoreError:
    """What to say when a newer version has written the stored state."""
    return UnfitStoreError(
        f"the stored state has schema {written}, this version of celery_catchup knows {SCHEMA}; upgrade it"
    )


def _texts(answer: Mapping[bytes, bytes]) -> dict[str, str]:
    return {key.decode(): value.decode(errors="replace") for key, value in answer.items()}
