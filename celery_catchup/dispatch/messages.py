"""From an entry of the schedule to Celery's own call, with what beat and this package add to it."""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from types import FunctionType, MethodType, ModuleType
from typing import Any

import celery.app.amqp
import celery.app.base
import celery.app.task
import kombu.messaging
from celery import signals
from celery.app.amqp import AMQP
from celery.app.routes import MapRoute, Router
from celery.beat import BeatLazyFunc, ScheduleEntry
from celery.utils.nodenames import anon_nodename
from kombu.messaging import Producer

from celery_catchup.config.settings import MarkTasks
from celery_catchup.dispatch import badges
from celery_catchup.dispatch import header_names as names
from celery_catchup.dispatch.capture import encodes_alike
from celery_catchup.dispatch.failures import DispatchError
from celery_catchup.dispatch.placeholders import mark, seal, value_mark, with_marks
from celery_catchup.error_text import shown
from celery_catchup.store.rendering import facts, is_catchup

_SENDER = "celery-catchup"
# header -> mark
_TOLD = {names.SCHEDULED_TIME: "scheduled_time", names.TRIGGER_TYPE: "trigger_type"}
_TOLD_WITH_POLICY = {
    names.RUN_ID: "run_id",
    names.DATA_INTERVAL_START: "interval_start",
    names.DATA_INTERVAL_END: "interval_end",
}

_OF_A_RUN = frozenset({*_TOLD_WITH_POLICY, names.ENTRY})


class _NoEvents:
    """An event dispatcher that says nothing: a message that was caught has not been sent; `SentEvents`
    announces it when it has."""

    def publish(self, *_: Any, **__: Any) -> None:
        """Keep quiet."""


@dataclass(frozen=True)
class Message:
    """One call of ``apply_async`` (``send_task``, for a task that beat does not know), and the
    marks that belong into what it sends.

    With a run the call is made with that run's own values, for hooks and routers to see;
    without one its headers are marks.
    """

    app: Any
    entry: ScheduleEntry
    task: Any
    task_id: str
    headers: Mapping[str, Any]
    expires_ms: int | None
    countdown_ms: int | None

    def send(self, producer: Any) -> Any:
        """Call Celery; the result is Celery's. Lazy arguments are evaluated now."""
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
            # Celery prepares the result backend for somebody who waits; nobody does, and a Redis
            # backend would keep one subscription for each message. The header is set right below.
            "ignore_result": True,
        }
        if self.app.conf.task_always_eager:
            del overrides["ignore_result"]
        if self.app.conf.task_send_sent_event:
            overrides["event_dispatcher"] = _NoEvents()
        return overrides

    def template_text(self, text: str, *, badge: MarkTasks = MarkTasks.NONE) -> str:
        """What was sent, as JSON, with marks for all that differs between two runs or sendings.

        ``badge`` is where it shows a catch-up run.
        """
        tree = json.loads(text)
        if "id" not in tree["headers"]:
            raise DispatchError(
                "invalid", "task_protocol 1 keeps the task's id inside the body; set task_protocol to 2"
            )
        headers = with_marks(tree["headers"], self.task_id, mark("task_id")) | self._corrections()
        if headers["ignore_result"] is True:  # unless a hook has changed it
            headers["ignore_result"] = self._ignore_result()
        headers |= self._badges(headers, badge)
        properties = with_marks(tree["properties"], self.task_id, mark("task_id"))
        if "delivery_tag" in properties:
            properties["delivery_tag"] = mark("delivery_tag")
        headers |= self._steady(headers, "origin", anon_nodename(), f"{_SENDER}@{self.app.main}")
        nobody = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{_SENDER}@{self.app.main}"))
        properties |= self._steady(properties, "reply_to", self.app.thread_oid, nobody)
        return seal({**tree, "headers": headers, "properties": properties})

    def _steady(self, fields: Mapping[str, Any], name: str, ours: str, steady: str) -> dict[str, Any]:
        """One value for all processes of the app in place of this process's own: else every start of a beat
        would make new templates. What the user has set stays."""
        return {name: steady} if fields.get(name) == ours and name not in self.entry.options else {}

    def _corrections(self) -> dict[str, Any]:
        options = self.entry.options
        # Sent from within a task, a run is still nobody's child.
        corrections = {
            "root_id": options.get("root_id") or mark("task_id"),
            "parent_id": options.get("parent_id"),
        }
        if self.expires_ms is not None:
            corrections["expires"] = mark("expires")
        if self.countdown_ms is not None:
            corrections["eta"] = mark("eta")
        if names.RUN_ID in self.headers:
            corrections[names.RUN_ID] = mark("run_id")
        return corrections

    def _badges(self, headers: Mapping[str, Any], badge: MarkTasks) -> dict[str, Any]:
        """What shows a catch-up run in lists of tasks; what the user has set stays."""
        found: dict[str, Any] = {}
        if badge in (MarkTasks.NAME, MarkTasks.BOTH) and headers.get("shadow") is None:
            found["shadow"] = badges.badged_name(self.entry.task)
        shown_kwargs, own = headers.get("kwargsrepr"), "kwargsrepr" in self.entry.options
        theirs = own or badges.KEYS & set(self.entry.kwargs or ())
        if badge in (MarkTasks.KWARGS, MarkTasks.BOTH) and isinstance(shown_kwargs, str) and not theirs:
            found["kwargsrepr"] = badges.badged_kwargs(shown_kwargs, mark("scheduled_time"))
        return found

    def unfollowed(self, publication: Mapping[str, Any]) -> dict[str, Any]:
        """One of several messages that were sent for a run, as Celery has built it: no worker can claim the
        run by it."""
        headers = {k: v for k, v in publication["headers"].items() if k not in _OF_A_RUN}
        if headers.get("ignore_result") is True:
            headers["ignore_result"] = self._ignore_result()
        return {**publication, "headers": headers}

    def _ignore_result(self) -> Any:
        given = self.entry.options
        if "ignore_result" in given or self.task is None:
            return given.get("ignore_result")
        return self.task.ignore_result


