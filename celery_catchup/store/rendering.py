"""Rendering: from a stored template to the message of one sending of a run.

A mark inside a string reads ``@catchup:task_id@``; one that stands for a whole JSON value is
written with its quotes, ``"@catchup!is_catchup@"``. `render` gives what the function of that
name in ``lua/library.lua`` gives: a message is the same whoever sends it, but for how an entry's
name is escaped that is not plain ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

from celery_catchup.model import Instant, Trigger, to_rfc3339

_MARKS = re.compile(
    r'"@catchup!(?P<value>is_catchup)@"'
    r"|@catchup:(?P<text>task_id|delivery_tag|run_id|entry|trigger_type|scheduled_time"
    r"|interval_start|interval_end|expires|eta)@"
)


def task_id(run_id: str, attempt: int) -> str:
    """The first attempt's task has the run's own id; later ones get new ids, because a revoked
    id stays revoked."""
    return f"{run_id}-{attempt}" if attempt > 1 else run_id


def is_catchup(run: Mapping[str, Any]) -> bool:
    """Whether the run makes up for a missed slot."""
    return Trigger(run["trigger"]).is_catchup


def facts(run_id: str, run: Mapping[str, Any]) -> dict[str, str]:
    """What a message tells of its run, whichever attempt it is; by the names of the marks."""
    told = _facts(run["slot"], run.get("previous"), str(run["trigger"]))
    return {**told, "run_id": run_id}


@lru_cache(maxsize=1024)  # of a tick's runs most have these in common
def _facts(slot: Instant, previous: Instant | None, trigger: str) -> dict[str, str]:
    return {
        "trigger_type": trigger,
        "scheduled_time": to_rfc3339(slot),
        "interval_start": "" if previous is None else to_rfc3339(previous),
        "interval_end": to_rfc3339(slot),
    }


def render(template: Mapping[str, Any], run_id: str, run: Mapping[str, Any], now: Instant) -> str:
    """Fill in a template, as it is stored, for one sending of a run.

    Of the run ``slot``, ``trigger``, ``attempt``, ``sends`` and, unless it has none, ``previous``
    and ``entry`` are read. ``now`` is what relative expiry and countdown count from.
    """
    values = _values(run_id, run, template.get("expires_ms"), template.get("countdown_ms"), now)
    shared: Shared | None = template.get("shared")
    return _form(template["message"]) % values if shared is None else shared.rendered(values)


def _values(
    run_id: str, run: Mapping[str, Any], expires_ms: int | None, countdown_ms: int | None, now: Instant
) -> dict[str, str]:
    """What stands in the place of each mark."""
    values = facts(run_id, run)
    values["entry"] = _escaped(run.get("entry", ""))
    values["task_id"] = task_id(run_id, run["attempt"])
    values["delivery_tag"] = f"{run_id}:{run['sends']}"
    values["expires"] = _later(expires_ms, now)
    values["eta"] = _later(countdown_ms, now)
    values["is_catchup"] = "true" if is_catchup(run) else "false"
    return values


class Form(NamedTuple):
    """A message that many entries share, as a format (with ``%`` doubled).

    marked   with a gap for what each entry has of its own
    open     with gaps for the marks, too, which are searched for once
    encoded  the first as JSON, without its quotes
    """

    marked: str
    open: str
    encoded: str


def form_of(marked: str) -> Form:
    """A form from its text with gaps."""
    return Form(marked, _with_gaps_for_marks(marked), _escaped(marked))


def _escaped(text: str) -> str:
    return encode_basestring_ascii(text)[1:-1]


class Shared(NamedTuple):
    """A template as a form, and what fills its gaps."""

    form: Form
    parts: Mapping[str, str]

    @property
    def message(self) -> str:
        """The text with marks; made anew each time, because thousands of them would be kept for nothing."""
        return self.form.marked % self.parts

    def encoded(self) -> str:
        """The same text as JSON, without its quotes: only what fills the gaps has still to be encoded."""
        return self.form.encoded % {name: _escaped(text) for name, text in self.parts.items()}

    def rendered(self, values: Mapping[str, str]) -> str:
        """The text with these values in the place of its marks."""
        return self.form.open % {**self.parts, **values}


def _with_gaps_for_marks(form: str) -> str:
    """A format (with ``%`` doubled) whose marks are gaps, too, by their names."""
    return _MARKS.sub(lambda found: f"%({found[found.lastgroup or 0]})s", form)


@lru_cache(maxsize=1024)
def _form(message: str) -> str:
    return _with_gaps_for_marks(message.replace("%", "%%"))


def _later(milliseconds: int | None, now: Instant) -> str:
    return "" if milliseconds is None else to_rfc3339(now + milliseconds)
