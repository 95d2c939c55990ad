"""From an entry of the schedule to Celery's own call, with the headers that beat and this package add."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from celery.beat import BeatLazyFunc, ScheduleEntry

from celery_catchup.config.configuration import RESERVED_OPTIONS
from celery_catchup.dispatch import header_names as names
from celery_catchup.dispatch.celery_internals import expires_option
from celery_catchup.dispatch.dispatch_error import DispatchError
from celery_catchup.dispatch.placeholders import placeholder, value_placeholder
from celery_catchup.error_text import shown
from celery_catchup.store.templates import is_catchup, run_values

# header -> placeholder
_HEADERS = {names.SCHEDULED_TIME: "scheduled_time", names.TRIGGER_TYPE: "trigger_type"}
_HEADERS_WITH_POLICY = {
    **_HEADERS,
    names.RUN_ID: "run_id",
    names.DATA_INTERVAL_START: "interval_start",
    names.DATA_INTERVAL_END: "interval_end",
}


class _NoEvents:
    """An event dispatcher that sends nothing: `SentEvents` announces the message when it was sent."""

    def publish(self, *_: Any, **__: Any) -> None:
        """Send nothing."""


@dataclass(frozen=True)
class TaskCall:
    """One call of ``apply_async``, or of ``send_task`` for a task that beat does not know.

    With a run the call is made with that run's own values, for hooks and routers to see;
    without one its headers are placeholders.
    """

    app: Any
    entry: ScheduleEntry
    task: Any
    task_id: str
    headers: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        app: Any,
        entry: ScheduleEntry,
        *,
        policy_entry: str | None,
        run_id: str | None = None,
        run: Mapping[str, Any] | None = None,
    ) -> TaskCall:
        """Make the call for an entry, or for one run of it."""
        if policy_entry is not None:
            _check(app, entry)
        headers = _headers(policy_entry, run_id, run)
        return cls(app, entry, app.tasks.get(entry.task), run_id or str(uuid.uuid4()), headers)

    def send(self, producer: Any) -> Any:
        """Call Celery and return its result. Lazy arguments are evaluated now."""
        args = [_evaluated(value) for value in self.entry.args or ()]
        kwargs = {name: _evaluated(value) for name, value in (self.entry.kwargs or {}).items()}
        options = {"task_id": self.task_id, **self.entry.options, **self._overrides(), "producer": producer}
        if self.task is not None:
            return self.task.apply_async(args, kwargs, **options)
        return self.app.send_task(self.entry.task, args, kwargs, **options)

    def _overrides(self) -> dict[str, Any]:
        overrides: dict[str, Any] = {
            "headers": {**copy.deepcopy(self.entry.options.get("headers") or {}), **self.headers},
            "retry": False,  # a repeated publish is a second message
            "add_to_parent": False,
            # Celery would prepare the result backend for a caller that waits: with Redis, one subscription
            # for each message. `CapturedMessage` sets the header right.
            "ignore_result": True,
        }
        if self.app.conf.task_always_eager:
            del overrides["ignore_result"]
        if self.app.conf.task_send_sent_event:
            overrides["event_dispatcher"] = _NoEvents()
        return overrides

    @property
    def expires_ms(self) -> int | None:
        """How long after it was sent the task expires."""
        return _milliseconds(expires_option(self.entry, self.task))

    @property
    def countdown_ms(self) -> int | None:
        """How long after it was sent the task may start."""
        return _milliseconds(self.entry.options.get("countdown") or None)

    @property
    def ignore_result(self) -> Any:
        """The option as Celery would have sent it."""
        given = self.entry.options
        if "ignore_result" in given or self.task is None:
            return given.get("ignore_result")
        return self.task.ignore_result


def _check(app: Any, entry: ScheduleEntry) -> None:
    for name in RESERVED_OPTIONS:
        if name in entry.options:
            raise DispatchError(
                "invalid",
                f"entry {shown(entry.name)} sets option {name!r}, which each run has its own; remove it",
            )
    if app.conf.task_always_eager:
        raise DispatchError(
            "invalid",
            "task_always_eager is on, so that tasks would run inside beat; turn it off where beat runs",
        )


def _headers(policy_entry: str | None, run_id: str | None, run: Mapping[str, Any] | None) -> dict[str, Any]:
    wanted = _HEADERS if policy_entry is None else _HEADERS_WITH_POLICY
    known = {} if run_id is None or run is None else run_values(run_id, run)
    if run is not None and "previous" not in run:
        known.pop("interval_start", None)  # only the ledger knows whether there is one
    headers: dict[str, Any] = {header: known.get(name, placeholder(name)) for header, name in wanted.items()}
    headers[names.IS_CATCHUP] = value_placeholder("is_catchup") if run is None else is_catchup(run)
    headers["celery_beat_task"] = True
    if policy_entry is not None:
        headers[names.ENTRY] = placeholder("entry") if run is None else policy_entry
    return headers


def _evaluated(value: Any) -> Any:
    return value() if isinstance(value, BeatLazyFunc) else value


def _milliseconds(seconds: Any) -> int | None:
    return round(float(seconds) * 1000) if isinstance(seconds, Real) else None
