"""Recover runs whose worker or message was lost, and failed runs whose next attempt is due."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import chain
from typing import Any, NamedTuple

from celery_catchup.model import Instant
from celery_catchup.store.leadership import Leadership
from celery_catchup.store.store import Store, StorePart, read_run
from celery_catchup.store.templates import order_key, read_templates


class Recovered(StrEnum):
    """The outcome of a recovery."""

    SENT = "sent"
    WAITING = "waiting"
    DEAD = "dead"
    ALIVE = "alive"
    ENDED = "ended"
    EXPIRED = "expired"
    ASSUMED = "assumed"
    CORRUPT = "corrupt"


class Evidence(StrEnum):
    """The evidence about a run that no worker has claimed."""

    NONE = ""
    LOST = "lost"
    """Its message is lost: it is sent again."""
    EXPIRED = "expired"
    """Its message has expired: the run ends, and its chain goes on."""
    ASSUMED = "assumed"
    """The run is assumed to have run without a report: no worker of its queue ever had the plugin."""


class Recovery(StorePart):
    """The leader's care for runs in flight."""

    def __init__(self, store: Store, *, run_ttl_ms: int = 60_000, now_ms: int = 0) -> None:
        super().__init__(store, now_ms=now_ms)
        self.run_ttl_ms = run_ttl_ms

    def overdue(self, server_ms: int, *, limit: int) -> list[tuple[str, dict[str, Any]]]:
        """Return runs whose lease has expired or whose retry is due, with their records."""
        due = (self._keys.retries, self._keys.leases)
        found = self._ask(due, lambda pipe, key: pipe.zrangebyscore(key, "-inf", server_ms, 0, limit))
        ids = [run for answer in found.values() for run in answer][:limit]
        return [
            (i.decode(), read_run(text) or {}) for i, text in self._fields(self._keys.ledger, ids).items()
        ]

    def bury(self, leadership: Leadership, run_id: str, *, entries: Iterable[str]) -> tuple[str, Instant]:
        """Make a run with an unreadable record a dead letter; return its entry and slot, as far as the
        lists of these entries know them."""
        scores = self._ask(entries, lambda pipe, name: pipe.zscore(self._keys.runs_of(name), run_id))
        homes = [(name, int(at)) for name, at in scores.items() if at is not None]
        entry, slot = homes[0] if homes else ("", 0)
        args = {"run_id": run_id, "entry": entry, "slot": slot, "now_ms": self.now_ms}
        leadership.call("bury", args, entry=entry)
        return entry, slot

    def recover(
        self, leadership: Leadership, run_id: str, *, lane: str, evidence: Evidence, sends: int
    ) -> Recovered:
        """Send the run again, or end it: a claimed run if its workers were lost too often, an unclaimed
        one by the ``evidence`` alone, which is about the last of that many ``sends``."""
        args = {"run_id": run_id, "evidence": str(evidence), "sends": sends}
        times = {"ttl_ms": self.run_ttl_ms, "now_ms": self.now_ms}
        return Recovered(leadership.call("recover", {**args, **times}, lane=lane).decode())

    def postpone(self, leadership: Leadership, looks: Mapping[str, Instant]) -> None:
        """Look at these runs again at these times, by the server's clock."""
        if looks:
            leadership.call("postpone", {}, more_args=chain.from_iterable(looks.items()))

    def sent_to(self, template_ids: Iterable[str]) -> dict[str, SentTo]:
        """Return where the messages of these templates go; missing templates are left out."""
        found = read_templates(self._client, self._keys.templates, list(template_ids))
        return {
            one: SentTo(
                str(template.get("routing_key", "")),
                str(template.get("queue_name", "")),
                order_key(str(template.get("routing_key", "")), template.get("priority")),
                int(template.get("priority") or 0),
            )
            for one, template in found.items()
        }

    def drained(self, order_keys: Iterable[str]) -> dict[str, Instant]:
        """Return when the latest claimed message was sent, by `order_key`."""
        stored = self._fields(self._keys.drained, order_keys)
        return {key: int(at) for key, at in stored.items() if at is not None}


class SentTo(NamedTuple):
    """The destination of a message: its routing key, the name of the queue if it is known, its `order_key`,
    and its priority."""

    routing_key: str
    queue: str
    order_key: str
    priority: int = 0
