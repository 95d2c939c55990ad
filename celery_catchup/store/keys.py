"""The names of all keys. Entry names are encoded, so that no two keys can collide."""

from __future__ import annotations

import re
from urllib.parse import quote

# What `quote` leaves as it is, found faster.
_SAFE = re.compile(r"[A-Za-z0-9_.~-]*")


class Keys:
    """Keys of one namespace; they share a hash tag, so that scripts work on a cluster."""

    def __init__(self, namespace: str) -> None:
        prefix = f"{{catchup:{quote(namespace, safe='')}}}"
        self.prefix = prefix
        self.meta = f"{prefix}:meta"
        self.leader = f"{prefix}:leader"
        self.scheduler = f"{prefix}:scheduler"
        self.version = f"{prefix}:version"
        self.first_seen = f"{prefix}:first_seen"
        self.anchors = f"{prefix}:anchors"
        self.fingerprints = f"{prefix}:fingerprints"
        self.accepted = f"{prefix}:accepted"
        self.policies = f"{prefix}:policies"
        self.changed = f"{prefix}:changed"
        self.decided = f"{prefix}:decided"
        self.paused = f"{prefix}:paused"
        self.manual = f"{prefix}:manual"
        self.last_runs = f"{prefix}:last_runs"
        self.ledger = f"{prefix}:ledger"
        self.runs = f"{prefix}:runs"
        self.templates = f"{prefix}:templates"
        self.outbox = f"{prefix}:outbox"
        self.delayed = f"{prefix}:delayed"
        self.leases = f"{prefix}:leases"
        self.retries = f"{prefix}:retries"
        self.ended = f"{prefix}:ended"
        self.dead = f"{prefix}:dead"
        self.letters = f"{prefix}:letters"
        self.backfills = f"{prefix}:backfills"
        self.notes = f"{prefix}:notes"
        self.workers = f"{prefix}:workers"
        self.outages = f"{prefix}:outages"
        self.hours = f"{prefix}:hours"

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
