"""Detect code between an entry and its message: hooks, routers, patched or replaced functions of Celery.

The only file of dispatch that uses private names of Celery:

- ``Signal.receivers``: whether a signal has receivers of the user's;
- ``Task._get_exec_options``, ``Task.__v2_compat__``, ``Task._dump_pydantic_arguments``: what a task adds
  to its messages. Where one is missing or is not Celery's own, Celery builds every message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
from kombu.messaging import Producer

from celery_catchup.config.configuration import RESERVED_OPTIONS
from celery_catchup.dispatch.badges import RECEIVER
from celery_catchup.dispatch.capture import is_deterministic

_SIGNALS = (signals.before_task_publish, signals.after_task_publish, signals.task_sent)


def can_share_template(app: Any, entry: ScheduleEntry) -> bool:
    """Tell whether all runs of the entry can be sent from one template.

    They cannot when code of the user's sees each message and may change it (hooks, routers, a task's own
    ``apply_async``, a serializer), when arguments are computed for each run, nor when only sending shows
    what is sent. In doubt Celery builds each message.
    """
    task = app.tasks.get(entry.task)
    arguments = [*(entry.args or ()), *(entry.kwargs or {}).values()]
    return not (
        app.conf.task_protocol == 1
        or app.conf.task_always_eager
        or any(name in entry.options for name in RESERVED_OPTIONS)
        or is_hooked(app, task)
        or not _builds_as_celery_does(app, task)
        or any(isinstance(value, BeatLazyFunc) for value in arguments)
        or _counts_from_a_moment(entry, task)
        or not is_deterministic(*(_chosen(app, entry, task, name) for name in ("serializer", "compression")))
    )


def is_hooked(app: Any, task: Any) -> bool:
    """Tell whether code of the user's sees each message of the task. Asked at each run."""
    for signal in _SIGNALS:
        if signal.receivers and any(map(_is_users, signal.receivers)):
            return True
    routes = app.amqp.routes
    if routes and any(type(route) is not MapRoute for route in routes):
        return True
    return _sends_by_itself(app, task)


def expires_option(entry: ScheduleEntry, task: Any) -> Any:
    """Return the entry's ``expires``, else the task's; an explicit None of the entry's is none."""
    return entry.options["expires"] if "expires" in entry.options else getattr(task, "expires", None)


def message_options(task: Any) -> tuple[Any, ...] | None:
    """Return what the task itself adds to a message; None for a task that rewrites its arguments."""
    if task is None:
        return ()
    if getattr(task, "_dump_pydantic_arguments", None) is not None or task.__v2_compat__:
        return None
    return task._get_exec_options(), task.ignore_result, task.typing


@contextmanager
def counted_publications() -> Iterator[list[str]]:
    """Collect the ids of all tasks that Celery publishes meanwhile, by whichever producer."""
    published: list[str] = []

    def note(headers: Mapping[str, Any] | None = None, body: Any = None, **_: Any) -> None:
        published.append(str((headers or {}).get("id")))

    signals.after_task_publish.connect(note, weak=False, dispatch_uid=RECEIVER)
    try:
        yield published
    finally:
        signals.after_task_publish.disconnect(dispatch_uid=RECEIVER)


def is_original(function: Any, module: ModuleType) -> bool:
    """Tell whether a function or method is the module's own, and not a wrapper around it.

    A wrapper of wrapt, which most tracing libraries use, shows the code of what it wraps; so the
    type counts, too.
    """
    if type(function) is MethodType:
        function = function.__func__
    return type(function) is FunctionType and function.__code__.co_filename == module.__file__


def _is_users(receiver: Any) -> bool:
    (identity, _), *_ = receiver
    return bool(identity != RECEIVER)


def _counts_from_a_moment(entry: ScheduleEntry, task: Any) -> bool:
    """Tell whether Celery computes the distance to a fixed moment, which differs each time."""
    expires = expires_option(entry, task)
    return bool(entry.options.get("eta")) or not (expires is None or isinstance(expires, Real))


def _chosen(app: Any, entry: ScheduleEntry, task: Any, name: str) -> Any:
    """Return the option as Celery chooses it: the entry's, else the task's, else the app's."""
    return entry.options.get(name) or getattr(task, name, None) or app.conf[f"task_{name}"]


def _sends_by_itself(app: Any, task: Any) -> bool:
    """Tell whether the task or the app sends in another way than Celery's: a class of the user's, or a
    library that has wrapped it."""
    if not is_original(app.send_task, celery.app.base):
        return True
    return task is not None and not (
        is_original(task.apply_async, celery.app.task) and is_original(task.shadow_name, celery.app.task)
    )


def _builds_as_celery_does(app: Any, task: Any) -> bool:
    """Tell whether Celery's message-building functions are not patched; asked once, because this is set up
    when a program starts."""
    amqp = app.amqp
    return (
        type(amqp) is AMQP
        and type(amqp.router) is Router
        and is_original(amqp.create_task_message, celery.app.amqp)
        and is_original(amqp.send_task_message, celery.app.amqp)
        and is_original(Producer.publish, kombu.messaging)
        and (task is None or is_original(task._get_exec_options, celery.app.task))
    )
