"""Templates: stored messages with placeholders, and the message of one sending of a run.

A placeholder inside a string reads ``@catchup:task_id@``; one that stands for a whole JSON value is
written with its quotes, ``"@catchup!is_catchup@"``. `render` gives what the function of that name in
``lua/library.lua`` gives, whichever of the two sends the message; they differ only in how they
escape an entry's name that is not plain ASCII.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import blake2b
from json.encoder import encode_basestring_ascii
from typing import Any

from celery_catchup.model import Instant, Trigger, task_id, to_rfc3339
from celery_catchup.store.store import read_json

_CATCHUP = frozenset(trigger for trigger in Trigger if trigger.is_catchup)
_INPUTS = r"@catchup:(?P<input>task|body|argsrepr|kwargsrepr)@"
_OF_AN_ENTRY = re.compile(_INPUTS)
_OF_A_RUN = re.compile(
    rf'{_INPUTS}|"@catchup!(?P<value>is_catchup|slots)@"'
    r"|@catchup:(?P<text>task_id|delivery_tag|run_id|entry|trigger_type|scheduled_time"
    r"|interval_start|interval_end|expires|eta)@"
)


@dataclass(frozen=True, eq=False)
class Template:
    """A message with placeholders, and where it goes; equal to another of the same content.

    Entries with the same options share one message, which has placeholders for the task and its arguments,
    too: the ``base`` of their templates. ``inputs`` is what an entry has in their place, and all that is
    stored of its own. Without a queue the broker is not this Redis: runs wait in the outbox. ``run`` is
    the id of the only run that may be sent from the template; it is kept as long as the run.
    """

    message: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    queue: str | None = None
    db: int | None = None
    expires_ms: int | None = None
    countdown_ms: int | None = None
    run: str | None = None
    routing_key: str = ""
    queue_name: str = ""
    priority: int = 0
    base: Template | None = None

    def with_inputs(self, inputs: Mapping[str, str]) -> Template:
        """Return the template of an entry that has these inputs in the message."""
        texts = ",".join([f'"{name}":{encode_basestring_ascii(text)}' for name, text in inputs.items()])
        encoded = f'{{"base":"{self.id}","inputs":{{{texts}}}}}'
        other = object.__new__(Template)
        vars(other).update(vars(self), inputs=inputs, base=self, encoded=encoded, id=_digest(encoded))
        return other

    def for_run(self, run_id: str) -> Template:
        """Return a template of its own for one run, with the inputs in the message."""
        return replace(self, message=self.text, inputs={}, base=None, run=run_id)

    @property
    def text(self) -> str:
        """The message with the entry's inputs; placeholders of the run are left."""
        return with_inputs(self.message, self.inputs)

    @property
    def parts(self) -> dict[str, Template]:
        """The base and the template itself, by their ids: what has to be stored."""
        return {self.id: self} if self.base is None else {self.base.id: self.base, self.id: self}

    @cached_property
    def encoded(self) -> str:
        """The JSON that is stored; `with_inputs` has set that of an entry's own template."""
        names = ("queue", "db", "expires_ms", "countdown_ms", "routing_key", "queue_name", "priority")
        place = {name: getattr(self, name) for name in names}
        given = {
            name: value
            for name, value in place.items()
            if value not in (None, "") and (name != "priority" or value)
        }
        return json.dumps({"message": self.message, **given})

    @cached_property
    def id(self) -> str:
        """Hash the content: same content, same id."""
        content = _digest(self.encoded)
        return content if self.run is None else f"{self.run}:{content}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=12).hexdigest()


def order_key(routing_key: str, priority: object) -> str:
    """Return the name under which messages are that a broker delivers in the order in which they were sent:
    those of another priority wait apart."""
    return f"{routing_key}\x1f{priority}" if routing_key and priority else routing_key


def read_templates(client: Any, key: str, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Read stored templates with their bases; those that are missing or unreadable are left out."""
    return with_bases(client, key, _read(client, key, ids))


def with_bases(client: Any, key: str, found: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Complete templates that were read; those whose base is missing or unreadable are left out."""
    bases = _read(client, key, (one["base"] for one in found.values() if "base" in one))
    return {
        name: {**bases[one["base"]], "inputs": one["inputs"]} if "base" in one else one
        for name, one in found.items()
        if "base" not in one or one["base"] in bases
    }


def _read(client: Any, key: str, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    wanted = list(dict.fromkeys(ids))
    stored = client.hmget(key, wanted) if wanted else []
    read = ((name, read_json(text)) for name, text in zip(wanted, stored, strict=True))
    return {name: template for name, template in read if template is not None}


def with_inputs(message: str, inputs: Mapping[str, str]) -> str:
    """Put the inputs of an entry into a message; placeholders of the run are left."""
    return _format(message, _OF_AN_ENTRY) % inputs if inputs else message


def is_catchup(run: Mapping[str, Any]) -> bool:
    """Tell whether the run makes up for a missed slot."""
    return run["trigger"] in _CATCHUP


def run_values(run_id: str, run: Mapping[str, Any]) -> dict[str, str]:
    """Return what all messages of a run have in common, by the names of the placeholders."""
    return {**_slot_values(run["slot"], run.get("previous"), run["trigger"]), "run_id": run_id}


@lru_cache(maxsize=1024)  # most runs of a tick have these in common
def _slot_values(slot: Instant, previous: Instant | None, trigger: str) -> dict[str, str]:
    at = _time(slot)
    return {
        "trigger_type": str(trigger),
        "scheduled_time": at,
        "interval_start": "" if previous is None else _time(previous),
        "interval_end": at,
    }


_time = lru_cache(maxsize=1024)(to_rfc3339)  # a slot is the end of one interval and the start of the next


def render(template: Mapping[str, Any], run_id: str, run: Mapping[str, Any], now: Instant) -> str:
    """Render the message of one sending of a run from the fields of a template.

    Reads ``slot``, ``trigger``, ``attempt``, ``sends`` and, if present, ``previous`` and ``entry`` of
    the run. Relative expiry and countdown count from ``now``.
    """
    return _format(template["message"], _OF_A_RUN) % {
        **_slot_values(run["slot"], run.get("previous"), run["trigger"]),
        **template.get("inputs", {}),
        "run_id": run_id,
        "entry": encode_basestring_ascii(run.get("entry", ""))[1:-1],
        "task_id": task_id(run_id, run["attempt"]),
        "delivery_tag": f"{run_id}:{run['sends']}",
        "expires": _later(template.get("expires_ms"), now),
        "eta": _later(template.get("countdown_ms"), now),
        "is_catchup": "true" if run["trigger"] in _CATCHUP else "false",
        "slots": run.get("slots", 1),
    }


@lru_cache(maxsize=1024)
def _format(message: str, placeholders: re.Pattern[str]) -> str:
    """Turn placeholders into those of Python's ``%`` operator."""
    return placeholders.sub(lambda found: f"%({found[found.lastgroup or 0]})s", message.replace("%", "%%"))


@lru_cache(maxsize=64)
def _later(milliseconds: int | None, now: Instant) -> str:
    return "" if milliseconds is None else to_rfc3339(now + milliseconds)
