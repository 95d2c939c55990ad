"""The names of all keys. Entry names are encoded, so that no two keys can collide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from typing import Annotated, get_type_hints
from urllib.parse import quote

_Hash = Annotated[str, "hash"]
_SortedSet = Annotated[str, "zset"]
_String = Annotated[str, "string"]

_OF_ENTRY = {"own": "runs", "active": "active", "chain": "chain", "skips": "skips", "entry_hours": "hours"}
"""Keys that each entry has, by their names in scripts, in the order in which a commit takes them."""
_OF_LANE = ("active", "chain")
"""Those of them that belong to a lane: an entry, or a backfill."""

_encoded = lru_cache(maxsize=10_000)(partial(quote, safe=""))  # every tick needs the same names


class Keys:
    """Keys of one namespace; they share a hash tag, so that scripts work on a cluster."""

    meta: _Hash  # schema version, last epoch, digest of the leader's entries
    leader: _Hash  # owner, epoch, beat, ttl_ms of the leader's lease
    scheduler: _Hash  # watermark, last tick, progress of the catch-up
    version: _String  # counter of changes from outside; the leader reads the state again when it has grown
    entries: _Hash  # stored entry -> its fields as JSON
    revisions: _SortedSet  # stored entries by the revision of their last change; negative for deleted ones
    entries_version: _String  # the latest revision; the leader reads what changed when it has grown
    staged: _SortedSet  # parts of changes that are not in force yet, by the id of their call
    for_each: _Hash  # entry with for_each -> values of its functions as JSON
    first_seen: _Hash  # entry -> first sight (ms)
    anchors: _Hash  # entry -> phase of its intervals, or last slot
    fingerprints: _Hash  # entry -> fingerprint of its schedule
    accepted: _Hash  # entry -> record of its accepted declaration
    policies: _Hash  # entry or lane -> policy as JSON
    changed: _Hash  # entry -> since when the current schedule holds (ms)
    decided: _Hash  # entry -> its watermark (ms)
    paused: _Hash  # entry -> pause as JSON
    manual: _Hash  # entry -> latest manual start and success
    last_runs: _Hash  # entry without a policy -> last run (ms) and count
    removed: _Hash  # entry -> since when it is not declared (ms, server's clock)
    left_off: _Hash  # removed entry -> its watermark (ms)
    failing: _Hash  # entry or lane -> failure as JSON
    ledger: _Hash  # run id -> run as JSON
    runs: _SortedSet  # run ids of all entries by slot (ms)
    templates: _Hash  # template id -> message and queue as JSON
    template_uses: _SortedSet  # ids of shared templates by last use (ms)
    outbox: _SortedSet  # runs to publish
    delayed: _SortedSet  # runs to send later, by time (ms)
    unreleased: _SortedSet  # lanes whose release stopped at its budget
    catchup_active: (
        _SortedSet  # queued and running catch-up and backfill runs, if `catchup_max_active` is set
    )
    catchup_waiting: _SortedSet  # lanes that wait for a place among them
    leases: _SortedSet  # active runs by lease expiry (ms)
    stopped: _Hash  # entry -> runs whose failure stopped its chain
    revocations: _Hash  # task id -> "terminate" or "revoke"
    retries: _SortedSet  # failed runs by next attempt (ms)
    ended: _SortedSet  # ended runs by end (ms)
    dead: _SortedSet  # dead runs by end (ms)
    letters: _Hash  # run id -> failure as JSON
    backfills: _Hash  # backfill id -> backfill as JSON
    notes: _Hash  # run id -> checkpoints, snapshots, outputs, progress as JSON
    workers: _SortedSet  # workers with the plugin by last sight (ms)
    standbys: _Hash  # beat -> last sight, and since when its entries differ from the leader's
    consumers: _Hash  # queues with the plugin, workers without it, solo workers
    drained: _Hash  # routing key -> when its latest claimed message was sent (ms)
    contact: _Hash  # since when the store is reachable
    deadlines: _Hash  # entry with `expect_within` -> up to where its slots are judged, as JSON
    overdue: _SortedSet  # overdue slots as JSON [entry, schedule, slot], by deadline (ms)
    last_success: _Hash  # entry -> when a run of it last succeeded (ms, server's clock)
    epochs: _SortedSet  # "epoch since owner" of each leader, by epoch
    catchups: _Hash  # entry -> its latest catch-ups as JSON
    notices: _Hash  # receiver and notification -> notification, attempts and time of queueing as JSON
    notices_due: _SortedSet  # notifications by when to send them (ms, server's clock)
    told: _Hash  # kind and entry of a notification -> what was reported, as JSON
    outages: _SortedSet  # "since until" without a leader, by end (ms)
    audit: _Hash  # change id -> record of who changed what, as JSON
    audit_times: _SortedSet  # change ids by time (ms)
    hours: _Hash  # hourly counts, and counts since the beginning

    def __init__(self, namespace: str) -> None:
        self.prefix = f"{{catchup:{_encoded(namespace)}}}"
        vars(self).update({name: f"{self.prefix}:{name}" for name in KINDS})

    def runs_of(self, entry: str) -> str:
        """Return the key of the entry's runs by slot."""
        return self.named("own", entry=entry)

    def active(self, lane: str) -> str:
        """Return the key of the lane's queued and running runs."""
        return self.named("active", lane=lane)

    def chain(self, lane: str) -> str:
        """Return the key of the lane's waiting runs."""
        return self.named("chain", lane=lane)

    def skips(self, entry: str) -> str:
        """Return the key of the entry's skipped slots, as spans."""
        return self.named("skips", entry=entry)

    def hours_of(self, entry: str) -> str:
        """Return the key of the entry's hourly counts."""
        return self.named("entry_hours", entry=entry)

    def named(self, name: str, *, entry: str = "", lane: str = "") -> str:
        """Return a key by its name in scripts."""
        if name not in _OF_ENTRY:
            return str(getattr(self, name))
        return f"{self.prefix}:{_OF_ENTRY[name]}:{_encoded(lane if name in _OF_LANE else entry)}"

    def of_entry(self, entry: str) -> list[str]:
        """Return the entry's own keys, in the order in which a commit takes them."""
        encoded = _encoded(entry)
        return [f"{self.prefix}:{name}:{encoded}" for name in _OF_ENTRY.values()]

    def kinds(self, entries: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
        """Yield every key of the namespace and of these entries, with the type that it must have."""
        yield from ((getattr(self, name), kind) for name, kind in KINDS.items())
        for entry in entries:
            *sorted_sets, hours = self.of_entry(entry)
            yield from ((key, "zset") for key in sorted_sets)
            yield hours, "hash"


KINDS: dict[str, str] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Keys, include_extras=True).items()
}
"""The type of each key of a namespace, by its attribute in `Keys`."""
