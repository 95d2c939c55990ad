"""Kinds: entries whose messages differ in nothing but task, arguments and name share one capture.

Letting Celery make a message costs as much as sending it. So the first two messages of a kind are
made by Celery; the second one is also put together from the first, and only when both are the same
to the last byte are the others put together, too. What could make two messages differ in another
way is part of the kind, and what cannot be told for certain has none: Celery makes each of those.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from celery.beat import ScheduleEntry
from kombu import serialization

from celery_catchup import badges
from celery_catchup import header_names as names
from celery_catchup.dispatch.marks import mark, sealed
from celery_catchup.dispatch.messages import makes_messages_as_celery_does
from celery_catchup.settings import MarkTasks
from celery_catchup.store import Template

_MOST = 10_000
"""Kinds that are kept; a schedule has a handful."""
_dumps: Any = serialization.dumps  # kombu's functions carry no types
_PLAIN = (str, int, float, bool, type(None))


class _NoKindError(Exception):
    """Whether two such messages differ cannot be told beforehand."""


@dataclass
class _Kind:
    """The template of an entry, with gaps where others have their own; ``None`` when it has none."""

    first: Template
    form: str | None
    tried: bool = False

    def filled(self, parts: Mapping[str, str]) -> Template | None:
        """The template of another entry."""
        return None if self.form is None else replace(self.first, message=self.form % parts)


class Kinds:
    """Templates by kind. For the entries that `is_shared` holds for, and no others."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._kinds: dict[Hashable, _Kind] = {}

    def clear(self) -> None:
        """Start anew: the broker, or how messages reach it, may be another."""
        self._kinds.clear()

    def template(
        self,
        entry: ScheduleEntry,
        *,
        policy_entry: str | None,
        badge: MarkTasks,
        make: Callable[[], Template],
    ) -> Template:
        """The template of an entry; ``make`` lets Celery make it, and raises what is wrong with it."""
        try:
            key = self._kind(entry, policy_entry, badge)
            parts = self._parts(entry, policy_entry, badge)
        except Exception:  # noqa: BLE001 - whatever it is, Celery finds it too and says it better
            return make()
        kind = self._kinds.get(key)
        if kind is not None and kind.tried and kind.form is not None:
            return replace(kind.first, message=kind.form % parts)
        template = make()
        if kind is None:
            if len(self._kinds) < _MOST:
                self._kinds[key] = _Kind(template, _form(template.message, parts))
        elif not kind.tried:
            kind.tried = True
            kind.form = kind.form if kind.filled(parts) == template else None
        return template

    def _kind(self, entry: ScheduleEntry, policy_entry: str | None, badge: MarkTasks) -> Hashable:
        """All that two messages must have in common."""
        if not makes_messages_as_celery_does(self._app, entry):
            raise _NoKindError(entry.task)
        theirs = bool(entry.kwargs and badges.KEYS & set(entry.kwargs))
        traits = _traits(self._app.tasks.get(entry.task))
        return policy_entry is None, badge, theirs, traits, self._route(entry.task), _frozen(entry.options)

    def _route(self, task: str) -> Hashable:
        for route in self._app.amqp.routes or ():
            found = route(task)
            if found is not None:
                return _frozen(found)
        return None

    def _parts(self, entry: ScheduleEntry, policy_entry: str | None, badge: MarkTasks) -> dict[str, str]:
        """What two messages of a kind differ in, as JSON, by the names of their fields."""
        task, options = self._app.tasks.get(entry.task), entry.options
        args, kwargs = list(entry.args or ()), dict(entry.kwargs or {})
        if task is not None and task.typing:
            task.__header__(*args, **kwargs)  # Celery asks whether the arguments fit
        message = self._app.amqp.create_task_message("", entry.task, args, kwargs)
        values = {
            "body": _body(message.body, options.get("serializer"), task, self._app),
            "task": entry.task,
            "argsrepr": options.get("argsrepr", message.headers["argsrepr"]),
            "kwargsrepr": options.get("kwargsrepr", message.headers["kwargsrepr"]),
        }
        theirs = "kwargsrepr" in options or badges.KEYS & set(kwargs)
        if badge in (MarkTasks.KWARGS, MarkTasks.BOTH) and not theirs:
            values["kwargsrepr"] = badges.badged_kwargs(values["kwargsrepr"], mark("scheduled_time"))
        if badge in (MarkTasks.NAME, MarkTasks.BOTH) and options.get("shadow") is None:
            values["shadow"] = badges.badged_name(entry.task)
        if policy_entry is not None:
            values[names.ENTRY] = policy_entry
        return {name: sealed(value) for name, value in values.items()}


def _traits(task: Any) -> Hashable:
    """What the task itself adds to a message; None for a task that beat does not know."""
    if task is None:
        return None
    if getattr(task, "_dump_pydantic_arguments", None) is not None or task.__v2_compat__:
        raise _NoKindError(task.name)
    return _frozen(task._get_exec_options()), _frozen(task.ignore_result), task.typing


def _frozen(value: Any) -> Hashable:
    """A value to compare by; kinds are told apart by type, too, for 1 is True and 1.0."""
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if kind is dict:
        return kind, tuple([(key, _frozen(one)) for key, one in value.items()])
    if kind in (list, tuple):
        return kind, tuple([_frozen(one) for one in value])
    raise _NoKindError(kind.__name__)


def _body(body: Any, serializer: str | None, task: Any, app: Any) -> str:
    chosen = serializer or getattr(task, "serializer", None) or app.conf.task_serializer
    _, encoding, data = _dumps(body, serializer=chosen)
    if isinstance(data, str):
        data = data.encode("utf-8" if encoding in (None, "", "binary") else encoding)
    return b64encode(data).decode("ascii")


def _form(message: str, parts: Mapping[str, str]) -> str | None:
    """The message as a format, with a gap for each part; None when one of them is not found, once."""
    form = message.replace("%", "%%")
    for name, text in parts.items():
        found = f'"{name}": {text}'.replace("%", "%%")
        if form.count(found) != 1:
            return None
        form = form.replace(found, f'"{name}": %({name})s')
    return form
