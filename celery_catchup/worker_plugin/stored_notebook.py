"""A run's notebook in the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery_catchup.store import Notes


class StoredNotebook:
    """What one execution of a run reads and writes; read once, then what it wrote is known."""

    def __init__(self, notes: Notes, run_id: str, *, owner: str) -> None:
        self._notes, self._run_id, self._owner = notes, run_id, owner
        self._known: dict[str, dict[str, Any]] | None = None

    def read(self) -> Mapping[str, Mapping[str, Any]]:
        """Everything kept so far."""
        if self._known is None:
            self._known = self._notes.read(self._run_id)
        return self._known

    def write(self, kind: str, name: str, value: Any, *, once: bool = False) -> Any:
        """Keep a value; what is kept comes back."""
        kept = self._notes.write(self._run_id, kind, name, value, owner=self._owner, once=once)
        if self._known is not None:
            self._known.setdefault(kind, {})[name] = kept
        return kept
