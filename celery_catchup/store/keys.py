"""The names of all keys. Entry names are encoded, so that no two keys can collide."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

KINDS = {
    "hash": (
        "meta leader scheduler first_seen anchors fingerprints policies changed decided paused manual "
        "last_runs ledger templates letters backfills notes hours consumers drained contact standbys "
        "stopped revocations removed left_off failing accepted"
    ).split(),
    "zset": "runs outbox delayed unreleased leases retries ended dead workers outages template_uses".split(),
    "string": ["version"],
}
"""The type of each key of a namespace, by its attribute in `Keys`; a test finds one that is missing."""

# What `quote` leaves as it is, found faster.
_SAFE = re.compile(r"[A-Za-z0-9_.~-]*")


class Keys:
    """Keys of one namespace; they share a hash tag, so that scripts work on a cluster."""

    meta: str
    leader: str
    scheduler: str
    version: str
    first_seen: str
    anchors: str
    fingerprints: str
    accepted: str
    policies: str
    changed: str
    decided: str
    paused: str
    manual: str
    last_runs: str
    removed: str
    left_off: str
    failing: str
    ledger: str
    runs: str
    templates: str
    template_uses: str
    outbox: str
    delayed: str
    unreleased: str
    leases: str
    stopped: str
    revocations: str
    retries: str
    ended: str
    dead: str
    letters: str
    backfills: str
    notes: str
    workers: str
    standbys: str
    consumers: str
    drained: str
    contact: str
    outages: str
    hours: str

    def __init__(self, namespace: str) -> None:
        prefix = f"{{catchup:{quote(namespace, safe='')}}}"
        self.prefix = prefix
        for names in KINDS.values():
            for name in names:
                setattr(self, name, f"{prefix}:{name}")

    def runs_of(self, entry: str) -> str:
        """The entry's runs by slot."""
        return self._of("runs", entry)

    def active(self, entry: str) -> str:
        """The entry's runs that are queued or running."""
        return self._of("active", entry)

    def chain(self, entry: str) -> str:
        """The entry's runs that wait their turn."""
        return self._of("chain", entry)

    def skips(self, entry: str) -> str:
        """The entry's slots that were skipped, as spans."""
        return self._of("skips", entry)

    def hours_of(self, entry: str) -> str:
        """What happened to the entry in each hour."""
        return self._of("hours", entry)

    def kinds(self, entries: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
        """Every key of the namespace and of these entries, with the type that it must have."""
        for kind, names in KINDS.items():
            for name in names:
                yield getattr(self, name), kind
        for entry in entries:
            *sorted_sets, hours = self.of_commit(entry)
            yield from ((key, "zset") for key in sorted_sets)
            yield hours, "hash"

    def of_commit(self, entry: str) -> tuple[str, ...]:
        """The entry's keys that a commit writes to, in the script's order."""
        prefix, name = self.prefix, _quoted(entry)
        return (
            f"{prefix}:runs:{name}",
            f"{prefix}:active:{name}",
            f"{prefix}:chain:{name}",
            f"{prefix}:skips:{name}",
            f"{prefix}:hours:{name}",
        )

    def _of(self, kind: str, entry: str) -> str:
        return f"{self.prefix}:{kind}:{_quoted(entry)}"


def _quoted(name: str) -> str:
    return name if _SAFE.fullmatch(name) else quote(name, safe="")
