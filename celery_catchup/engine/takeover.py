"""Take over the lead: read the stored state, note new entries, and report what cannot be right.

From then on the tracked entries in memory are the truth, because only the leader writes. The store's
version counter reveals a change from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celery_catchup.config.drift import Difference, DriftKind, differences, listed
from celery_catchup.config.policy import OnScheduleChange
from celery_catchup.config.settings import OnDrift
from celery_catchup.engine.tracked_entries import Declared, TrackedEntries, TrackedEntry
from celery_catchup.errors import DriftError, UnfitStoreError
from celery_catchup.events import EntryDrifted, Events, StateSuspect
from celery_catchup.events.command_lines import command_line
from celery_catchup.model import Instant, to_rfc3339
from celery_catchup.planning.entry import Entry, EntryState, Pause, first_sight
from celery_catchup.store import Leadership, States, StoredState
from celery_catchup.store.store import read_json

SKEW = 60_000
"""Milliseconds by which the clocks of two hosts may differ: one may have decided the other's future."""
_SANE = range(946_684_800_000, 7_258_118_400_000)
"""Instants from 2000-01-01 to 2200-01-01; a stored value outside is damaged."""


@dataclass(frozen=True)
class LoadedEntries:
    """The entries as the leaders before left them.

    watermark   the stored one; now when it is missing or cannot be right
    is_new      whether the watermark must be stored
    unreadable  entries whose schedules cannot be built at present
    """

    entries: TrackedEntries
    watermark: Instant
    is_new: bool
    unreadable: Mapping[str, Exception]


def read_store(states: States, *, resign: Callable[[], None]) -> StoredState:
    """Read the stored state; resign when this version cannot use it, so that a beat that can takes over."""
    try:
        return states.load(by_script=True)
    except UnfitStoreError:
        resign()
        raise


def load_entries(
    declared: Sequence[Declared],
    stored: StoredState,
    *,
    now: Instant,
    match_first: bool,
    events: Events,
    remembered: Mapping[str, Instant] | None = None,
) -> LoadedEntries:
    """Build the tracked entries from the stored state; correct and report suspicious values.

    ``remembered`` is up to where each entry is decided for certain, in case the store has lost it.
    """
    found = _watermark(stored, now, events)
    watermark = min([now, *(remembered or {}).values()]) if found is None else found
    reader = _Reader(stored, now, watermark, events, match_first=match_first, remembered=remembered or {})
    by_name, unreadable = dict[str, TrackedEntry](), dict[str, Exception]()
    wakes: dict[Hashable, Instant | None] = {}  # thousands of entries have the same few schedules
    for one in declared:
        try:
            by_name[one.name] = tracked = reader.read(one)
        except Exception as error:  # noqa: BLE001 - a custom schedule may raise anything
            unreadable[one.name] = error
            continue
        if not tracked.state.paused:
            key = tracked.planning_key(watermark)
            if key is None or key not in wakes:
                wakes[key] = _wake(tracked, watermark, now)
            tracked.wake_at = wakes[key]
    return LoadedEntries(TrackedEntries(by_name), watermark, is_new=found is None, unreadable=unreadable)


def check_drift(
    entries: TrackedEntries,
    stored: StoredState,
    records: Mapping[str, str],
    *,
    accepted: Mapping[str, str],
    on_drift: OnDrift,
    events: Events,
) -> None:
    """Report how the declared entries differ from the accepted ones; raise `DriftError` when refused.

    ``records`` are the declared entries, ``accepted`` those of the set that was last accepted.
    """
    # Version 0.1 kept no records, only the fingerprints of schedules, also of removed entries.
    found = differences(accepted, records) if accepted else list(_changed_schedules(entries, stored))
    if found and on_drift is OnDrift.REFUSE:
        raise DriftError(
            f"the declared entries differ from the stored ones: {listed(found)}; declare them as they were, "
            f"or accept them with: {command_line('drift', 'accept')}"
        )
    loud = on_drift is OnDrift.WARN
    reported: dict[str, list[str]] = {}
    for one in found:
        # An adopted change is news; adding or removing an entry is intended.
        if loud or one.change is DriftKind.CHANGED:
            reported.setdefault(one.entry, []).append(one.says)
    for name, changes in reported.items():
        events.emit(EntryDrifted(name, "; ".join(changes), loud=loud))


