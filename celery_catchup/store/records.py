"""Records as they are stored: JSON that we have written, unless somebody else has."""

from __future__ import annotations

import json
from typing import Any

from celery_catchup.model import RunState

_STATES = frozenset(RunState)


def read_json(text: bytes | str | None) -> dict[str, Any] | None:
    """The mapping that was stored; None when there is none, or nothing that could be read."""
    try:
        found = json.loads(text or b"null")
    except ValueError:  # also bytes that are no text
        return None
    return found if isinstance(found, dict) else None


def read_run(text: bytes | str | None) -> dict[str, Any] | None:
    """A run of the ledger; None when there is none, or when it cannot be what we have written."""
    run = read_json(text)
    if run is None or run.get("state") not in _STATES or not isinstance(run.get("entry"), str):
        return None
    numbers = (run.get("slot"), run.get("schedule", 0), run.get("attempt"))
    return run if all(isinstance(number, int | float) for number in numbers) else None
