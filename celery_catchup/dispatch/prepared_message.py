"""Messages of the outbox: a stored template is parsed once, and filled in for each run.

They are what ``render`` makes of a template, without the text in between: to render and parse it for each
run takes longer than to send it.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any

from kombu.utils import json as kombu_json

from celery_catchup.dispatch.dispatch_error import DispatchError
from celery_catchup.error_text import shown
from celery_catchup.model import Instant, task_id, to_rfc3339
from celery_catchup.store import OutboxRun
from celery_catchup.store.templates import is_catchup, run_values

_loads: Any = kombu_json.loads  # kombu's functions carry no types
# A placeholder is literal in the text of a template; what a user wrote like one is escaped there.
_SIGN, _STAND_IN = "@catchup", "\x00catchup"
_PLACEHOLDER = re.compile(rf"{_STAND_IN}[:!](\w+)@")

UNCONFIRMED = DispatchError("unreachable", "the broker has not confirmed the message")

Values = Mapping[str, Any]
Fill = Callable[[Values], Any]


class PreparedMessage:
    """The message of templates, parsed. ``headers`` and ``properties`` are those that all runs have alike;
    ``own_headers`` and ``own_properties`` make the others from the values of placeholders."""

    def __init__(self, message: str) -> None:
        publication = _loads(message.replace(_SIGN, json.dumps(_STAND_IN)[1:-1]))
        self.publication: Mapping[str, Any] = publication
        self.headers, self.own_headers = _split(publication["headers"])
        self.properties, self.own_properties = _split(publication["properties"])
        self.fill_body = _filler(publication["body"])
        self.body = b"" if self.fill_body else b64decode(publication["body"])
        self.where = where(publication)
        self.declares = repr(publication["declare"])
        """A key for the queues and exchanges that are declared."""


@lru_cache(maxsize=1024)
def prepared(message: str) -> PreparedMessage:
    """Parse the message of a template; entries with the same options share it."""
    return PreparedMessage(message)


@dataclass(slots=True, eq=False)
class OutgoingMessage:
    """The message of one sending of a run; ``error`` is why the broker does not, or may not, have it."""

    run: OutboxRun
    form: PreparedMessage
    values: Values
    error: DispatchError | None = UNCONFIRMED

    @classmethod
    def of(cls, one: OutboxRun, now: Instant) -> OutgoingMessage:
        """Fill in the template of a run; raises `ValueError` and the like when it is damaged."""
        run, template = one.run, one.template
        values = {
            **{name: _unescaped(text) for name, text in template.get("inputs", {}).items()},
            **run_values(one.id, run),
            "entry": run["entry"],
            "task_id": task_id(one.id, run["attempt"]),
            "delivery_tag": f"{one.id}:{run['sends']}",
            "is_catchup": is_catchup(run),
            "slots": run.get("slots", 1),
            "expires": _later(template.get("expires_ms"), now),
            "eta": _later(template.get("countdown_ms"), now),
        }
        return cls(one, prepared(template["message"]), values)

    @property
    def task_id(self) -> Any:
        """The id of the task."""
        return self.values["task_id"]

    @property
    def where(self) -> str:
        """The place that it goes to."""
        return self.form.where

    @property
    def body(self) -> bytes:
        """The serialised arguments."""
        fill = self.form.fill_body
        return self.form.body if fill is None else b64decode(fill(self.values))

    @property
    def publication(self) -> dict[str, Any]:
        """Everything that a Producer needs."""
        form, values = self.form, self.values
        return {
            **form.publication,
            "headers": {**form.headers, **_filled(form.own_headers, values)},
            "properties": {**form.properties, **_filled(form.own_properties, values)},
            "body": form.publication["body"] if form.fill_body is None else form.fill_body(values),
        }


def where(publication: Mapping[str, Any]) -> str:
    """Name the place that a message goes to."""
    exchange, key = publication["exchange"], publication["routing_key"]
    return f"exchange {shown(exchange)}, routing key {shown(key)}" if exchange else f"queue {shown(key)}"


def _unescaped(text: str) -> str:
    """Return the text of the inside of a JSON string."""
    return str(json.loads(f'"{text}"')) if "\\" in text else text


@lru_cache(maxsize=128)
def _later(milliseconds: int | None, now: Instant) -> str:
    return "" if milliseconds is None else to_rfc3339(now + milliseconds)


def _filled(fillers: Mapping[str, Fill], values: Values) -> dict[str, Any]:
    return {name: fill(values) for name, fill in fillers.items()}


def _split(part: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Fill]]:
    """Split into what is fixed, and functions for what has placeholders."""
    found = {name: _filler(value) for name, value in part.items()}
    fixed = {name: value for name, value in part.items() if found[name] is None}
    return fixed, {name: fill for name, fill in found.items() if fill is not None}


def _filler(value: Any) -> Fill | None:
    """Return the function that fills in a value; None for one without a placeholder."""
    if isinstance(value, str) and (names := _PLACEHOLDER.findall(value)):
        if _PLACEHOLDER.fullmatch(value):
            return itemgetter(names[0])
        text = _PLACEHOLDER.sub(r"%(\1)s", value.replace("%", "%%"))
        return lambda values: text % values
    if isinstance(value, dict):
        fixed, own = _split(value)
        return (lambda values: {**fixed, **_filled(own, values)}) if own else None
    if isinstance(value, list) and any(fillers := [_filler(one) for one in value]):
        pairs = list(zip(value, fillers, strict=True))
        return lambda values: [one if fill is None else fill(values) for one, fill in pairs]
    return None
