"""Decode what the server returns. A record that this package cannot have written counts as missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from celery_catchup.model import RunState

_STATES = tuple(RunState)  # compared, not hashed: a damaged record may hold a list


def read_json(text: bytes | str | None) -> dict[str, Any] | None:
    """Decode a stored mapping; None if it is missing or unreadable."""
    try:
        found = json.loads(text or b"null")
    except ValueError:  # also bytes that are not text
        return None
    return found if isinstance(found, dict) else None


def read_run(text: bytes | str | None) -> dict[str, Any] | None:
    """Decode a run of the ledger; None if it is missing or unreadable."""
    run = read_json(text)
    if run is None or run.get("state") not in _STATES or not isinstance(run.get("entry"), str):
        return None
    numbers = (run.get("slot"), run.get("schedule", 0), run.get("attempt"))
    return run if all(isinstance(number, int | float) for number in numbers) else None


def texts(answer: Mapping[bytes, bytes]) -> dict[str, str]:
    """Decode a hash."""
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in answer.items()}
