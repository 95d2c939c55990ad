"""What is known of the entries between ticks: one hash a fact, one round trip for all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis import Redis

from celery_catchup.errors import UnfitStoreError
from celery_catchup.model import Instant, RunState, Slot
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


@dataclass(frozen=True, slots=True)
class Busy:
    """How many runs of an entry are active, and how many wait."""

    active: int
    waiting: int


_COLUMNS = (
    "first_seen",
    "anchors",
    "fingerprints",
    "policies",
    "changed",
    "decided",
    "paused",
    "manual",
    "last_runs",
)


_WHOLE = ""
"""In the accepted set, which has no entry of this name: all of it is stored."""
_AT_ONCE = 500
"""Records that one script writes."""


class States:
    """Reads and notes the state of entries."""

    def __init__(self, client: Redis, scripts: Scripts, keys: Keys) -> None:
        self._client, self._scripts, self._keys = client, scripts, keys

    def load(self, *, any_schema: bool = False, names: Iterable[str] | None = None) -> Stored:
        """Everything, in one round trip; `StoreError` when a newer version has written it, unless
        it is only to be looked at. With ``names`` only what is known of these entries, and all pauses."""
        wanted = None if names is None else list(names)
        with self._client.pipeline(transaction=True) as pipe:
            pipe.hgetall(self._keys.meta)
            pipe.hgetall(self._keys.scheduler)
            for column in _COLUMNS:
                key = getattr(self._keys, column)
                if wanted is None or column == "paused":
                    pipe.hgetall(key)
                else:
                    pipe.hmget(key, wanted or [""])
            meta, scheduler, *columns = (_column(answer, wanted) for answer in pipe.execute())
        if not any_schema:
            _check_schema(meta)
        return Stored(
            watermark=scheduler.get("watermark"),
            fresh="schema" not in meta,
            declares=meta.get("declares"),
            **dict(zip(_COLUMNS, columns, strict=True)),
        )

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
            self._scripts.call(
                "accept", keys, {**fence, "records": json.dumps(changes[start : start + _AT_ONCE])}
            )
            for start in range(0, len(changes), _AT_ONCE)
        )

    def _records(self) -> dict[str, str]:
        answer: Any = self._client.hgetall(self._keys.accepted)
        return _texts(answer)

    def scheduler(self) -> Mapping[str, str]:
        """Watermark, last tick and progress of the catch-up, as written."""
        answer: Any = self._client.hgetall(self._keys.scheduler)
        return _texts(answer)

    def adopt(
        self,
        leadership: Leadership,
        entries: Iterable[Mapping[str, object]],
        *,
        watermark: Instant | None = None,
        declares: str = "",
    ) -> bool:
        """Note new and changed entries, and a watermark in place of one that cannot be right;
        False when somebody else leads."""
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
                )
            },
            {
                **leadership.fence(),
                "schema": SCHEMA,
                "watermark": "" if watermark is None else watermark,
                "declares": declares,
                "entries": json.dumps(list(entries)),
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

    def existing(self, entry: str, after: Instant, until: Instant) -> dict[Slot, RunState]:
        """The entry's runs in the ledger with slots in ``(after, until]``."""
        return self.existing_of({entry: (after, until)})[entry]

    def existing_of(self, ranges: Mapping[str, tuple[Instant, Instant]]) -> dict[str, dict[Slot, RunState]]:
        """Each entry's runs in the ledger with slots in its range ``(after, until]``; two round trips."""
        with self._client.pipeline(transaction=False) as pipe:
            for entry, (after, until) in ranges.items():
                pipe.zrangebyscore(self._keys.runs_of(entry), f"({after}", until, withscores=True)
            found = dict(zip(ranges, pipe.execute(), strict=True))
        ids = [run_id for some in found.values() for run_id, _ in some]
        texts: Any = self._client.hmget(self._keys.ledger, ids) if ids else []
        stored = {run_id: text for run_id, text in zip(ids, texts, strict=True) if text is not None}
        return {
            entry: dict(_known(stored[run_id], int(at)) for run_id, at in some if run_id in stored)
            for entry, some in found.items()
        }


def _known(text: bytes, at: Instant) -> tuple[Slot, RunState]:
    run = read_run(text)
    if run is None:  # unreadable, but it was there: its slot is not run again
        return Slot(at, 0), RunState.DEAD
    return Slot(run["slot"], run["schedule"]), RunState(run["state"])


def _check_schema(meta: Mapping[str, str]) -> None:
    written = meta.get("schema", str(SCHEMA))
    if not written.isdecimal():
        raise UnfitStoreError(
            f"the stored state has schema {written[:40]!r}, which is no number; somebody else has "
            "written it: set catchup_namespace to a name of its own"
        )
    if int(written) > SCHEMA:
        raise UnfitStoreError(
            f"the stored state has schema {written}, this version of celery_catchup knows {SCHEMA}; "
            "upgrade it"
        )


def _column(answer: Any, names: Sequence[str] | None) -> dict[str, str]:
    """A hash, or of these names what it has."""
    if isinstance(answer, dict):
        return _texts(answer)
    pairs = zip(names or [""], answer, strict=True)
    return {name: value.decode(errors="replace") for name, value in pairs if value is not None}


def _texts(answer: Mapping[bytes, bytes]) -> dict[str, str]:
    return {key.decode(): value.decode(errors="replace") for key, value in answer.items()}
