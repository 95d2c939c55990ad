"""Workers: which of them have the plugin, which queues they consume, and the runs that they give back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from celery_catchup.model import Instant
from celery_catchup.store.leases import ReportOutcome
from celery_catchup.store.store import Store, StorePart, read_json, texts

FORGET_MS = 24 * 3600 * 1000
"""A day: long enough to notice a missing worker, too short for names of containers to pile up."""
LATELY = 15 * 60 * 1000
"""Milliseconds in which a worker without the plugin must have been seen to count; the leader asks every five
minutes."""
FORGET_QUEUE_MS = 90 * FORGET_MS
"""A queue that no worker with the plugin has consumed for this long counts as one that none ever did."""
_PLUGIN, _PLAIN, _SOLO = "plugin ", "plain ", "solo "
"""Prefixes of the fields of ``consumers``: a queue with the plugin, a worker without it, a worker of the pool
``solo``, which answers no question while it executes a task."""
_ALIVE_MS = 15_000
"""Milliseconds for which a sign of life of a ``solo`` worker counts; it gives one every five seconds."""


class WorkerWithoutPlugin(NamedTuple):
    """A worker without the plugin: its queues, and when it was first and last seen (server's clock)."""

    queues: tuple[str, ...]
    since: Instant
    at: Instant


@dataclass(frozen=True, slots=True)
class Presence:
    """The consumers of each queue, as far as they were ever seen; times by the server's clock.

    plugin  queue -> when a worker with the plugin was last seen to consume it
    plain   workers without the plugin by name
    """

    plugin: Mapping[str, Instant] = field(default_factory=dict)
    plain: Mapping[str, WorkerWithoutPlugin] = field(default_factory=dict)
    asked: bool = True
    """Whether the leader has inspected the workers lately, so that it knows those without the plugin."""

    def ever_claimed(self, queue: str) -> bool:
        """Whether a worker with the plugin has ever consumed the queue."""
        return queue in self.plugin

    def claimed_since(self, queue: str, instant: Instant) -> bool:
        """Whether a worker with the plugin was seen to consume the queue at ``instant`` or later."""
        return self.plugin.get(queue, 0) >= instant

    def plain_since(self, queue: str, instant: Instant) -> list[str]:
        """Return the workers without the plugin that consumed the queue at ``instant`` or later. The
        queue "" is unknown: any worker may consume it."""
        seen = {name: one.queues for name, one in self.plain.items() if one.at >= instant}
        return sorted(name for name, queues in seen.items() if queue in queues or not queue)

    def mixed_since(self, instant: Instant) -> dict[str, list[str]]:
        """Return the queues that workers with and without the plugin consume, with the workers without it."""
        found = {queue: self.plain_since(queue, instant) for queue in self.plugin}
        return {queue: names for queue, names in found.items() if names}


class Workers(StorePart):
    """The workers, and which of them have the plugin."""

    def __init__(self, store: Store, *, ttl_ms: int = 60_000, now_ms: int = 0) -> None:
        super().__init__(store, now_ms=now_ms)
        self._ttl_ms = ttl_ms

    def record_alive(self, worker: str, queues: Iterable[str] = (), *, solo: bool = False) -> None:
        """Record that this worker is alive, has the plugin, and consumes these queues."""
        times = {"forget_ms": FORGET_MS, "ttl_ms": self._ttl_ms, "now_ms": self.now_ms}
        consumed = list(queues)
        known = json.dumps({"queues": consumed}) if solo else ""
        self._store.call("record_worker", {"worker": worker, "solo": known, **times}, more_args=consumed)

    def leave(self, worker: str) -> None:
        """Record that this worker stops. Its queues stay known as queues with the plugin."""
        self._client.zrem(self._keys.workers, worker)
        self._client.hdel(self._keys.consumers, _SOLO + worker)

    def solo_alive(self) -> dict[str, tuple[str, ...]]:
        """Return the workers of the pool ``solo`` that are alive, with their queues."""
        if not (solo := self._solo()):
            return {}
        now = self.now_ms or int(self._client.time()[0]) * 1000
        return {name: solo[name] for name in self.seen_since(now - _ALIVE_MS) if name in solo}

    def _solo(self) -> dict[str, tuple[str, ...]]:
        known = texts(self._client.hgetall(self._keys.consumers)).items()
        found = {name: read_json(text) or {} for name, text in known if name.startswith(_SOLO)}
        return {name.removeprefix(_SOLO): tuple(one.get("queues", ())) for name, one in found.items()}

    def seen_since(self, instant: Instant) -> list[str]:
        """Return the workers with the plugin that were alive at ``instant`` (server's clock) or later."""
        return [one.decode() for one in self._client.zrangebyscore(self._keys.workers, instant, "+inf")]

    def note_consumers(self, answers: Mapping[str, Sequence[str]], *, now: Instant) -> None:
        """Record the queues of the workers that answered just now, and whether they have the plugin."""
        with_plugin = set(self.seen_since(0))
        known = self.presence()
        fields = dict[str, str]()
        for worker, queues in answers.items():
            if worker in with_plugin:
                fields |= {_PLUGIN + queue: str(now) for queue in queues}
            else:
                since = known.plain[worker].since if worker in known.plain else now
                fields[_PLAIN + worker] = json.dumps({"queues": list(queues), "since": since, "at": now})
        gone = [
            _PLAIN + worker
            for worker, one in known.plain.items()
            if worker in with_plugin or one.at < now - FORGET_MS
        ]
        gone += [_SOLO + worker for worker in self._solo() if worker not in with_plugin]
        gone += [_PLUGIN + queue for queue, at in known.plugin.items() if at < now - FORGET_QUEUE_MS]
        if gone:
            self._client.hdel(self._keys.consumers, *gone)
        if fields:
            self._client.hset(self._keys.consumers, mapping=fields)

    def presence(self) -> Presence:
        """Return who consumes which queue."""
        plugin, plain = dict[str, Instant](), dict[str, WorkerWithoutPlugin]()
        for name, text in texts(self._client.hgetall(self._keys.consumers)).items():
            if name.startswith(_PLUGIN) and text.isdecimal():
                plugin[name.removeprefix(_PLUGIN)] = int(text)
            elif name.startswith(_PLAIN) and (record := read_json(text)) is not None:
                queues, since, at = record.get("queues", ()), record.get("since", 0), record.get("at", 0)
                plain[name.removeprefix(_PLAIN)] = WorkerWithoutPlugin(tuple(queues), since, at)
        return Presence(plugin, plain)

    def retry(self, run_id: str, *, owner: str, delay_ms: int, error: str = "") -> ReportOutcome:
        """Give a run back; its next delivery, ``delay_ms`` from now, may claim it."""
        args = {"run_id": run_id, "owner": owner, "delay_ms": delay_ms, "error": error}
        return ReportOutcome(self._store.call("retry", {**args, "now_ms": self.now_ms}).decode())
