"""Taking office: what a beat does once when it begins to lead.

It reads what the leaders before it left, notes entries it has never seen, and says what
cannot be right. From then on the tracked in memory is the truth, because only the leader
writes; a change from outside is seen by the store's version counter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celery_catchup.config.drift import Change, Difference, differences, listed
from celery_catchup.config.policy import OnScheduleChange, Policy
from celery_catchup.config.settings import OnDrift
from celery_catchup.engine.entry_changes import SANE, read_instant, removals
from celery_catchup.engine.tracked_entries import Declared, TrackedEntries, TrackedEntry
from celery_catchup.errors import DriftError, UnfitStoreError
from celery_catchup.events import EntryDrifted, Events, StateSuspect
from celery_catchup.events.command_lines import command_line
from celery_catchup.model import Instant, to_milliseconds, to_rfc3339
from celery_catchup.planning.entry import Entry, EntryState, Pause, first_sight
from celery_catchup.store import Leadership, States, Stored
from celery_catchup.store.records import read_json

# Milliseconds by which the clocks of two hosts may differ: what one has decided is a little in the
# future of the other then, and nothing is wrong.
SKEW = 60_000
_DAY = 86_400_000


@dataclass(frozen=True)
class Known:
    """The tracked, and the watermark that the leaders before left: now when there is none that
    can be right, and then it is to be stored anew. ``unread`` are entries whose schedules cannot be
    built at present."""

    tracked: TrackedEntries
    watermark: Instant
    renewed: bool
    unread: Mapping[str, Exception]


def read_store(states: States, *, otherwise: Callable[[], None]) -> Stored:
    """Everything that is stored; what this version cannot use is left to a beat that can: ``otherwise``
    lets it take over."""
    try:
        return states.load()
    except UnfitStoreError:
        otherwise()
        raise


def read_tracked_entries(
    declared: Sequence[Declared],
    stored: Stored,
    *,
    now: Instant,
    match_first: bool,
    events: Events,
    remembered: Mapping[str, Instant] | None = None,
) -> Known:
    """The tracked as the store has it, with suspicious values set right and said.

    ``remembered`` is up to where each entry is decided for certain, should the store know nothing.
    """
    found = _watermark(stored, now, events)
    watermark = min([now, *(remembered or {}).values()]) if found is None else found
    reader = _Reader(stored, now, watermark, events, match_first=match_first, remembered=remembered or {})
    lines, unread = dict[str, TrackedEntry](), dict[str, Exception]()
    for one in declared:
        try:
            lines[one.name] = reader.line(one)
        except Exception as error:  # noqa: BLE001 - a schedule of the user's own may raise anything
            unread[one.name] = error
    for line in lines.values():
        if not line.state.paused:
            line.wake_at = _wake(line, watermark, now)
    return Known(TrackedEntries(lines), watermark, renewed=found is None, unread=unread)


def check_drift(
    known: Known,
    stored: Stored,
    records: Mapping[str, str],
    *,
    accepted: Mapping[str, str],
    on_drift: OnDrift,
    events: Events,
) -> None:
    """Say how the declared entries differ from the accepted ones; `DriftError` when that is refused.

    ``records`` are the declared entries, ``accepted`` those of the set that was last accepted.
    """
    # Version 0.1 kept no records, only the fingerprints of schedules, also of entries long gone.
    found = differences(accepted, records) if accepted else list(_changed_schedules(known.tracked, stored))
    if found and on_drift is OnDrift.REFUSE:
        raise DriftError(
            f"the declared entries differ from the stored ones: {listed(found)}; declare them as they were, "
            f"or accept them with: {command_line('drift', 'accept')}"
        )
    loud = on_drift is OnDrift.WARN
    told: dict[str, list[Difference]] = {}
    for one in found:
        # An adopted change is news; that an entry came or went is what its author wanted.
        if loud or one.change is Change.CHANGED:
            told.setdefault(one.entry, []).append(one)
    for name, several in told.items():
        what = "; ".join(one.says for one in several)
        events.emit(EntryDrifted(name, what, loud=loud))


def _changed_schedules(tracked: TrackedEntries, stored: Stored) -> Iterator[Difference]:
    for name, known in stored.fingerprints.items():
        line = tracked.lines.get(name)
        if line is not None and not line.declared.has_fingerprint(known):
            yield Difference(name, Change.CHANGED, "schedule", known, line.declared.fingerprint)


def adopt(states: States, leadership: Leadership, known: Known, stored: Stored, *, declares: str) -> bool:
    """Note what is new in the store; False when another beat leads by now. ``declares`` tells
    standbys whether they have the same entries."""
    changes, removed = (
        list(_changes(known.tracked, stored)),
        dict(removals(known.tracked, stored, watermark=known.watermark, unread=known.unread)),
    )
    if not (changes or removed or known.renewed or stored.declares != declares):
        return True
    watermark = known.watermark if known.renewed else None
    return states.adopt(leadership, changes, watermark=watermark, declares=declares, left_off=removed)


def _changes(tracked: TrackedEntries, stored: Stored) -> Iterator[Mapping[str, object]]:
    for line in tracked:
        name, policy = line.declared.name, stored_policy(line)
        seen = name in stored.first_seen and name in stored.anchors
        same = stored.fingerprints.get(name) == line.declared.fingerprint
        decided = line.state.decided
        mended = decided is not None and stored.decided.get(name) != str(decided)
        if seen and same and stored.policies.get(name) == policy and not mended:
            continue
        changed = line.state.changed_at
        yield {
            "name": name,
            "first_seen": str(line.state.first_seen_at),
            "anchor": str(line.state.first_seen_at),
            "fingerprint": line.declared.fingerprint,
            "policy": policy,
            "changed": None if changed is None else str(changed),
            "decided": str(decided) if mended else None,
        }


def stored_policy(line: TrackedEntry) -> str:
    """What the scripts that release and end runs need of the policy."""
    policy = line.entry.policy
    return json.dumps(
        {
            "capacity": line.capacity,
            "on_failure": str(policy.on_failure),
            "pause_on_failure": policy.pause_on_failure,
            **stored_retries(policy),
        },
        sort_keys=True,
    )


def stored_retries(policy: Policy) -> dict[str, float]:
    """What the script that records a failure needs to decide on another attempt."""
    delay = 0 if policy.retry_delay is None else to_milliseconds(policy.retry_delay)
    longest = max(delay, _DAY) if policy.retry_max_delay is None else to_milliseconds(policy.retry_max_delay)
    return {
        "max_attempts": policy.max_attempts,
        "retry_delay_ms": delay,
        "retry_backoff": policy.retry_backoff,
        "retry_max_delay_ms": longest,
    }


def _watermark(stored: Stored, now: Instant, events: Events) -> Instant | None:
    """The stored watermark; None, and said so, when there is none that can be right."""
    if stored.watermark is None:
        if stored.first_seen or stored.last_runs:
            events.emit(StateSuspect("the scheduler's watermark is missing; nothing is replayed"))
        return None
    value = read_instant(stored.watermark)
    if value is None:
        events.emit(
            StateSuspect(
                f"the scheduler's watermark {stored.watermark[:40]!r} is no time; nothing is replayed"
            )
        )
    elif value > now:
        events.emit(
            StateSuspect(f"the scheduler's watermark {to_rfc3339(value)} is in the future; it counts as now")
        )
        return None
    return value


def _wake(line: TrackedEntry, watermark: Instant, now: Instant) -> Instant | None:
    """When to look at the entry first. One whose schedule fails is looked at now, as late as it can be:
    the tick that decides reports it, and tries it again."""
    try:
        return _first_wake(line, watermark, now)
    except Exception:  # noqa: BLE001 - a schedule of the user's own may raise anything
        return min(now, line.scope(watermark, now).decided)


def _first_wake(line: TrackedEntry, watermark: Instant, now: Instant) -> Instant | None:
    """The first slot of the range that is still to be decided, or the next one after now."""
    scope = line.scope(watermark, now)
    slots = [
        slot
        for schedule, reach in zip(line.entry.schedules, scope.reaches, strict=True)
        if (slot := schedule.timetable.next_after(min(reach.floor, now))) is not None
    ]
    if line.state.resumes:
        return now
    return min(slots, default=None)


class _Reader:
    """Reads the state of entries from what is stored."""

    def __init__(
        self,
        stored: Stored,
        now: Instant,
        watermark: Instant,
        events: Events,
        *,
        match_first: bool,
        remembered: Mapping[str, Instant],
    ) -> None:
        self.stored, self.now, self.events, self.remembered = stored, now, events, remembered
        self.watermark = watermark
        self.newcomer = first_sight(now, match=match_first)

    def line(self, declared: Declared) -> TrackedEntry:
        name, stored = declared.name, self.stored
        first_seen, ran = self._read("first_seen", stored.first_seen, name), self._ran(name)
        if first_seen is None:
            first_seen = self.remembered.get(name, self.newcomer if ran is None else ran)
        anchors = self._anchors(name, first_seen)
        entry = declared.build(anchors)
        pause = self._read_mapping("pause", stored.paused, name)
        decided = max((at for at in (self._decided(name), ran) if at is not None), default=None)
        manual = self._read_mapping("manual run", stored.manual, name)
        return TrackedEntry(
            declared,
            entry,
            EntryState(
                first_seen_at=first_seen,
                decided=decided,
                manual_start=manual.get("start"),
                manual_success=manual.get("success"),
                paused=bool(pause.get("paused")),
                paused_at=pause.get("decided", pause.get("at")),
                pauses=tuple(
                    Pause(one["at"], one.get("resumed"), bool(one.get("discard")))
                    for one in (*pause.get("earlier", ()), pause)
                    if "at" in one
                ),
                removed=self._removed(name, decided),
                changed_at=self._changed(declared, entry),
            ),
            newcomer=name not in stored.first_seen,
            anchors=anchors,
        )

    def _anchors(self, name: str, first_seen: Instant) -> dict[str, Instant]:
        """Where the entry's schedules count from; one instant is what version 0.1 stored for all of them."""
        text = self.stored.anchors.get(name, "")
        if not text.startswith("{"):
            anchor = self._read("anchor", self.stored.anchors, name)
            return {"": first_seen if anchor is None else anchor}
        found = self._read_mapping("anchor", self.stored.anchors, name)
        return {"": first_seen} | {key: at for key, at in found.items() if at in SANE}

    def _decided(self, name: str) -> Instant | None:
        """Up to where the entry is decided; what cannot be right counts as now, so nothing is replayed."""
        value = self._read("watermark", self.stored.decided, name)
        if value is None:
            return self.now if name in self.stored.decided else None
        if value > self.now + SKEW:
            moment = to_rfc3339(value)
            self.events.emit(
                StateSuspect(f"the watermark of entry {name!r} is {moment}, in the future; it counts as now")
            )
            return self.now
        return value

    def _ran(self, name: str) -> Instant | None:
        """When the entry last ran without a policy: nothing was missed up to then."""
        value = read_instant(self.stored.last_runs.get(name, "").partition(" ")[0])
        return None if value is None or value > self.now else value

    def _removed(self, name: str, decided: Instant | None) -> tuple[Instant, Instant] | None:
        """The time in which the entry was not declared, as long as nothing after it is decided."""
        value = self._read("removal", self.stored.left_off, name)
        if value is None or (decided is not None and decided > value) or value >= self.watermark:
            return None
        return value, self.watermark

    def _changed(self, declared: Declared, entry: Entry) -> Instant | None:
        """Since when the present schedule holds, when the time before is not to be replayed."""
        if entry.policy.on_schedule_change is OnScheduleChange.REPLAY:
            return None
        known = self.stored.fingerprints.get(declared.name)
        if known is not None and not declared.has_fingerprint(known):
            return self.now
        return self._read("change", self.stored.changed, declared.name)

    def _read_mapping(self, what: str, column: Mapping[str, str], name: str) -> dict[str, Any]:
        found = read_json(column.get(name, "{}"))
        if found is None:
            text = column[name][:40]
            self.events.emit(StateSuspect(f"the {what} of entry {name!r} is {text!r}, which nobody can read"))
        return found or {}

    def _read(self, what: str, column: Mapping[str, str], name: str) -> Instant | None:
        value = read_instant(column.get(name))
        if value is None and name in column:
            text = column[name][:40]
            self.events.emit(StateSuspect(f"the {what} of entry {name!r} is {text!r}, which is not a time"))
        return value