def message_of(
    app: Any,
    entry: ScheduleEntry,
    *,
    policy_entry: str | None,
    run_id: str | None = None,
    run: Mapping[str, Any] | None = None,
) -> Message:
    """The call for an entry; for one run of it when that is given."""
    if policy_entry is not None:
        _check(app, entry)
    task = app.tasks.get(entry.task)
    return Message(
        app=app,
        entry=entry,
        task=task,
        task_id=run_id or str(uuid.uuid4()),
        headers=_headers(policy_entry, run_id, run),
        expires_ms=_milliseconds(_expires(entry, task)),
        countdown_ms=_milliseconds(entry.options.get("countdown") or None),
    )


def is_shared(app: Any, entry: ScheduleEntry) -> bool:
    """Whether all runs of the entry can be sent from one template.

    Not so when code of the user's sees each message and may make it another one: hooks,
    routers, a task's own ``apply_async``, a serializer; nor when arguments are made anew for each run.
    When in doubt Celery builds each message.
    """
    task = app.tasks.get(entry.task)
    return not (
        is_watched(app, task)
        or not _builds_as_celery_does(app, task)
        or any(isinstance(value, BeatLazyFunc) for value in _arguments(entry))
        or _counts_from_a_moment(entry, task)
        or not encodes_alike(*(_chosen(app, entry, task, name) for name in ("serializer", "compression")))
    )


def sends_its_own_way(app: Any, entry: ScheduleEntry) -> bool:
    """Whether what an entry without a policy sends is known only when it was sent: one message under our id,
    or something else."""
    return (
        app.conf.task_protocol == 1
        or app.conf.task_always_eager
        or any(name in entry.options for name in names.RESERVED_OPTIONS)
        or _has_its_own_way(app, app.tasks.get(entry.task))
    )


@contextmanager
def counted_publications() -> Iterator[list[str]]:
    """The ids of all tasks that Celery publishes meanwhile, by whichever producer."""
    published: list[str] = []

    def note(headers: Mapping[str, Any] | None = None, body: Any = None, **_: Any) -> None:
        published.append(str((headers or {}).get("id")))

    signals.after_task_publish.connect(note, weak=False, dispatch_uid=badges.RECEIVER)
    try:
        yield published
    finally:
        signals.after_task_publish.disconnect(dispatch_uid=badges.RECEIVER)


