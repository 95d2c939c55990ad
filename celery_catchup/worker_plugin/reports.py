"""Reports: how an execution of a run ended, with the texts that the ledger keeps of an error."""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass

from celery_catchup.errors import StoreError
from celery_catchup.events.redaction import redacted
from celery_catchup.model import RunState
from celery_catchup.store.connection import STORE_FAILS
from celery_catchup.worker_plugin.failure_categories import Categories

STORE_TROUBLE = (*STORE_FAILS, StoreError)
"""Exceptions that mean that the store cannot be used now."""

LONGEST_ERROR = 300
"""Characters of an error that the ledger keeps; all of it is in the worker's log."""

_LONGEST_REDACTED = 2000
"""Characters of an error that are searched for secrets."""

LONGEST_TRACEBACK = 8000
"""Characters of a traceback that a dead letter keeps; its end, where the cause is."""

UNCLAIMED = ""
"""The owner of a run that no worker has claimed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome of one execution.

    Without a state the run is tried again, ``delay_ms`` from now. ``even_unclaimed``: it counts also when
    its owner had not claimed the run yet, as long as no other worker has. ``lane`` is that of a backfill's
    run; other runs are in the lane of their entry. ``limited``: the end of the run passes a place on.
    """

    run_id: str
    entry: str
    owner: str
    state: RunState | None
    error: str = ""
    letter: str = ""
    delay_ms: int = 0
    even_unclaimed: bool = False
    lane: str = ""
    limited: bool = False


def error_line(error: object) -> str:
    """Return an error as the ledger keeps it: its class and its first line."""
    if not isinstance(error, BaseException):
        return ""
    line = _encodable(str(error).split("\n", 1)[0][:_LONGEST_REDACTED])
    text = redacted(" ".join(line.split()))
    name = type(error).__name__
    return f"{name}: {text}"[:LONGEST_ERROR] if text else name


def dead_letter_of(error: object, categories: Categories) -> str:
    """Describe a failure for a dead letter, as JSON, without the task's arguments."""
    if not isinstance(error, BaseException):
        return ""
    kind = type(error)
    return json.dumps(
        {
            "type": f"{kind.__module__}.{kind.__qualname__}",
            "category": categories.of(error),
            "traceback": _traceback(error),
        }
    )


def _traceback(error: BaseException) -> str:
    """Return the end of a traceback; a longer part is redacted, so that no value is cut off its name."""
    text = "".join(traceback.format_exception(error))
    if len(text) > 2 * LONGEST_TRACEBACK:
        text = text[-2 * LONGEST_TRACEBACK :]
        text = text.partition("\n")[2].strip() or text
    return redacted(_encodable(text))[-LONGEST_TRACEBACK:]


def _encodable(text: str) -> str:
    """Escape lone surrogates: file names can have them, UTF-8 and the scripts' JSON cannot."""
    return text.encode(errors="backslashreplace").decode()
