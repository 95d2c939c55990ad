"""Changes by people and programs outside the beat; the leader notices them by the version counter."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from celery_catchup.model import Instant
from celery_catchup.store.audit import AuditTrail, Change, recorded
from celery_catchup.store.states import SCHEMA, StoredState
from celery_catchup.store.store import AT_ONCE, Store, StorePart, portions, read_json
from celery_catchup.store.templates import Template


class Resend(StrEnum):
    """The outcome of sending a run's message again."""

    SENT = "sent"
    UNSENT = "unsent"
    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"
    LOST = "lost"


class Replay(StrEnum):
    """The outcome of a replay."""

    REPLAYED = "replayed"
    IN_FLIGHT = "in_flight"
    UNKNOWN = "unknown"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class EntryToImport:
    """An entry of another scheduler: when it last ran there, how often, and whether it has a policy here."""

    name: str
    at: Instant
    count: int
    policy: bool


class Controls(StorePart):
    """Pauses, resumes, starts, replays and discards; moves watermarks. Each change leaves its record in the
    audit trail, in the same step."""

    def pause(self, entry: str, *, change: Change, now: Instant, reason: str = "") -> bool:
        """Decide no slot of the entry from now on; False if it is paused already."""
        args = {"entry": entry, "reason": reason, "by": str(change.actor), "now_ms": now}
        return bool(self._store.call("pause_entry", {**args, "change": recorded(change)}))

    def resume(self, entry: str, *, change: Change, discard: bool = False, now: Instant = 0) -> bool:
        """Decide slots again; slots missed since the pause are caught up as the policy says, or
        discarded. ``now`` 0 means the server's clock."""
        args = {"entry": entry, "discard": int(discard), "now_ms": now}
        return bool(self._store.call("resume_entry", {**args, "change": recorded(change)}))

    def start(
        self,
        run_id: str,
        run: Mapping[str, Any],
        template: Template,
        *,
        change: Change,
        now: Instant,
        keep_missed: bool = False,
    ) -> bool:
        """Start a manual run; False if the slot has its run already. Slots before it count as done by it,
        unless ``keep_missed``."""
        args = {
            "run_id": run_id,
            "run": json.dumps(run),
            "now_ms": now,
            "keep": int(keep_missed),
            "change": recorded(change),
        }
        parts = (text for name, part in template.parts.items() for text in (name, part.encoded))
        answer = self._store.call("start_manual_run", args, entry=run["entry"], more_args=parts)
        return bool(answer == b"started")

    def record_manual_run(self, run_id: str, run: Mapping[str, Any], *, change: Change, now: Instant) -> bool:
        """Record a manual run whose message the caller sends; False if there is such a run."""
        args = {"run_id": run_id, "run": json.dumps(run), "now_ms": now, "change": recorded(change)}
        return bool(self._store.call("record_manual_run", args, entry=run["entry"]))

    def replay(self, run_id: str, *, change: Change, entry: str) -> Replay:
        """Attempt an ended run again with the same inputs."""
        args = {"run_id": run_id, "by": str(change.actor), "now_ms": self.now_ms, "change": recorded(change)}
        return Replay(self._store.call("replay", args, entry=entry).decode())

    def resend(self, run_id: str, *, change: Change, entry: str) -> Resend:
        """Send the message of a queued run again, or start the next attempt of a failed one now."""
        args = {"run_id": run_id, "now_ms": self.now_ms, "change": recorded(change)}
        return Resend(self._store.call("resend", args, entry=entry).decode())

    def end_running(self, run_id: str, *, change: Change, why: str) -> list[str]:
        """Mark a running run for its end; return the ids of its tasks, none if it is not running."""
        args = {"run_id": run_id, "why": why, "change": recorded(change)}
        return [task.decode() for task in self._store.call("end_running", args) or ()]

    def drop_entry(self, entry: str, *, change: Change) -> bool:
        """Forget an entry and its runs; False if some of them have not ended."""
        if self._client.exists(self._keys.active(entry), self._keys.chain(entry)):
            return False
        begun = {"change": recorded(change.begun())}
        while ids := self._client.zrange(self._keys.runs_of(entry), 0, AT_ONCE - 1):
            self._store.call("drop_runs", begun, entry=entry, more_args=[run.decode() for run in ids])
        args = {"entry": entry, "change": recorded(change)}
        return bool(self._store.call("drop_entry", args, entry=entry))

    def count_keys(self) -> int:
        """Count the keys of the namespace without the audit trail."""
        return sum(1 for _ in self._every_key())

    def drop_everything(self, *, change: Change) -> int:
        """Delete every key of the namespace except the audit trail; return their number."""
        trail = AuditTrail(self._store)
        trail.record(change.begun())
        dropped: int = sum(self._client.unlink(*part) for part in portions(self._every_key()))
        trail.record(change)
        return dropped

    def drop_scratch(self) -> None:
        """Delete a namespace that no beat of an app uses, audit trail and all."""
        self._client.delete(self._keys.audit, self._keys.audit_times)
        for part in portions(self._every_key()):
            self._client.unlink(*part)

    def _every_key(self) -> Iterator[bytes]:
        kept = {self._keys.audit.encode(), self._keys.audit_times.encode()}
        found = self._client.scan_iter(match=f"{self._keys.prefix}:*", count=1000)
        yield from (key for key in found if key not in kept)

    def discard(self, run_id: str, *, change: Change, entry: str) -> bool:
        """Remove a dead letter, and release the chain that its failure has stopped.

        False if the run is not a dead letter and has stopped no chain.
        """
        return discard(self._store, run_id, change=change, entry=entry)

    def move_watermarks(
        self, entries: Sequence[str], at: Instant, *, change: Change, scheduler: bool = False
    ) -> None:
        """Let the entries go on after ``at``; with ``scheduler``, move the scheduler's watermark, too."""
        done = 0
        for part in list(portions(entries)) or [[]]:
            done += len(part)
            record = recorded(change.so_far(done, len(entries)))
            args = {"at_ms": at, "scheduler": int(scheduler), "change": record}
            self._store.call("move_watermarks", args, more_args=part)

    def rename_entry(self, old: str, new: str, *, change: Change) -> bool:
        """Let ``new`` go on where ``old`` stopped; False if nothing is known of ``old``."""
        args = {"old": old, "new": new, "change": recorded(change)}
        return bool(self._store.call("rename_entry", args))

    def import_entries(self, entries: Sequence[EntryToImport], *, change: Change) -> list[str]:
        """Let these entries go on after their last runs; return the names of those that were new."""
        oldest, done = min(entry.at for entry in entries), 0
        new: list[str] = []
        for part in portions(entries):
            done += len(part)
            args = {
                "schema": SCHEMA,
                "watermark": oldest,
                "entries": json.dumps([asdict(entry) for entry in part]),
                "change": recorded(change.so_far(done, len(entries))),
            }
            new += [name.decode() for name in self._store.call("import_entries", args)]
        return new

    def set_aside(self, key: str, *, change: Change) -> None:
        """Rename a key of a wrong type, so that another can take its place."""
        moved = [key, f"{key}:set-aside"]
        self._store.call("set_aside", {"change": recorded(change)}, more_keys=moved)


