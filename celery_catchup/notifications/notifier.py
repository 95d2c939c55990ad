"""Turn what happens to the leader into notifications: one for each outage or trouble and entry, not per slot.

The store has what was reported, which changes in the step that queues the notification. So the next leader
neither repeats a notification nor forgets one: it compares the present state with what was reported.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from celery_catchup.config.receivers import NotificationKind, Receiver
from celery_catchup.engine import Engine
from celery_catchup.engine.services import Missed
from celery_catchup.engine.tracked_entries import TrackedEntry
from celery_catchup.events import CatchupPlanned, EntryHeld, Event, Leading, RunDied, SlotOverdue, StateLost
from celery_catchup.events.log_lines import logfmt
from celery_catchup.model import Instant, SkipReason
from celery_catchup.notifications import messages
from celery_catchup.notifications.messages import Notification
from celery_catchup.notifications.sender import Senders
from celery_catchup.store import FencedError, Leadership, Notices
from celery_catchup.store.listing import Listing
from celery_catchup.store.store import read_json, stored_instant

logger = logging.getLogger(__name__)

_HOUR = 3_600_000
_SETTLES = 120_000
"""Milliseconds after a change of the leader until an entry that does not fail counts as well again."""
_AT_ONCE = 200
"""Outages that are closed in one tick."""
_LASTING = 2
"""Failures in a row after which an entry counts as failing."""
_LOST = tuple(reason for reason in SkipReason if reason.breaks_deadline)


class Notifier:
    """Queues notifications; a subscriber of events, and called after each tick of the leader."""

    def __init__(
        self,
        receivers: Sequence[Receiver],
        notices: Notices,
        leadership: Leadership,
        listing: Listing,
        *,
        namespace: str,
        senders: Senders | None = None,
    ) -> None:
        self._receivers, self._notices, self._leadership = receivers, notices, leadership
        self._listing, self._namespace, self._senders = listing, namespace, senders
        self._wanted = frozenset[NotificationKind]().union(*(one.on for one in receivers))
        self._started = False
        self._epoch = 0
        self._began: Instant = 0
        self._told: dict[str, str] = {}
        self._changes: dict[str, str | None] = {}
        self._pending: list[Notification] = []
        self._leads: int | None = None
        self._lost: list[str] = []
        self._candidates: dict[str, int] = {}
        self._states: dict[str, str] = {}
        self._runs_held: dict[str, int] = {}
        self._outages: dict[str, tuple[Instant, Instant]] = {}
        self._judged = self._generation = self._died = -1

    # -- what happens ----------------------------------------------------------------------

    def __call__(self, event: Event) -> None:
        """Note an event; nothing is sent here."""
        match event:
            case CatchupPlanned(entry, _, candidates):
                self._candidates[entry] = candidates
            case SlotOverdue():
                self._states.setdefault(event.entry, event.state)
            case EntryHeld(entry, runs):
                self._runs_held[entry] = runs
            case RunDied():
                self._died = -1
            case Leading(epoch):
                self._leads, self._epoch = epoch, 0
            case StateLost(what):
                self._lost.append(what)
            case _:
                pass

    def note_missed(self, several: Sequence[Missed]) -> None:
        """Queue that slots were missed, before any of them is decided: a leader that is killed in between
        leaves the rest of the same outage to the next one."""
        if not self._wanted & {NotificationKind.MISSED, NotificationKind.NOT_RECOVERED}:
            return
        now = max((one.until for one in several), default=0)
        self._load(now)
        for one in several:
            known = self._outage(one.entry)
            if known is not None and one.first <= known[1]:  # the rest of an outage that was reported
                self._outages[one.entry] = known[0], max(known[1], one.until)
            else:
                self._outages[one.entry] = one.first, one.until
                slots = self._candidates.get(one.entry, 0)
                if slots:
                    self._add(messages.missed(one.entry, one.first, one.until, slots))
            self._tell("missed", one.entry, _range(*self._outages[one.entry], is_open=True))
        self._candidates.clear()
        self._flush(now)

    def step(self, engine: Engine, now: Instant) -> None:
        """After a tick of the leader, queue what there is to tell; without news, it asks no server."""
        if not self._started and self._senders is not None:
            self._senders.start()
        self._started = True
        try:
            self._load(now)
            if self._generation < 0:
                self._forget_removed(engine)
            self._tell_leader()
            self._close_outages(engine)
            self._compare_overdue(engine)
            self._compare_held(engine)
            self._compare_failing(engine, now)
            self._find_dead(engine)
            self._flush(now)
        except FencedError:  # the next leader compares by itself
            self._pending.clear()
            self._changes.clear()
            self._epoch = 0

    def close(self) -> None:
        """Stop sending."""
        if self._senders is not None:
            self._senders.close()

    # -- the store -------------------------------------------------------------------------

    def _load(self, now: Instant) -> None:
        """Read what was reported, once per term."""
        if self._epoch == self._leadership.epoch:
            return
        self._told, self._changes = self._notices.told(), {}
        self._epoch, self._began = self._leadership.epoch, now
        self._judged = self._generation = self._died = -1
        self._outages = {}
        for field in self._told:
            kind, _, entry = field.partition("\x1f")
            found = self._outage(entry) if kind == "missed" else None
            if found is not None and self._record("missed", entry).get("open"):
                self._outages[entry] = found

    def _flush(self, now: Instant) -> None:
        """Queue what is pending, and store what was reported, in one step."""
        if not self._pending and not self._changes:
            return
        payloads = [one.payload(namespace=self._namespace, now=now) for one in self._pending]
        rows = [
            (f"{receiver.key}:{payload['id']}", payload)
            for payload in payloads
            for receiver in self._receivers
            if payload["kind"] in receiver.on
        ]
        digested = self._notices.queue(
            self._leadership, rows, self._changes, command=messages.digest_command()
        )
        for field, text in self._changes.items():
            if text is None:
                self._told.pop(field, None)
            else:
                self._told[field] = text
        self._pending, self._changes = [], {}
        if digested:
            detail = "too many wait for their receivers; one message for each stands for these"
            logger.warning(logfmt("Notifications summarised", count=digested, detail=detail))
        if rows and self._senders is not None:
            self._senders.wake()

    def _add(self, one: Notification) -> None:
        if one.kind in self._wanted:
            self._pending.append(one)

    def _tell(self, kind: str, entry: str, record: Mapping[str, Any] | None) -> None:
        self._changes[_field(kind, entry)] = None if record is None else json.dumps(record)

    def _record(self, kind: str, entry: str) -> dict[str, Any]:
        """Return what was reported."""
        field = _field(kind, entry)
        text = self._changes[field] if field in self._changes else self._told.get(field)
        return read_json(text) or {}

    def _entries_told(self, kind: str) -> set[str]:
        """Return the entries of which something of this kind was reported."""
        fields = {*self._told, *self._changes} - {
            name for name, text in self._changes.items() if text is None
        }
        return {field.partition("\x1f")[2] for field in fields if field.startswith(f"{kind}\x1f")}

    def _forget_removed(self, engine: Engine) -> None:
        """Forget what was reported of entries that are not declared any more."""
        declared = {one.name for one in engine.declared} | {""}
        gone = [field for field in self._told if field.partition("\x1f")[2] not in declared]
        self._changes |= dict.fromkeys(gone)
        for field in gone:
            self._outages.pop(field.partition("\x1f")[2], None)

    # -- outages ---------------------------------------------------------------------------

    def _outage(self, entry: str) -> tuple[Instant, Instant] | None:
        record = self._record("missed", entry)
        first, until = stored_instant(record.get("first")), stored_instant(record.get("until"))
        return None if first is None or until is None else (first, until)

    def _close_outages(self, engine: Engine) -> None:
        """Find entries whose missed slots are all decided, and tell which were lost."""
        done: dict[str, tuple[Instant, Instant]] = {}
        for entry, (first, until) in self._outages.items():
            tracked = engine.entries.by_name.get(entry)
            if tracked is None or _is_decided(tracked, until):
                done[entry] = first, until
            if len(done) >= _AT_ONCE:
                break
        if not done:
            return
        if NotificationKind.NOT_RECOVERED in self._wanted:
            spans = self._listing.skips(done, since=min(first for first, _ in done.values()))
            for entry, (first, until) in done.items():
                self._tell_lost(entry, first, until, spans[entry])
        for entry, (first, until) in done.items():
            del self._outages[entry]
            self._tell("missed", entry, _range(first, until, is_open=False))

    def _tell_lost(
        self, entry: str, first: Instant, until: Instant, spans: Iterable[Mapping[str, Any]]
    ) -> None:
        lost = [one for one in spans if one["reason"] in _LOST and first <= one["first"] <= until]
        if lost:
            reasons: dict[str, int] = {}
            for one in lost:
                reasons[one["reason"]] = reasons.get(one["reason"], 0) + int(one["count"])
            oldest, newest = min(one["first"] for one in lost), max(one["last"] for one in lost)
            self._add(messages.not_recovered(entry, first, oldest, newest, reasons))

    # -- what is the case, compared with what was reported ---------------------------------------

    def _compare_overdue(self, engine: Engine) -> None:
        if self._judged == engine.deadlines.changes:
            return
        self._judged = engine.deadlines.changes
        found, told = engine.deadlines.overdue_entries(), self._entries_told("overdue")
        for entry, (slot, count) in found.items():
            if entry not in told:
                state = self._states.get(entry)
                self._add(messages.overdue(entry, slot.slot, slot.deadline, count, state))
                self._tell("overdue", entry, {"slot": slot.slot, "deadline": slot.deadline})
        for entry in told - set(found):
            record = self._record("overdue", entry)
            self._add(messages.recovered(entry, record.get("slot", 0), record.get("deadline", 0)))
            self._tell("overdue", entry, None)
        self._states.clear()

    def _compare_held(self, engine: Engine) -> None:
        if self._generation == engine.generation:
            return
        self._generation = engine.generation
        found = {
            one.entry.name: one.state.held_at
            for one in engine.entries
            if one.state.paused and one.state.held_at is not None
        }
        told = self._entries_told("held")
        for entry, since in found.items():
            if entry not in told:
                self._add(messages.held(entry, since, self._runs_held.pop(entry, None)))
                self._tell("held", entry, {"since": since})
        for entry in told - set(found):
            self._tell("held", entry, None)

    def _compare_failing(self, engine: Engine, now: Instant) -> None:
        failing = {name: one for name, one in engine.failures.lasting(_LASTING).items() if name == one.entry}
        told = self._entries_told("entry_failed")
        for entry, failure in failing.items():
            if entry not in told:
                self._add(messages.entry_failed(entry, failure.since, failure.reason))
                self._tell("entry_failed", entry, {"since": failure.since})
        if told and now - self._began >= _SETTLES:
            for entry in told - set(engine.failures.lasting(1)):
                self._tell("entry_failed", entry, None)

    def _find_dead(self, engine: Engine) -> None:
        """Tell of new dead letters: of each entry at most once an hour."""
        if self._died == engine.died or NotificationKind.DEAD not in self._wanted:
            return
        self._died = engine.died
        seen = self._record("dead", "")
        since, before = stored_instant(seen.get("at")), seen.get("ids", [])
        if since is None:  # those that were there before notifications are no news
            self._tell("dead", "", {"at": engine.server_ms, "ids": []})
            return
        found = [(run_id, at) for run_id, at in self._notices.dead_since(since) if run_id not in before]
        if not found:
            return
        last = found[-1][1]
        same = [run_id for run_id, at in found if at == last] + (before if last == since else [])
        self._tell("dead", "", {"at": last, "ids": same})
        records = {one["id"]: one for one in self._listing.records([run_id for run_id, _ in found])}
        by_entry: dict[str, list[tuple[str, Instant]]] = {}
        for run_id, at in found:
            if run_id in records:
                by_entry.setdefault(records[run_id]["entry"], []).append((run_id, at))
        for entry, runs in by_entry.items():
            run_id, at = runs[-1]
            if self._record("dead", entry).get("hour") != at // _HOUR:
                self._add(messages.dead(entry, at // _HOUR, len(runs), records[run_id], run_id))
                self._tell("dead", entry, {"hour": at // _HOUR})

    def _tell_leader(self) -> None:
        """Tell of a new leader, unless it is the first ever, and of lost state."""
        epoch, self._leads = self._leads, None
        if epoch is not None:
            previous = self._record("leader", "").get("leader")
            if previous is not None:
                self._add(messages.leader_changed(self._leadership.owner, epoch, previous))
            self._tell("leader", "", {"leader": self._leadership.owner})
        for what in self._lost:
            self._add(messages.state_lost(what, self._began))
        self._lost.clear()


def _is_decided(tracked: TrackedEntry, until: Instant) -> bool:
    """Tell whether every slot of the entry up to an instant is decided."""
    if tracked.catchup_until is not None or tracked.due_since is not None or tracked.state.paused:
        return False
    return tracked.wake_at is None or tracked.wake_at > until


def _field(kind: str, entry: str) -> str:
    return f"{kind}\x1f{entry}"


def _range(first: Instant, until: Instant, *, is_open: bool) -> dict[str, Any]:
    return {"first": first, "until": until, "open": is_open}
