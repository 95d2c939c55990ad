"""Records of entries that are created at run time: written all or none, and read again when they change."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from celery_catchup.model import Instant
from celery_catchup.store.audit import Change, recorded
from celery_catchup.store.states import SCHEMA, newer_schema
from celery_catchup.store.store import AT_ONCE, StorePart, portions

_PARTS_PER_SECOND = 4_000_000
"""Ids of calls for each second: a call takes one by chance, so that no two share one."""
_NO_REVISION = 10**15
_FORGET_AFTER = 600
"""Seconds after which the parts of a call that never ended are removed."""


class Effect(StrEnum):
    """The effect of a change on the slots of an entry."""

    NONE = "none"
    BEGIN = "begin"
    RESCHEDULE = "reschedule"


@dataclass(frozen=True, slots=True)
class RecordChange:
    """A change of one record; ``expected`` is its revision, 0 for a new one. Without a text it is deleted.
    An entry begins at ``since``, or now."""

    name: str
    expected: int
    text: str = ""
    effect: Effect = Effect.NONE
    since: Instant | None = None


@dataclass(frozen=True, slots=True)
class RecordConflict:
    """A record that is not as a change expects: ``why`` is exists, missing, changed or declared."""

    name: str
    why: str
    revision: int


class ConflictError(Exception):
    """Some records are not as the changes expect; nothing was written."""

    def __init__(self, conflicts: Sequence[RecordConflict]) -> None:
        super().__init__(f"{len(conflicts)} records are not as expected")
        self.conflicts = tuple(conflicts)


class EntryRecords(StorePart):
    """Reads and writes the records. A record is a text; its revision is the number of its last change."""

    def version(self) -> int:
        """Return the latest revision of all records; 0 before the first."""
        answer: Any = self._client.get(self._keys.entries_version)
        return int(answer or 0)

    def read(self, names: Iterable[str]) -> dict[str, tuple[int, str]]:
        """Return these records with their revisions; those that do not exist are left out.

        A record that changes meanwhile may have its new text with its old revision, never the other way
        round: a change that expects this revision is refused then.
        """
        found: dict[str, tuple[int, str]] = {}
        for part in portions(dict.fromkeys(names)):
            with self._client.pipeline(transaction=False) as pipe:
                for name in part:
                    pipe.zscore(self._keys.revisions, name)
                pipe.hmget(self._keys.entries, part)
                *revisions, texts = pipe.execute()
            for name, text, revision in zip(part, texts, revisions, strict=True):
                if text is not None:
                    found[name] = _revision(revision), text.decode(errors="replace")
        return found

    def read_all(self) -> dict[str, tuple[int, str]]:
        """Return every record with its revision, as `read` does."""
        revisions: dict[bytes, float] = {}
        begun, key = 0, self._keys.revisions
        while some := self._client.zrange(key, begun, begun + AT_ONCE - 1, withscores=True):
            for name, revision in some:
                revisions.setdefault(name, revision)  # one that is changed meanwhile moves to the end
            begun += len(some)
        texts = self._client.hscan_iter(self._keys.entries, count=AT_ONCE)
        return {
            name.decode(errors="replace"): (_revision(revisions.get(name)), text.decode(errors="replace"))
            for name, text in texts
        }

    def changed(self, after: int, until: int) -> list[str]:
        """Return the names of the records that were last changed in ``(after, until]``, deleted ones too."""
        # Deleted ones have negative revisions.
        ranges = ((f"({after}", until), (-until, f"(-{after}"))
        return [name for lowest, highest in ranges for name in self._between(lowest, highest)]

    def _between(self, lowest: str | int, highest: str | int) -> list[str]:
        """Read the names in a range of revisions, some at a time.

        A record that is changed meanwhile leaves the range, so that the following ones move up, and one of
        them would be passed over: then the range is read again.
        """
        key, names = self._keys.revisions, dict[bytes, None]()
        while True:
            with self._client.pipeline(transaction=False) as pipe:
                pipe.zcount(key, lowest, highest)
                pipe.zrangebyscore(key, lowest, highest, start=0, num=AT_ONCE)
                count, some = pipe.execute()
            found = list[bytes](some)
            while len(found) < count and some:
                some = self._client.zrangebyscore(key, lowest, highest, start=len(found), num=AT_ONCE)
                found += some
            names |= dict.fromkeys(found)
            if len(found) >= count or count <= AT_ONCE:
                return [name.decode(errors="replace") for name in names]

    def write(self, changes: Sequence[RecordChange], *, change: Change | None, now: Instant) -> int:
        """Write all changes in one step, and return their revision; `ConflictError` if any is in conflict.

        Many changes are staged in parts first. Parts of a call that never ended are removed by a later one.
        """
        parts = [_encode(part) for part in portions(changes)]
        args = {"schema": SCHEMA, "now_ms": now, "id": "", "parts": 0, "changes": ""}
        args["change"] = recorded(change)
        if len(parts) > 1:
            seconds = now // 1000
            oldest = (seconds - _FORGET_AFTER) * _PARTS_PER_SECOND
            call = seconds * _PARTS_PER_SECOND + secrets.randbelow(_PARTS_PER_SECOND)
            for number, part in enumerate(parts):
                given = {"schema": SCHEMA, "id": call, "part": number, "changes": part, "oldest": oldest}
                answer = self._store.call("stage_entries", given)
                if answer != 1:
                    raise newer_schema(answer.decode())
            args |= {"id": call, "parts": len(parts)}
        elif parts:
            args["changes"] = parts[0]
        done, *answer = self._store.call("write_entries", args)
        if done:
            return int(answer[0])
        found = [
            RecordConflict(name.decode(), why.decode(), int(revision))
            for name, why, revision in zip(answer[::3], answer[1::3], answer[2::3], strict=True)
        ]
        if found[0].why == "schema":
            raise newer_schema(str(found[0].revision))
        raise ConflictError(found)


def _encode(changes: Iterable[RecordChange]) -> str:
    """Encode changes for the script. Names are printable and records are JSON, so neither has a newline."""
    return "".join(
        f"{one.expected} {one.effect} {one.since or 0}\n{one.name}\n{one.text}\n" for one in changes
    )


def _revision(score: float | None) -> int:
    """Return a revision; one that no record has if the record was created or deleted meanwhile."""
    return int(score) if score is not None and score > 0 else _NO_REVISION