def _changed_schedules(entries: TrackedEntries, stored: StoredState) -> Iterator[Difference]:
    for name, known in stored.fingerprints.items():
        tracked = entries.by_name.get(name)
        if tracked is not None and not tracked.declared.has_fingerprint(known):
            yield Difference(name, DriftKind.CHANGED, "schedule", known, tracked.declared.fingerprint)


def report_moved_schedules(entries: TrackedEntries, stored: StoredState, events: Events) -> None:
    """Report lists whose schedules changed their positions: the position is part of a run's identity,
    unless the schedule has an id."""
    for name, known in stored.fingerprints.items():
        tracked = entries.by_name.get(name)
        if tracked is None or known == tracked.declared.fingerprint:
            continue
        if all(schedule.id is not None for schedule in tracked.entry.schedules):
            continue
        before, after = known.split(" | "), tracked.declared.fingerprint.split(" | ")
        if any(shape in after and shape not in after[i : i + 1] for i, shape in enumerate(before)):
            events.emit(
                StateSuspect(
                    f"the schedules of entry {name!r} changed their positions, which are part of their runs' "
                    "identity: slots that ran before count as new; give each schedule an id"
                )
            )


def adopt(
    states: States, leadership: Leadership, loaded: LoadedEntries, stored: StoredState, *, declares: str
) -> bool:
    """Write what is new to the store; return False when another beat leads.

    ``declares`` is the digest by which standbys see whether they have the same entries.
    """
    changes, removed = list(_changes(loaded.entries, stored)), dict(_removals(loaded, stored))
    if not (changes or removed or loaded.is_new or stored.declares != declares):
        return True
    watermark = loaded.watermark if loaded.is_new else None
    return states.store_entries(leadership, changes, watermark=watermark, declares=declares, left_off=removed)


def _changes(entries: TrackedEntries, stored: StoredState) -> Iterator[Mapping[str, object]]:
    policies: dict[tuple[int, int], str] = {}  # most entries share a policy
    for tracked in entries:
        name, state = tracked.declared.name, tracked.state
        place = id(tracked.entry.policy), tracked.capacity
        policy = policies.get(place) or policies.setdefault(place, tracked.stored_policy())
        seen = name in stored.first_seen and name in stored.anchors
        same = stored.fingerprints.get(name) == tracked.declared.fingerprint
        corrected = state.decided is not None and stored.decided.get(name) != str(state.decided)
        if seen and same and stored.policies.get(name) == policy and not corrected:
            continue
        yield {
            "name": name,
            "first_seen": str(state.first_seen_at),
            "anchor": str(state.first_seen_at),
            "fingerprint": tracked.declared.fingerprint,
            "policy": policy,
            "changed": None if state.changed_at is None else str(state.changed_at),
            "decided": str(state.decided) if corrected else None,
        }


def _removals(loaded: LoadedEntries, stored: StoredState) -> Iterator[tuple[str, Instant | None]]:
    """Yield entries that are not declared any more with up to where each is decided; None for those that
    are declared again, once the time between is on record."""
    for name, first_seen in stored.first_seen.items():
        tracked = loaded.entries.by_name.get(name)
        if tracked is not None:
            if name in stored.left_off and tracked.state.removed is None:
                yield name, None
            continue
        noted, decided = (
            parse_instant(stored.left_off.get(name)),
            parse_instant(stored.decided.get(name)) or 0,
        )
        if name not in loaded.unreadable and (noted is None or noted < decided):
            yield name, max(loaded.watermark, decided, parse_instant(first_seen) or 0)


def _watermark(stored: StoredState, now: Instant, events: Events) -> Instant | None:
    """Return the stored watermark; None, and report it, when there is none that can be right."""
    if stored.watermark is None:
        # Entries may be stored before the first beat starts.
        if not stored.fresh and (stored.first_seen or stored.last_runs):
            events.emit(StateSuspect("the scheduler's watermark is missing; nothing is replayed"))
        return None
    value = parse_instant(stored.watermark)
    if value is None:
        text = stored.watermark[:40]
        events.emit(StateSuspect(f"the scheduler's watermark {text!r} is not a time; nothing is replayed"))
    elif value > now:
        moment = to_rfc3339(value)
        events.emit(StateSuspect(f"the scheduler's watermark {moment} is in the future; it counts as now"))
        return None
    return value


