"""What another scheduler knew of entries, taken over; the leader sees it by the version counter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from celery_catchup.model import Instant
from celery_catchup.store.batches import portions
from celery_catchup.store.keys import Keys
from celery_catchup.store.scripts import Scripts
from celery_catchup.store.states import SCHEMA, Stored


@dataclass(frozen=True, slots=True)
class Heir:
    """An entry, when it last ran elsewhere, how often, and whether it has a policy here."""

    name: str
    at: Instant
    count: int
    policy: bool


class Inheritance:
    """Takes over entries that are new here."""

    def __init__(self, scripts: Scripts, keys: Keys) -> None:
        self._scripts, self._keys = scripts, keys

    def take_over(self, heirs: Sequence[Heir]) -> list[str]:
        """Let these entries go on behind their last runs; the names of those that were new."""
        names = ("meta", "scheduler", "first_seen", "anchors", "decided", "paused", "last_runs", "version")
        oldest = min(heir.at for heir in heirs)
        taken: list[str] = []
        for part in portions(heirs):
            told = [{"name": h.name, "at": h.at, "count": h.count, "policy": h.policy} for h in part]
            new = self._scripts.call(
                "inherit",
                {name: getattr(self._keys, name) for name in names},
                {"schema": SCHEMA, "watermark": oldest, "entries": json.dumps(told)},
            )
            taken += [name.decode() for name in new]
        return taken


def inherited(stored: Stored, heirs: Sequence[Heir]) -> Stored:
    """What the store would hold after `Inheritance.take_over`."""
    if not heirs:
        return stored
    watermark = stored.watermark or str(min(heir.at for heir in heirs))
    at = {heir.name: str(heir.at) for heir in heirs if heir.policy and heir.name not in stored.first_seen}
    near = int(watermark) if watermark.isdecimal() else 0
    resumed = {name: json.dumps({"paused": False, "at": int(text)}) for name, text in at.items()}
    return replace(
        stored,
        watermark=watermark,
        first_seen={**at, **stored.first_seen},
        anchors={**at, **stored.anchors},
        decided={**stored.decided, **at},
        paused={**stored.paused, **{name: text for name, text in resumed.items() if int(at[name]) < near}},
    )