def discard(store: Store, run_id: str, *, change: Change | None, entry: str) -> bool:
    """Do the same as `Controls.discard`, also for the leader, which discards old ones."""
    args = {"run_id": run_id, "entry": entry, "change": recorded(change)}
    return bool(store.call("discard", args, entry=entry))


def with_moved_watermarks(
    stored: StoredState, entries: Sequence[str], at: Instant, *, scheduler: bool = False
) -> StoredState:
    """Return the state that `Controls.move_watermarks` would leave."""
    watermark = str(at) if scheduler else stored.watermark
    paused = dict(stored.paused)
    for name in entries:
        if name in paused:
            pause = {**json.loads(paused[name]), "decided": at, "discard": False}
            if not pause.get("paused"):
                pause |= {"at": at, "resumed": at}
                pause.pop("earlier", None)
            paused[name] = json.dumps(pause)
        elif at < _instant(watermark):
            paused[name] = json.dumps({"paused": False, "at": at, "resumed": at})
    decided = {**stored.decided, **dict.fromkeys(entries, str(at))}
    later = {name for name in entries if (read_json(stored.manual.get(name)) or {}).get("start", 0) > at}
    manual = {name: text for name, text in stored.manual.items() if name not in later}
    return replace(stored, watermark=watermark, decided=decided, paused=paused, manual=manual)


def with_resumed_entries(
    stored: StoredState, names: Sequence[str], now: Instant, *, discard: bool = False
) -> StoredState:
    """Return the state that `Controls.resume` would leave."""
    resumed = {"paused": False, "resumed": now, "discard": discard}
    after = {name: json.dumps((read_json(stored.paused.get(name)) or {}) | resumed) for name in names}
    return replace(stored, paused={**stored.paused, **after})


def with_imported_entries(stored: StoredState, entries: Sequence[EntryToImport]) -> StoredState:
    """Return the state that `Controls.import_entries` would leave."""
    if not entries:
        return stored
    watermark = stored.watermark or str(min(entry.at for entry in entries))
    new = {one.name: one.at for one in entries if one.policy and one.name not in stored.first_seen}
    at = {name: str(instant) for name, instant in new.items()}
    late = {
        name: json.dumps({"paused": False, "at": instant})
        for name, instant in new.items()
        if instant < _instant(watermark)
    }
    return replace(
        stored,
        watermark=watermark,
        first_seen={**at, **stored.first_seen},
        anchors={**at, **stored.anchors},
        decided={**stored.decided, **at},
        paused={**stored.paused, **late},
    )


def _instant(watermark: str | None) -> Instant:
    return int(watermark) if watermark and watermark.isdecimal() else 0
