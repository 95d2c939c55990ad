"""The reaper: sends again what was lost on the way, gives up what kills its workers, and sweeps."""

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
    StateSuspect,
)
from celery_catchup.model import Instant
from celery_catchup.store import Evidence, Leadership, Presence, Recovered, Recovery, Retention
from celery_catchup.store.error_advice import STORE_FAILS, explain, is_damage
from celery_catchup.store.workers import LATELY

_MOST = 200
"""Runs that are looked at in one tick."""
_SWEEP_EVERY = 60_000
"""Milliseconds between two sweeps of what the ledger no longer keeps."""
_SWEPT = 500
"""Runs, and entries' skips, that one sweep looks at: it goes on where it stopped."""

_DAMAGED_EVERY = 60_000
"""Milliseconds between two tries of a run whose entry has a damaged key."""

Records = Sequence[tuple[str, dict[str, Any]]]


class Reaper:
    """Looks after runs whose lease has run out, and failed ones whose next attempt is due.

    ``presence`` tells who consumes which queue, ``depth`` how many messages a queue holds (its name and
    the routing key are given), or None.
    """

    def __init__(
        self,
        recovery: Recovery,
        retention: Retention,
        leadership: Leadership,
        events: Events,
        *,
        presence: Callable[[], Presence],
        depth: Callable[[str, str], int | None],
    ) -> None:
        self._recovery, self._retention, self._leadership = recovery, retention, leadership
        self._events, self._presence, self._depth = events, presence, depth
        self._swept_at = self._position = 0
        self._behind = False
        self._damaged: dict[str, Instant] = {}
        """Runs whose entry has a damaged key: when each is tried again."""
        self._suspects: dict[tuple[str, Instant], Instant] = {}
        """Messages that seem to be lost, by run and when they were sent: since when. A second look, one
        lease later, decides."""

    def reap(self, server_ms: int, *, entries: Sequence[str] = ()) -> None:
        """Look after what is overdue by the server's clock; ``entries`` are those whose it may be."""
        overdue = self._recovery.overdue(server_ms, limit=_MOST)
        found = self._evidence([pair for pair in overdue if pair[1].get("state") == "queued"], server_ms)
        for run_id, run in overdue:
            evidence = found.get(run_id, Evidence.NONE)
            if evidence is not Evidence.NONE or run.get("state") != "queued":
                self._recover_one(run_id, run, evidence, entries, server_ms)

    def _evidence(self, unclaimed: Records, server_ms: int) -> Mapping[str, Evidence]:
        """Judge runs that no worker has claimed; those that merely wait are looked at later."""
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
        """Whether the message was already missing one lease ago; workers renew what they have received."""
        if run.get("discarded"):
            return True
        ttl = self._recovery.run_ttl_ms
        recent = {key: since for key, since in self._suspects.items() if server_ms - since < 10 * ttl}
        self._suspects = recent
        return server_ms - recent.setdefault((run_id, sent_at(run)), server_ms) >= ttl

    def _views(self, runs: Sequence[Mapping[str, Any]], server_ms: int) -> Mapping[str, QueueView]:
        """What is known of the queues that these runs were sent to, by template."""
        templates = [str(run.get("template")) for run in runs]
        places = self._recovery.sent_to(templates)
        presence = self._presence()
        drained = self._recovery.drained(place.routing_key for place in places.values())
        depths = {
            (place.queue, place.routing_key): self._depth(place.queue, place.routing_key)
            for place in set(places.values())
        }
        return {template: QueueView() for template in templates} | {
            template: QueueView(
                # Of a message to an exchange whose queues are not known only claims can tell.
                ever_claimed=presence.ever_claimed(place.queue) or place.routing_key in drained,
                claims_now=presence.claimed_since(place.queue, server_ms - self._recovery.run_ttl_ms),
                plain_now=bool(presence.plain_since(place.queue, server_ms - LATELY)),
                drained=drained.get(place.routing_key, 0),
                depth=depths[place.queue, place.routing_key],
                asked=presence.asked,
            )
            for template, place in places.items()
        }

    def _recover_one(
        self, run_id: str, run: dict[str, Any], evidence: Evidence, entries: Sequence[str], server_ms: int
    ) -> None:
        """Look after one run; a damaged key of its entry keeps no other run waiting."""
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
        match self._recovery.recover(self._leadership, run_id, lane=lane, evidence=evidence):
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
            case Recovered.ALIVE | Recovered.ENDED:
                pass

    def sweep(
        self, server_ms: int, now: Instant, *, ttl_ms: int, entries: Sequence[str], most_dead: int
    ) -> None:
        """Once a minute, forget some of what ended, or was skipped, longer than ``ttl_ms`` ago, and
        dead letters beyond ``most_dead``; runs go on being forgotten at every tick while there are more."""
        due = server_ms - self._swept_at >= _SWEEP_EVERY
        if due or self._behind:
            forgotten = self._retention.trim(
                self._leadership,
                ended_before=server_ms - ttl_ms,
                skipped_before=now - ttl_ms,
                entries=self._some(entries) if due else (),
                limit=_SWEPT,
            )
            self._behind = forgotten >= _SWEPT
        if due:
            self._swept_at = server_ms
            self._discard(most_dead)

    def _some(self, entries: Sequence[str]) -> Sequence[str]:
        """The next of the entries, a bounded number of them."""
        some = entries[self._position : self._position + _SWEPT]
        self._position = self._position + _SWEPT if len(some) == _SWEPT else 0
        return some

    def _discard(self, most: int) -> None:
        discarded = self._retention.discard_oldest(most=most, limit=_SWEPT)
        if discarded:
            what = f"there are more than {most} dead letters (catchup_max_dead_letters)"
            self._events.emit(StateSuspect(f"{what}; the oldest {discarded} count as failed from now on"))


def _why(run: Mapping[str, Any]) -> str:
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
