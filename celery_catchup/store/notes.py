"""Notes of runs: what a task wants to find again in its next attempt, or to show."""

from __future__ import annotations

import json
from typing import Any

from redis import Redis

from celery_catchup.errors import LeaseLostError
from celery_catchup.store.keys import Keys
from celery_catchup.store.scripts import Scripts

LONGEST_NOTE = 64 * 1024
"""Characters of one value as JSON; what is longer belongs somewhere else, and its address here."""

MOST_NOTES = 1000
"""Values of one run, by any name: they are read and written together."""
MOST_BYTES = 512 * 1024
"""Of all values of one run together, as they are stored."""


class Notes:
    """Checkpoints, snapshots, outputs and progress, kept as long as their run. ``now_ms`` is for tests:
    0 asks the server's clock."""

    def __init__(self, client: Redis, scripts: Scripts, keys: Keys, *, now_ms: int = 0) -> None:
        self._client, self._scripts, self._keys, self.now_ms = client, scripts, keys, now_ms

    def read(self, run_id: str) -> dict[str, dict[str, Any]]:
        """All notes of a run: by kind, then by name."""
        stored: Any = self._client.hget(self._keys.notes, run_id)
        pages = json.loads(stored) if stored else {}
        return {kind: {name: json.loads(text) for name, text in page.items()} for kind, page in pages.items()}

    def write(self, run_id: str, kind: str, name: str, value: Any, *, owner: str, once: bool = False) -> Any:
        """Keep a value, and return what is kept: with ``once`` that is the first one.

        Raises `LeaseLostError` when another worker has the run by now, and `ValueError` when the value is
        too long, or the run keeps too much already.
        """
        text = json.dumps(value)
        if len(text) > LONGEST_NOTE:
            raise ValueError(
                f"{kind} {name!r} is {len(text)} characters as JSON, {LONGEST_NOTE} are kept; "
                "store it elsewhere and keep its address"
            )
        answer = self._scripts.call(
            "note",
            {"ledger": self._keys.ledger, "notes": self._keys.notes},
            {
                "run_id": run_id,
                "owner": owner,
                "kind": kind,
                "name": name,
                "value": text,
                "once": int(once),
                "now_ms": self.now_ms,
                "most_names": MOST_NOTES,
                "most_bytes": MOST_BYTES,
            },
        )
        if answer[0] in (b"many", b"long"):
            unit, most = ("values", MOST_NOTES) if answer[0] == b"many" else ("bytes", MOST_BYTES)
            raise ValueError(
                f"{kind} {name!r} cannot be kept: expected at most {most} {unit} for all notes of a run, got "
                f"{answer[1]}; write over one name, or store them elsewhere and keep their address"
            )
        if answer[0] != b"kept":
            raise LeaseLostError(f"run {run_id} is no longer this worker's; nothing was kept")
        return json.loads(answer[1])
