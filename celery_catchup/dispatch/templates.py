"""Templates of entries: made from a message that Celery built, or from the template of a similar entry.

To let Celery build a message costs as much as to send it. Entries that differ in task and arguments only
share the message of one template, and each has its own inputs. Celery builds the first two of them: only
when the first message with the second's inputs equals the second are the others put together, too. What
could make two messages differ in another way is part of the key; where that cannot be known, Celery builds
each message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
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
_encode = json.JSONEncoder().encode
_EMBEDDED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
"""The end of a message's body; where Celery's differs, no two messages are similar."""
_SCALARS = frozenset({str, int, bool, float, type(None)})
_OTHERS = frozenset({datetime, date, timedelta, Decimal, UUID})


class _UnknownContentError(Exception):
    """Two such values cannot be compared by what they look like in a message."""


@dataclass
class _Similar:
    """The base of similar entries' templates; ``proven`` once it was compared with the second of them."""

    base: Template | None = None
    proven: bool | None = None


@dataclass
class _Form:
    """The common part of entries of one task with the same options. ``key`` is equal for tasks with
    similar messages, None if Celery has to build each of them."""

    task: Any
    serializer: str
    argsrepr_maxsize: int
    kwargsrepr_maxsize: int
    key: Hashable = None


class Templates:
    """Cache templates by the content of entries: an entry that has changed gets another one."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._cached: dict[Hashable, tuple[Any, Template]] = {}
        """Task and template by the content of the entry."""
        self._compared: dict[Hashable, tuple[Any, Any, Template]] = {}
        """The same of entries whose content cannot be a key: a copy of it is compared."""
        self._forms: dict[Hashable, _Form] = {}
        self._similar: dict[Hashable, _Similar] = {}

    def clear(self) -> None:
        """Forget all: the broker, or how messages reach it, may have changed."""
        for cache in (self._cached, self._compared, self._forms, self._similar):
            cache.clear()

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
            content = _content((entry.args, entry.kwargs))
            kind = id(task), entry.task, named, badge, _content(entry.options)  # a task need not be hashable
        except (_UnknownContentError, RecursionError):
            return self._compare(entry, task, (entry.name, named, badge), make)
        key = kind, content
        cached, template = self._cached.get(key, (None, None))
        if template is not None and cached is task:
            return None if is_hooked(self._app, task) else template
        form = self._form(entry, task, kind)
        if form is None or is_hooked(self._app, task):
            return None
        if len(self._cached) >= _MOST:
            self.clear()
        template = self._made(entry, form, badge=badge, make=make)
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

    def _form(self, entry: ScheduleEntry, task: Any, kind: tuple[Hashable, ...]) -> _Form | None:
        """Return what the entry has in common with others of its ``kind``; None when each run needs its own
        message."""
        form = self._forms.get(kind)
        if form is None or form.task is not task:
            if not can_share_template(self._app, entry):
                return None
            serializer = entry.options.get("serializer") or getattr(task, "serializer", None)
            amqp = self._app.amqp
            form = _Form(
                task,
                serializer or self._app.conf.task_serializer,
                amqp.argsrepr_maxsize,
                amqp.kwargsrepr_maxsize,
            )
            with suppress(Exception):  # Celery raises it as well, and explains it better
                added = message_options(task)
                if added is not None:
                    form.key = kind[2:], _content((added, self._route(entry)))
            self._forms[kind] = form
        return form

    def _made(
        self, entry: ScheduleEntry, form: _Form, *, badge: MarkTasks, make: Callable[[], Template]
    ) -> Template:
        if form.key is None:
            return make()
        try:
            fixed, inputs = split_inputs(entry, self._fields(entry, form), badge)
        except Exception:  # noqa: BLE001 - Celery raises it as well, and explains it better
            return make()
        place = form.key, *fixed.values()
        similar = self._similar.get(place)
        if similar is None:
            similar = self._similar[place] = _Similar()
        if similar.proven and similar.base is not None:
            return similar.base.with_inputs(inputs)
        template = make()
        if similar.base is None:
            usual = template.inputs == inputs and not _INPUT_HEADERS & set(entry.options.get("headers") or ())
            similar.base, similar.proven = template.base, None if usual else False
        elif similar.proven is None:
            similar.proven = similar.base.with_inputs(inputs) == template
        return template

    def _fields(self, entry: ScheduleEntry, form: _Form) -> dict[str, Any]:
        """Represent and serialise the arguments as Celery does, without a message around them."""
        options, kwargs = entry.options, dict(entry.kwargs or {})
        args = list(entry.args or ()) or ()  # Celery sends no arguments as a tuple
        if form.task is not None and form.task.typing:
            form.task.__header__(*args, **kwargs)  # raises when the arguments do not fit
        plain = _SCALARS.issuperset(map(type, (*args, *kwargs, *kwargs.values())))
        argsrepr, kwargsrepr = options.get("argsrepr"), options.get("kwargsrepr")
        if argsrepr is None and plain:
            argsrepr = _shown(args, form.argsrepr_maxsize)
        if kwargsrepr is None and plain:
            kwargsrepr = _shown(kwargs, form.kwargsrepr_maxsize)
        if argsrepr is None or kwargsrepr is None:
            shown = {"argsrepr": argsrepr, "kwargsrepr": kwargsrepr}
            headers = self._app.amqp.create_task_message("", entry.task, args, kwargs, **shown).headers
            argsrepr, kwargsrepr = headers["argsrepr"], headers["kwargsrepr"]
        body = _body(args, kwargs, form.serializer, plain=plain)
        return {"task": entry.task, "argsrepr": argsrepr, "kwargsrepr": kwargsrepr, "body": body}

    def _route(self, entry: ScheduleEntry) -> Any:
        found = (route(entry.task) for route in self._app.amqp.routes or ())
        return next((route for route in found if route is not None), None)


def _body(args: Any, kwargs: dict[str, Any], serializer: str, *, plain: bool) -> str:
    """Serialise arguments as kombu does; plain ones in a third of the time, because kombu creates an encoder
    for each call."""
    if serializer == "json" and plain:
        return base64_body(_encode((args, kwargs, _EMBEDDED)), "utf-8")
    _, encoding, body = _dumps((args, kwargs, _EMBEDDED), serializer=serializer)
    return base64_body(body, encoding)


def _shown(arguments: Any, most: int) -> str | None:
    """Represent plain arguments that Celery represents as Python does, which is much faster; None for others.

    Celery does not escape texts, and cuts off long ones.
    """
    text = repr(arguments)
    return text if len(text) < most and "\\" not in text and '"' not in text else None


def _equal(one: Any, other: Any) -> bool:
    """Compare content that may have comparisons of its own; when in doubt, it differs."""
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - code of the user's
        return False


def _content(value: Any) -> str:
    """Make a value comparable: equal ones look the same in a message. 1, True and 1.0 do not."""
    if not _is_comparable(value):
        raise _UnknownContentError(type(value).__name__)
    return repr(value)


def _is_comparable(value: Any) -> bool:
    """Tell whether the text of a value says everything that a message can have of it."""
    kind = type(value)
    if kind is dict:
        return _are_comparable((*value, *value.values()))
    if kind in (list, tuple):
        return _are_comparable(value)
    return kind in _SCALARS or kind in _OTHERS


def _are_comparable(values: Iterable[Any]) -> bool:
    return _SCALARS.issuperset(map(type, values)) or all(map(_is_comparable, values))
