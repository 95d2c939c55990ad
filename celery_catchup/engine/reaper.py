"""The reaper: resend runs that were lost, and dead-letter those that kill their workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from celery_catchup.engine.loss_evidence import QueueView, evidence_of, next_look, sent_at
from celery_catchup.events import (
    EntryFailed,
    Events,
    RunDied,
    RunExpired,
    RunResent,
    RunUnreported,
)
from celery_catchup.model import Instant
from celery_catchup.store import Evidence, Leadership, Presence, Recovered, Recovery
from celery_catchup.store.error_advice import STORE_FAILS, explain, is_damage
from celery_catchup.store.workers import LATELY

_MOST = 200
"""Runs that are examined in one tick."""
_DAMAGED_EVERY = 60_000
"""Milliseconds between two tries of a run whose entry has a damaged key."""

Records = Sequence[tuple[str, dict[str, Any]]]


class Reaper:
    """Recovers runs whose lease has expired, and failed ones whose next attempt is due.

    ``presence`` returns which workers consume which queue, ``depth`` how many messages a queue holds, by
    its name, routing key and priority, or None.
    """

    def __init__(
        self,
        recovery: Recovery,
        leadership: Leadership,
        events: Events,
        *,
        presence: Callable[[], Presence],
        depth: Callable[[str, str, int], int | None],
    ) -> None:
        self._recovery, self._leadership, self._events = recovery, leadership, events
        self._presence, self._depth = presence, depth
        self._damaged: dict[str, Instant] = {}
        """Runs whose entry has a damaged key: when to try each again."""
        self._suspects: dict[tuple[str, Instant], Instant] = {}
        """Since when messages seem to be lost, by run and time of sending; a second look one lease later
        decides."""

    def reap(self, server_ms: int, *, entries: Sequence[str] = ()) -> None:
        """Recover what is overdue by the server's clock; ``entries`` are those to which it may belong."""
        overdue = self._recovery.overdue(server_ms, limit=_MOST)
        found = self._evidence([pair for pair in overdue if pair[1].get("state") == "queued"], server_ms)
        for run_id, run in overdue:
            evidence = found.get(run_id, Evidence.NONE)
            if evidence is not Evidence.NONE or run.get("state") != "queued":
                self._recover_one(run_id, run, evidence, entries, server_ms)

    def _evidence(self, unclaimed: Records, server_ms: int) -> Mapping[str, Evidence]:
        """Judge runs that no worker has claimed; those that merely wait are examined later."""
        if not unclaimed:
            return {}
        views = self._views([run for _, run in unclaimed], server_ms)
        found, looks = dict[str, Evidence](), dict[str, Instant]()
        for run_id, run in unclaimed:
            judged = evidence_of(run, views[str(run.get("template"))], now=server_ms)
            if judged is Evidence.LOST and not self._confirmed(run_id, run, server_ms):
                looks[run_id] = server_ms + self._recovery.run_ttl_ms
            elif judged is Evidence.NONE:
                looks[run_id] = next_look(run, now=server_ms)
            else:
                found[run_id] = judged
        self._recovery.postpone(self._leadership, looks)
        return found

    def _confirmed(self, run_id: str, run: Mapping[str, Any], server_ms: int) -> bool:
        """Tell whether the message was already missing one lease ago; workers renew what they received."""
        if run.get("discarded"):
            return True
        ttl = self._recovery.run_ttl_ms
        recent = {key: since for key, since in self._suspects.items() if server_ms - since < 10 * ttl}
        self._suspects = recent
        return server_ms - recent.setdefault((run_id, sent_at(run)), server_ms) >= ttl

    def _views(self, runs: Sequence[Mapping[str, Any]], server_ms: int) -> Mapping[str, QueueView]:
        """Return what is known about the queues of these runs, by template."""
        templates = [str(run.get("template")) for run in runs]
        places = self._recovery.sent_to(templates)
        presence = self._presence()
        drained = self._recovery.drained(place.order_key for place in places.values())
        depths = {
            place: self._depth(place.queue, place.routing_key, place.priority)
            for place in set(places.values())
        }
        return {template: QueueView() for template in templates} | {
            template: QueueView(
                # If the queues of an exchange are not known, only claims show that a message was consumed.
                ever_claimed=presence.ever_claimed(place.queue) or place.order_key in drained,
                claims_now=presence.claimed_since(place.queue, server_ms - self._recovery.run_ttl_ms),
                plain_now=bool(presence.plain_since(place.queue, server_ms - LATELY)),
                drained=drained.get(place.order_key, 0),
                depth=depths[place],
                asked=presence.asked,
            )
            for template, place in places.items()
        }

    def _recover_one(
        self, run_id: str, run: dict[str, Any], evidence: Evidence, entries: Sequence[str], server_ms: int
    ) -> None:
        """Recover one run; a damaged key of its entry does not delay other runs."""
        if self._damaged.get(run_id, 0) > server_ms:
            return
        try:
            self._recover(run_id, run, evidence, entries)
        except STORE_FAILS as error:
            if not is_damage(error):
                raise
            self._damaged = {one: at for one, at in self._damaged.items() if at > server_ms}
            self._damaged[run_id] = server_ms + _DAMAGED_EVERY
            self._events.emit(EntryFailed(str(run.get("entry", "")), explain(error), _DAMAGED_EVERY / 1000))

    def _recover(self, run_id: str, run: dict[str, Any], evidence: Evidence, entries: Sequence[str]) -> None:
        entry = str(run.get("entry", ""))
        lane = str(run.get("lane", entry))
        sends = int(run.get("sends", 0))
        match self._recovery.recover(self._leadership, run_id, lane=lane, evidence=evidence, sends=sends):
            case Recovered.SENT:
                self._events.emit(RunResent(entry, run_id, run["slot"], _why(run)))
            case Recovered.DEAD:
                self._events.emit(RunDied(entry, run_id, run["slot"], _why(run)))
            case Recovered.CORRUPT:
                whose, slot = self._recovery.bury(self._leadership, run_id, entries=entries)
                self._events.emit(RunDied(whose, run_id, slot, "its record could not be read"))
            case Recovered.ASSUMED:
                self._events.emit(RunUnreported(entry, run_id, run["slot"], _why_unreported(run)))
            case Recovered.EXPIRED:
                self._events.emit(RunExpired(entry, run_id, run["slot"], "no worker started it in time"))
            case Recovered.ALIVE | Recovered.ENDED | Recovered.WAITING:
                pass


def _why(run: Mapping[str, Any]) -> str:
    if run.get("discarded"):
        return "a worker that does not know its task discarded its message"
    reasons = {
        "running": "its worker was lost",
        "queued": "its message was lost",
        "waiting": "its next attempt is due",
    }
    return reasons.get(str(run.get("state")), "lost")


def _why_unreported(run: Mapping[str, Any]) -> str:
    if not run.get("template"):
        return "no message with its run_headers came within an hour"
    return "no worker of its queue ever had the plugin"