def is_watched(app: Any, task: Any) -> bool:
    """Whether code of the user's sees each message of the task on its way. It is asked at each run."""
    for signal in _SIGNALS:
        if any(map(_is_theirs, signal.receivers)):
            return True
    routes = app.amqp.routes
    if routes and any(type(route) is not MapRoute for route in routes):
        return True
    return _has_its_own_way(app, task)


_SIGNALS = (signals.before_task_publish, signals.after_task_publish, signals.task_sent)


def _is_theirs(receiver: Any) -> bool:
    """Whether a receiver, as a signal keeps it, is of the user's."""
    (identity, _), *_ = receiver
    return bool(identity != badges.RECEIVER)


def _check(app: Any, entry: ScheduleEntry) -> None:
    for name in names.RESERVED_OPTIONS:
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
    told = _TOLD if policy_entry is None else {**_TOLD, **_TOLD_WITH_POLICY}
    known = {} if run_id is None or run is None else facts(run_id, run)
    if run is not None and "previous" not in run:
        known.pop("interval_start", None)  # whether there is one, the ledger knows
    headers: dict[str, Any] = {header: known.get(name, mark(name)) for header, name in told.items()}
    headers[names.IS_CATCHUP] = value_mark("is_catchup") if run is None else is_catchup(run)
    headers["celery_beat_task"] = True
    if policy_entry is not None:
        headers[names.ENTRY] = mark("entry") if run is None else policy_entry
    return headers


def _arguments(entry: ScheduleEntry) -> list[Any]:
    return [*(entry.args or ()), *(entry.kwargs or {}).values()]


def _evaluated(value: Any) -> Any:
    return value() if isinstance(value, BeatLazyFunc) else value


def _expires(entry: ScheduleEntry, task: Any) -> Any:
    """The entry's, else the task's own; an explicit None of the entry's is none."""
    return entry.options["expires"] if "expires" in entry.options else getattr(task, "expires", None)


def _milliseconds(seconds: Any) -> int | None:
    return round(float(seconds) * 1000) if isinstance(seconds, Real) else None


def _counts_from_a_moment(entry: ScheduleEntry, task: Any) -> bool:
    """Whether Celery computes the distance to a fixed moment, which is another one each time."""
    expires = _expires(entry, task)
    return bool(entry.options.get("eta")) or not (expires is None or isinstance(expires, Real))


def _chosen(app: Any, entry: ScheduleEntry, task: Any, name: str) -> Any:
    """The option as Celery chooses it: the entry's, else the task's, else the app's."""
    return entry.options.get(name) or getattr(task, name, None) or app.conf[f"task_{name}"]


def _has_its_own_way(app: Any, task: Any) -> bool:
    """Whether the task or the app sends in another way than Celery's: a class of the user's, or a
    library that has wrapped it."""
    if not is_original(app.send_task, celery.app.base):
        return True
    return task is not None and not (
        is_original(task.apply_async, celery.app.task) and is_original(task.shadow_name, celery.app.task)
    )


def _builds_as_celery_does(app: Any, task: Any) -> bool:
    """Whether no class of the user's, and no library, has replaced what builds messages; these things
    are set when a program starts, so that they are asked for once."""
    amqp = app.amqp
    return (
        type(amqp) is AMQP
        and type(amqp.router) is Router
        and is_original(amqp.create_task_message, celery.app.amqp)
        and is_original(amqp.send_task_message, celery.app.amqp)
        and is_original(Producer.publish, kombu.messaging)
        and (task is None or is_original(task._get_exec_options, celery.app.task))
    )


def is_original(function: Any, module: ModuleType) -> bool:
    """Whether a function or method is the module's own, and not a wrapper around it.

    A wrapper of wrapt, which most tracing libraries use, shows the code of what it wraps; so the
    type counts, too.
    """
    if type(function) is MethodType:
        function = function.__func__
    return type(function) is FunctionType and function.__code__.co_filename == module.__file__
