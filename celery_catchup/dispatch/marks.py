"""Marks: where two messages of one entry differ, how they are put in and how they are filled.

A mark inside a string reads ``@catchup:task_id@``; one that stands for a whole JSON value is
written with its quotes, ``"@catchup!is_catchup@"``. `render` gives what the function of that
name in ``store/lua/library.lua`` gives: a message is the same whoever sends it.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from typing import Any

from celery_catchup.model import Instant, Trigger, to_rfc3339

_SIGN = "@catchup"
_ESCAPED_SIGN = r"\u0040catchup"  # the same text to a JSON reader, and no mark
_TEXT_MARK = re.compile(r"@catchup:([a-z_]+)@")
_VALUE_MARK = re.compile(r'"@catchup!([a-z_]+)@"')

# What stands for the sign while a message is built. Nobody else's text contains it, so a user's
# argument that looks like a mark stays what it is.
_STAND_IN = f"catchup-{secrets.token_hex(16)}"


def mark(name: str) -> str:
    """A mark inside a string, for a message that `seal` will close."""
    return f"{_STAND_IN}:{name}@"


def value_mark(name: str) -> str:
    """A mark in place of a whole JSON value, for a message that `seal` will close."""
    return f"{_STAND_IN}!{name}@"


def with_marks(tree: Any, text: str, marked: str) -> Any:
    """The JSON value with ``text`` replaced in every string of it."""
    if isinstance(tree, str):
        return tree.replace(text, marked)
    if isinstance(tree, dict):
        return {key: with_marks(value, text, marked) for key, value in tree.items()}
    if isinstance(tree, list):
        return [with_marks(value, text, marked) for value in tree]
    return tree


def seal(message: Mapping[str, Any]) -> str:
    """The message as JSON text with real marks; what only looks like one is made harmless."""
    return json.dumps(message).replace(_SIGN, _ESCAPED_SIGN).replace(_STAND_IN, _SIGN)


def task_id(run_id: str, attempt: int) -> str:
    """The first attempt's task has the run's own id; later ones get new ids, because a revoked
    id stays revoked."""
    return f"{run_id}-{attempt}" if attempt > 1 else run_id


def is_catchup(run: Mapping[str, Any]) -> bool:
    """Whether the run makes up for a missed slot."""
    return bool(run["trigger"] == Trigger.CATCHUP)


def facts(run_id: str, run: Mapping[str, Any]) -> dict[str, str]:
    """What a message tells of its run, whichever attempt it is; by the names of the marks."""
    previous = run.get("previous")
    return {
        "run_id": run_id,
        "trigger_type": str(run["trigger"]),
        "scheduled_time": to_rfc3339(run["slot"]),
        "interval_start": "" if previous is None else to_rfc3339(previous),
        "interval_end": to_rfc3339(run["slot"]),
    }


def render(template: Mapping[str, Any], run_id: str, run: Mapping[str, Any], now: Instant) -> str:
    """Fill in a template, as it is stored, for one sending of a run.

    Of the run ``slot``, ``trigger``, ``attempt``, ``sends`` and, unless it has none, ``previous``
    are read. ``now`` is what relative expiry and countdown count from.
    """
    texts = facts(run_id, run) | {
        "task_id": task_id(run_id, run["attempt"]),
        "delivery_tag": f"{run_id}:{run['sends']}",
        "expires": _later(template.get("expires_ms"), now),
        "eta": _later(template.get("countdown_ms"), now),
    }
    values = {"is_catchup": "true" if is_catchup(run) else "false"}
    text = _VALUE_MARK.sub(lambda found: values.get(found[1], found[0]), template["message"])
    return _TEXT_MARK.sub(lambda found: texts.get(found[1], found[0]), text)


def _later(milliseconds: int | None, now: Instant) -> str:
    return "" if milliseconds is None else to_rfc3339(now + milliseconds)
