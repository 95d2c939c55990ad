"""Templates of entries: made from a message that Celery built, or from the template of a similar entry.

To let Celery build a message costs as much as to send it. Entries that differ in task and arguments only
share the message of one template, and each has its own inputs. Celery builds the first two of them: only
when the first message with the second's inputs equals the second are the others put together, too. What
could make two messages differ in another way is part of the key; where that cannot be known, Celery builds
each message.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from celery.beat import ScheduleEntry
from kombu import serialization

from celery_catchup.config.settings import MarkTasks
from celery_catchup.dispatch.capture import base64_body
from celery_catchup.dispatch.captured_message import split_inputs
from celery_catchup.dispatch.celery_internals import can_share_template, is_hooked, message_options
from celery_catchup.store import Template

_MOST = 200_000
"""Cached templates; beyond, the cache starts again."""
_INPUT_HEADERS = {"task", "argsrepr", "kwargsrepr"}
_dumps: Any = serialization.dumps  # kombu's functions carry no types


class _UnknownContentError(Exception):
    """Two such values cannot be compared by what they look like in a message."""


@dataclass
class _Similar:
    """The first template of similar entries; ``proven`` once it was compared with the second."""

    first: Template
    proven: bool | None = None


class Templates:
    """Cache templates by the content of entries: an entry that has changed gets another one."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._cached: dict[Hashable, tuple[Any, Template]] = {}
        """Task and template by the content of the entry."""
        self._compared: dict[Hashable, tuple[Any, Any, Template]] = {}
        """The same of entries whose content cannot be a key: a copy of it is compared."""
        self._similar: dict[Hashable, _Similar] = {}

    def clear(self) -> None:
        """Forget all: the broker, or how messages reach it, may have changed."""
        self._cached.clear()
        self._compared.clear()
        self._similar.clear()

    def shared(
        self,
        entry: ScheduleEntry,
        *,
        named: bool,
        badge: MarkTasks,
        make: Callable[[], Template],
    ) -> Template | None:
        """Return the template of all runs of an entry; None when each run needs its own.

        ``make`` lets Celery build the message, and raises what is wrong with it. ``named``: the message has
        the entry's name.
        """
        task = self._app.tasks.get(entry.task)
        try:
            content = _content((entry.task, entry.args, entry.kwargs, entry.options))
        except (_UnknownContentError, RecursionError):
            return self._compare(entry, task, (entry.name, named, badge), make)
        key = id(task), named, badge, content  # a task need not be hashable
        cached, template = self._cached.get(key, (None, None))
        if template is not None and cached is task:
            return None if is_hooked(self._app, task) else template
        if not can_share_template(self._app, entry):
            return None
        if len(self._cached) >= _MOST:
            self.clear()
        template = self._made(entry, task, named=named, badge=badge, make=make)
        self._cached[key] = task, template
        return template

    def _compare(
        self, entry: ScheduleEntry, task: Any, key: Hashable, make: Callable[[], Template]
    ) -> Template | None:
        """Return the template of an entry with other objects in its arguments: signatures, queues, enums."""
        content = entry.task, entry.args, entry.kwargs, entry.options
        cached, copied, template = self._compared.get(key, (None, None, None))
        if template is not None and cached is task and _equal(copied, (content, repr(content))):
            return None if is_hooked(self._app, task) else template
        if not can_share_template(self._app, entry):
            return None
        template = make()
        with suppress(Exception):  # what cannot be copied is built each time
            # The text tells 1 from True, which are equal, but not in a message.
            self._compared[key] = task, (deepcopy(content), repr(content)), template
        return template

    def _made(
        self,
        entry: ScheduleEntry,
        task: Any,
        *,
        named: bool,
        badge: MarkTasks,
        make: Callable[[], Template],
    ) -> Template:
        try:
            fixed, inputs = split_inputs(entry, self._fields(entry, task), badge)
            key = named, badge, _content((fixed, entry.options, message_options(task), self._route(entry)))
        except Exception:  # noqa: BLE001 - Celery raises it as well, and explains it better
            return make()
        similar = self._similar.get(key)
        if similar is not None and similar.proven:
            return replace(similar.first, inputs=inputs)
        template = make()
        if similar is None:
            usual = template.inputs == inputs and not _INPUT_HEADERS & set(entry.options.get("headers") or ())
            self._similar[key] = _Similar(template, None if usual else False)
        elif similar.proven is None:
            similar.proven = replace(similar.first, inputs=inputs) == template
        return template

    def _fields(self, entry: ScheduleEntry, task: Any) -> dict[str, Any]:
        """Let Celery represent and serialise the arguments, without a message around them."""
        options, args, kwargs = entry.options, list(entry.args or ()), dict(entry.kwargs or {})
        if message_options(task) is None:
            raise _UnknownContentError(entry.task)
        if task is not None and task.typing:
            task.__header__(*args, **kwargs)  # raises when the arguments do not fit
        shown = {name: options.get(name) for name in ("argsrepr", "kwargsrepr")}
        message = self._app.amqp.create_task_message("", entry.task, args, kwargs, **shown)
        serializer = options.get("serializer") or getattr(task, "serializer", None)
        _, encoding, body = _dumps(message.body, serializer=serializer or self._app.conf.task_serializer)
        return {
            "task": entry.task,
            "argsrepr": message.headers["argsrepr"],
            "kwargsrepr": message.headers["kwargsrepr"],
            "body": base64_body(body, encoding),
        }

    def _route(self, entry: ScheduleEntry) -> Any:
        found = (route(entry.task) for route in self._app.amqp.routes or ())
        return next((route for route in found if route is not None), None)


def _equal(one: Any, other: Any) -> bool:
    """Compare content that may have comparisons of its own; when in doubt, it differs."""
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - code of the user's
        return False


def _content(value: Any) -> Hashable:
    """Make a value comparable: equal ones look the same in a message. 1, True and 1.0 do not."""
    kind = type(value)
    if kind in (str, int, bool, type(None)):
        return kind, value
    if kind in (float, datetime, date, timedelta, Decimal, UUID):
        return kind, repr(value)
    if kind is dict:
        return kind, tuple([(_content(key), _content(one)) for key, one in value.items()])
    if kind in (list, tuple):
        return kind, tuple([_content(one) for one in value])
    raise _UnknownContentError(kind.__name__)
