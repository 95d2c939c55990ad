"""The audit trail: who changed what, when, from where. The script that makes a change writes its record.

Every method of the store that changes something for a person or a program takes a `Change`; the leader and
the workers, which change things by themselves, pass None.
"""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import count
from typing import Any

from celery_catchup.events.redaction import redacted_value
from celery_catchup.model import Instant
from celery_catchup.store.store import AT_ONCE, StorePart, is_instant, read_json

MOST_NAMED = 20
"""Entries, and other targets, that one record names; their numbers are kept."""
_LONGEST_NAME, _LONGEST_VALUE, _MOST_PARAMETERS = 250, 300, 20
Position = tuple[Instant, str]
"""The place of a record in the trail: its time and its id."""


class Origin(StrEnum):
    """The way by which a change came."""

    CLI = "cli"
    FLOWER = "flower"
    API = "api"
    PYTHON = "python"
    DJANGO = "django"


_PLACES = {Origin.FLOWER: "Flower", Origin.API: "Flower", Origin.DJANGO: "Django"}


class AuditAction(StrEnum):
    """A change that leaves a record; most are named as the command that makes it."""

    PAUSE = "pause"
    RESUME = "resume"
    APPROVE = "approve"
    DISCARD = "discard"
    RUN = "run"
    BACKFILL = "backfill"
    BACKFILL_PAUSE = "backfill pause"
    BACKFILL_RESUME = "backfill resume"
    BACKFILL_CANCEL = "backfill cancel"
    RUNS_RESEND = "runs resend"
    RUNS_CANCEL = "runs cancel"
    DLQ_REPLAY = "dlq replay"
    DLQ_DISCARD = "dlq discard"
    DLQ_BURY = "dlq bury"
    WATERMARK_SET = "watermark set"
    WATERMARK_RESET = "watermark reset"
    WATERMARK_RENAME = "watermark rename"
    ENTRIES_ADD = "entries add"
    ENTRIES_EDIT = "entries edit"
    ENTRIES_DELETE = "entries delete"
    ENTRIES_APPLY = "entries apply"
    DRIFT_ACCEPT = "drift accept"
    IMPORT = "import"
    FORGET = "forget"
    PURGE = "purge"
    REPAIR = "doctor --fix"


@dataclass(frozen=True, slots=True)
class Actor:
    """A person or program that changes something, and the way by which the change comes."""

    name: str
    origin: Origin

    def __str__(self) -> str:
        place = _PLACES.get(self.origin)
        if place is None:
            return self.name
        return f"{self.name} in {place}" if self.name else place

    @classmethod
    def of_process(cls, origin: Origin) -> Actor:
        """Return the user that this process runs as, as ``user@host``."""
        import getpass

        try:
            user = getpass.getuser()
        except (OSError, KeyError, ImportError):  # a container's user may have no name
            user = "unknown"
        return cls(f"{user}@{socket.gethostname()}", origin)

    @classmethod
    def in_python(cls, name: str) -> Actor:
        """Return the actor that a program names; by default the user that its process runs as."""
        return cls(name, Origin.PYTHON) if name else cls.of_process(Origin.PYTHON)


def _new_id() -> str:
    """Return an id of 20 characters that sorts after those this process has made before: two changes may
    have the same millisecond."""
    return f"{time.monotonic_ns() // 1000:014x}{secrets.token_hex(3)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change, as it is recorded: of which entries, of which other things (runs, a backfill), with which
    parameters. Several scripts that make one change pass it with the same id: they leave one record."""

    actor: Actor
    action: AuditAction
    entries: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    outcome: str = "done"
    id: str = field(default_factory=_new_id)

    def so_far(self, done: int, total: int) -> Change:
        """Return the change as it is when ``done`` of its ``total`` parts are done."""
        return replace(self, outcome="done" if done >= total else f"{done} of {total}")

    def begun(self) -> Change:
        """Return the change as it is before its last step."""
        return replace(self, outcome="begun")

    def encoded(self) -> str:
        """Encode it for the scripts: its id, then the record, without secrets and of bounded length."""
        empty: tuple[object, ...] = (None, "", (), False)
        given = [(name, value) for name, value in self.parameters.items() if value not in empty]
        record = {
            "actor": self.actor.name[:_LONGEST_NAME],
            "origin": str(self.actor.origin),
            "action": str(self.action),
            "entries": [name[:_LONGEST_NAME] for name in self.entries[:MOST_NAMED]],
            "entry_count": len(self.entries),
            "targets": [name[:_LONGEST_NAME] for name in self.targets[:MOST_NAMED]],
            "target_count": len(self.targets),
            "parameters": {name: _bounded(name, value) for name, value in given[:_MOST_PARAMETERS]},
            "outcome": self.outcome[:_LONGEST_VALUE],
        }
        return self.id + json.dumps(record)


def recorded(change: Change | None) -> str:
    """Encode a change for a script; "" for one by beat or a worker itself."""
    return "" if change is None else change.encoded()


def _bounded(name: str, value: Any) -> Any:
    """Return a value without secrets; as a text that is cut if it is long."""
    shown = redacted_value(json.loads(json.dumps(value, default=str)), name=name)
    text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
    return shown if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


class AuditTrail(StorePart):
    """Reads the records, and writes those of changes that are no script."""

    def record(self, change: Change) -> None:
        """Write the record of a change that several commands make: before the first, and after the last."""
        self._store.call("record_change", {"change": recorded(change)})

    def newest(
        self, *, after: Position | None = None, since: Instant | None = None
    ) -> Iterator[tuple[Position, dict[str, Any]]]:
        """Yield the records, the newest first, with their places; page by page, as far as the caller
        iterates. Those up to the place ``after`` are left out, and unreadable ones."""
        top, bottom = "+inf" if after is None else after[0], "-inf" if since is None else since
        for start in count(0, AT_ONCE):
            part = self._client.zrevrangebyscore(
                self._keys.audit_times, top, bottom, start, AT_ONCE, withscores=True
            )
            places = [(int(at) if is_instant(at) else 0, i.decode(errors="replace")) for i, at in part]
            texts = self._fields(self._keys.audit, (i for _, i in places))
            for place in places:
                record = read_json(texts[place[1]])
                if record is not None and (after is None or place < after):
                    yield place, record
            if len(part) < AT_ONCE:
                return
