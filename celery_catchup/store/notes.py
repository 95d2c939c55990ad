"""Notes of runs: values that a task finds again in its next attempt, or shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from celery_catchup.errors import LeaseLostError
from celery_catchup.store.store import StorePart, read_json

LONGEST_NOTE = 64 * 1024
"""Most characters of one value as JSON; store a longer one elsewhere and keep its address here."""

MOST_NOTES = 1000
"""Most values of one run: they are read and written together."""
MOST_BYTES = 512 * 1024
"""Most bytes of all stored values of one run together."""


def _value(text: str) -> Any:
    """Decode a value; None if it is unreadable."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None


class Notes(StorePart):
    """Checkpoints, snapshots, outputs and progress, kept as long as their run."""

    def read(self, run_id: str) -> dict[str, dict[str, Any]]:
        """Return all notes of a run: by kind, then by name."""
        return self.read_many([run_id])[run_id]

    def read_many(self, run_ids: Sequence[str]) -> dict[str, dict[str, dict[str, Any]]]:
        """Return all notes of these runs."""
        stored: Any = self._client.hmget(self._keys.notes, run_ids)
        return {run_id: _decoded(text) for run_id, text in zip(run_ids, stored, strict=True)}

    def write(self, run_id: str, kind: str, name: str, value: Any, *, owner: str, once: bool = False) -> Any:
        """Keep a value, and return the kept one: with ``once`` that is the first.

        Raises `LeaseLostError` if another worker has the run, and `ValueError` if the value is too long
        or the run keeps too much already.
        """
        text = json.dumps(value)
        if len(text) > LONGEST_NOTE:
            raise ValueError(
                f"{kind} {name!r} is {len(text)} characters as JSON, {LONGEST_NOTE} are kept; "
                "store it elsewhere and keep its address"
            )
        status, *detail = self._store.call(
            "write_note",
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
        if status in (b"many", b"long"):
            unit, most = ("values", MOST_NOTES) if status == b"many" else ("bytes", MOST_BYTES)
            raise ValueError(
                f"{kind} {name!r} cannot be kept: expected at most {most} {unit} for all notes of a run, got "
                f"{detail[0]}; write over one name, or store them elsewhere and keep their address"
            )
        if status != b"kept":
            raise LeaseLostError(f"run {run_id} is no longer this worker's; nothing was kept")
        return json.loads(detail[0])


def _decoded(text: bytes | None) -> dict[str, dict[str, Any]]:
    return {
        kind: {name: _value(value) for name, value in page.items()}
        for kind, page in (read_json(text) or {}).items()
        if isinstance(page, dict)
    }
