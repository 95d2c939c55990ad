"""Watermarks as people move them; the leader sees it by the version counter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from celery_catchup.model import Instant
from celery_catchup.store.batches import portions
from celery_catchup.store.keys import Keys
from celery_catchup.store.scripts import Scripts
from celery_catchup.store.states import Stored


class Watermarks:
    """Moves watermarks by hand."""

    def __init__(self, scripts: Scripts, keys: Keys) -> None:
        self._scripts, self._keys = scripts, keys

    def move(self, entries: Sequence[str], at: Instant, *, scheduler: bool = False) -> None:
        """Let the entries go on behind ``at``; with ``scheduler`` its own watermark is there, too."""
        for part in list(portions(entries)) or [[]]:
            self._scripts.call(
                "move",
                {name: getattr(self._keys, name) for name in ("decided", "paused", "scheduler", "version")},
                {"at_ms": at, "scheduler": int(scheduler)},
                more_args=part,
            )

    def rename(self, old: str, new: str) -> bool:
        """Let ``new`` go on where ``old`` stopped; False when nothing is known of that."""
        names = (
            "first_seen",
            "anchors",
            "fingerprints",
            "changed",
            "decided",
            "manual",
            "paused",
            "left_off",
        )
        keys = {name: getattr(self._keys, name) for name in (*names, "scheduler", "version")}
        return bool(self._scripts.call("rename", keys, {"old": old, "new": new}))


def moved(stored: Stored, entries: Sequence[str], at: Instant, *, scheduler: bool = False) -> Stored:
    """What the store would hold after `Watermarks.move`."""
    watermark = str(at) if scheduler else stored.watermark
    paused = dict(stored.paused)
    for name in entries:
        if name in paused:
            pause = {**json.loads(paused[name]), "decided": at, "discard": False}
            if not pause.get("paused"):
                pause |= {"at": at, "resumed": at}
                pause.pop("earlier", None)
            paused[name] = json.dumps(pause)
        elif at < (int(watermark) if watermark and watermark.isdecimal() else 0):
            paused[name] = json.dumps({"paused": False, "at": at, "resumed": at})
    decided = {**stored.decided, **dict.fromkeys(entries, str(at))}
    return replace(stored, watermark=watermark, decided=decided, paused=paused)