def _wake(tracked: TrackedEntry, watermark: Instant, now: Instant) -> Instant | None:
    """Return the first slot that is still to be decided, or the next one.

    An entry whose schedule fails wakes at once: the tick that decides it reports the failure and retries.
    """
    scope = tracked.scope(watermark, now)
    try:
        slots = [
            slot
            for schedule, reach in zip(tracked.entry.schedules, scope.reaches, strict=True)
            if (slot := schedule.timetable.next_after(min(reach.floor, now))) is not None
        ]
    except Exception:  # noqa: BLE001 - a custom schedule may raise anything
        return min(now, scope.decided)
    # The end of a pause is decided at once, and in its turn if slots were missed in it.
    return min([now, *slots]) if tracked.state.resumes else min(slots, default=None)


def parse_instant(text: str | None) -> Instant | None:
    """Parse a stored instant; None when it cannot be one."""
    if text is None or not text.isdecimal():
        return None
    value = int(text)
    return value if value in _SANE else None


def _pauses(pause: Mapping[str, Any]) -> tuple[Pause, ...]:
    return tuple(
        Pause(one["at"], one.get("resumed"), bool(one.get("discard")), bool(one.get("held")))
        for one in (*pause.get("earlier", ()), pause)
        if "at" in one
    )


class _Reader:
    """Reads the state of entries from the store."""

    def __init__(
        self,
        stored: StoredState,
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

    def read(self, declared: Declared) -> TrackedEntry:
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
                manual_run=manual.get("run"),
                manual_success=manual.get("success"),
                paused=bool(pause.get("paused")),
                paused_at=pause.get("decided", pause.get("at")),
                pauses=_pauses(pause) if pause else (),
                pause_record=stored.paused.get(name, ""),
                held_at=pause.get("held_at"),
                removed=self._removed(name, decided),
                changed_at=self._changed(declared, entry),
            ),
            newcomer=name not in stored.first_seen,
            anchors=anchors,
        )

    def _anchors(self, name: str, first_seen: Instant) -> dict[str, Instant]:
        """Read where the entry's schedules count from; version 0.1 stored one instant for all of them."""
        text = self.stored.anchors.get(name, "")
        if not text.startswith("{"):
            anchor = self._read("anchor", self.stored.anchors, name)
            return {"": first_seen if anchor is None else anchor}
        found = self._read_mapping("anchor", self.stored.anchors, name)
        return {"": first_seen} | {key: at for key, at in found.items() if at in _SANE}

    def _decided(self, name: str) -> Instant | None:
        """Read up to where the entry is decided; a damaged value counts as now, so nothing is replayed."""
        value = self._read("watermark", self.stored.decided, name)
        if value is None:
            return self.now if name in self.stored.decided else None
        if value > self.now + SKEW:
            moment = to_rfc3339(value)
            self._suspect(f"the watermark of entry {name!r} is {moment}, in the future; it counts as now")
            return self.now
        return value

    def _ran(self, name: str) -> Instant | None:
        """Read when the entry last ran without a policy: nothing was missed up to then."""
        if name not in self.stored.last_runs:
            return None
        value = parse_instant(self.stored.last_runs[name].partition(" ")[0])
        return None if value is None or value > self.now else value

    def _removed(self, name: str, decided: Instant | None) -> tuple[Instant, Instant] | None:
        """Read the time in which the entry was not declared, as long as nothing after it is decided."""
        value = self._read("removal", self.stored.left_off, name)
        if value is None or (decided is not None and decided > value) or value >= self.watermark:
            return None
        return value, self.watermark

    def _changed(self, declared: Declared, entry: Entry) -> Instant | None:
        """Read since when the present schedule holds, when the time before is not to be replayed."""
        if entry.policy.on_schedule_change is OnScheduleChange.REPLAY:
            return None
        known = self.stored.fingerprints.get(declared.name)
        if known is not None and not declared.has_fingerprint(known):
            return self.now
        return self._read("change", self.stored.changed, declared.name)

    def _read_mapping(self, what: str, column: Mapping[str, str], name: str) -> dict[str, Any]:
        if name not in column:
            return {}
        found = read_json(column[name])
        if found is None:
            self._suspect(f"the {what} of entry {name!r} is {column[name][:40]!r}, which cannot be read")
        return found or {}

    def _read(self, what: str, column: Mapping[str, str], name: str) -> Instant | None:
        if name not in column:
            return None
        value = parse_instant(column[name])
        if value is None:
            self._suspect(f"the {what} of entry {name!r} is {column[name][:40]!r}, which is not a time")
        return value

    def _suspect(self, what: str) -> None:
        self.events.emit(StateSuspect(what))
