"""Backfills: requested ranges of slots, and the progress of each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from celery_catchup.model import Instant, Skip
from celery_catchup.store.audit import Change, recorded
from celery_catchup.store.batches import NewRun
from celery_catchup.store.leadership import Leadership
from celery_catchup.store.store import StorePart, read_json, read_span, span_text
from celery_catchup.store.templates import Template

_LANE = "\x1fbackfill\x1f"


def is_lane(name: str) -> bool:
    """Whether a name is the lane of a backfill, not an entry."""
    return name.startswith(_LANE)


@dataclass(frozen=True, slots=True)
class Backfill:
    """One backfill. Slots up to ``cursor`` are decided. State: running, paused, cancelled or completed."""

    id: str
    entry: str
    start: Instant
    end: Instant
    reprocess: str
    newest_first: bool
    max_active: int
    created: Instant
    total: int
    span: int | None = None
    """The longest time that one run stands for, in milliseconds."""
    state: str = "running"
    cursor: Instant | None = None
    decided: bool = False
    dispatched: int = 0
    skipped: int = 0
    ended: int | None = None
    """By the server's clock."""
    by: str | None = None

    @property
    def lane(self) -> str:
        """The lane in which its runs wait; no entry can have such a name."""
        return self.lane_of(self.id)

    @staticmethod
    def lane_of(backfill_id: str) -> str:
        """Return the lane of a backfill by its id."""
        return f"{_LANE}{backfill_id}"

    def encoded(self) -> str:
        """Encode it for the store."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})


@dataclass(frozen=True)
class BackfillPart:
    """Decisions on a part of a backfill. ``covered`` slots are recorded: a run stands for them. What was
    recorded of them before, ``replaced`` as it is stored, is ``kept`` as far as it is about other slots."""

    cursor: Instant
    complete: bool
    skipped: int
    policy: str
    runs: Sequence[NewRun]
    templates: Mapping[str, Template]
    covered: Sequence[Skip] = ()
    replaced: Sequence[str] = ()
    kept: Sequence[Mapping[str, Any]] = ()

    def encoded(self, backfill: Backfill, *, epoch: int) -> str:
        """Encode it for the script."""
        skips = [*self.kept, *({**asdict(one), "epoch": epoch, "busy": 0} for one in self.covered)]
        return json.dumps(
            {
                "id": backfill.id,
                "cursor": self.cursor,
                "complete": self.complete,
                "skipped": self.skipped,
                "policy": self.policy,
                "templates": {name: template.encoded for name, template in self.templates.items()},
                "runs": [{"id": new.id, "run": new.run} for new in self.runs],
                "covered": sum(one.count for one in self.covered),
                "replaced": self.replaced,
                "skips": [(one["last"], span_text(one)) for one in skips],
            }
        )


def _read(stored: bytes | None) -> Backfill | None:
    """Decode a stored backfill without the fields of a newer version; None if it is missing or unreadable."""
    names = {field.name for field in fields(Backfill)}
    try:
        return Backfill(**{name: value for name, value in (read_json(stored) or {}).items() if name in names})
    except TypeError:
        return None


class Backfills(StorePart):
    """Creates, lists, pauses, resumes and cancels backfills; the leader works on them."""

    def create(self, backfill: Backfill, *, change: Change) -> Backfill:
        """Create a backfill; the leader begins with its next tick. Returns the one that has the id already,
        if there is one."""
        args = {"id": backfill.id, "backfill": backfill.encoded(), "change": recorded(change)}
        is_new = self._store.call("create_backfill", args)
        return backfill if is_new else self.get(backfill.id) or backfill

    def all(self) -> list[Backfill]:
        """Return every backfill, newest first."""
        stored = self._client.hgetall(self._keys.backfills)
        found = [one for text in stored.values() if (one := _read(text)) is not None]
        return sorted(found, key=lambda one: (one.created, one.id), reverse=True)

    def get(self, backfill_id: str) -> Backfill | None:
        """Return one backfill."""
        return _read(self._client.hget(self._keys.backfills, backfill_id))

    def set_state(self, backfill_id: str, state: str, *, change: Change | None) -> str | None:
        """Pause (``paused``), resume (``running``) or cancel (``cancelled``) a backfill.

        Returns its new state, or None if there is no such backfill.
        """
        lane = Backfill.lane_of(backfill_id)
        args = {"id": backfill_id, "state": state, "lane": lane, "change": recorded(change)}
        answer = self._store.call("set_backfill_state", args, lane=lane)
        return None if answer is None else answer.decode()

    def waiting(self, backfill: Backfill) -> int:
        """Count its waiting runs."""
        return int(self._client.zcard(self._keys.chain(backfill.lane)))

    def recorded_skips(self, entry: str, after: Instant, until: Instant) -> dict[str, Mapping[str, Any]]:
        """Return the entry's records of skipped slots that reach into ``(after, until]``, as they are stored
        and decoded."""
        found = self._client.zrangebyscore(self._keys.skips(entry), f"({after}", "+inf")
        spans = ((text.decode(), read_span(text)) for text in found)
        return {text: span for text, span in spans if span is not None and span["first"] <= until}

    def commit(self, leadership: Leadership, backfill: Backfill, part: BackfillPart, *, now: Instant) -> str:
        """Commit a part: ``ok``, ``stale`` if another beat has gone on in between, or ``stopped``."""
        answer = leadership.call(
            "commit_backfill",
            {
                "now_ms": now,
                "lane": backfill.lane,
                "expected": backfill.cursor,
                "part": part.encoded(backfill, epoch=leadership.epoch),
            },
            entry=backfill.entry,
            lane=backfill.lane,
        )
        return str(answer[0].decode())
