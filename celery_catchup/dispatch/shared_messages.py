"""Kinds: entries whose messages differ in nothing but task and arguments share one capture.

Letting Celery make a message costs as much as sending it. So the first two messages of a kind are
made by Celery; the second one is also put together from the first, and only when both are the same
to the last byte are the others put together, too. What could make two messages differ in another
way is part of the kind, and what cannot be told for certain has none: Celery makes each of those.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from celery.beat import ScheduleEntry
from kombu import serialization

from celery_catchup.config.settings import MarkTasks
from celery_catchup.dispatch import badges
from celery_catchup.dispatch.placeholders import mark, sealed
from celery_catchup.store import Template
from celery_catchup.store.batches import SharedTemplate
from celery_catchup.store.rendering import Form, Shared, form_of

_MOST = 10_000
"""Kinds that are kept, and templates of each; a schedule has a handful."""
_dumps: Any = serialization.dumps  # kombu's functions carry no types
_MARK = "@catchup:scheduled_time@"
_PLAIN = (str, int, float, bool, type(None))


class _NoKindError(Exception):
    """Whether two such messages differ cannot be told beforehand."""


@dataclass
class _Kind:
    """The template of an entry, with gaps where others have their own."""

    first: Template
    form: Form | None
    tried: bool = False
    known: dict[tuple[str, ...], Template] = field(default_factory=dict)

    def filled(self, parts: Mapping[str, str]) -> Template | None:
        """The template of another entry, the same for all with these parts; None when it cannot be
        put together."""
        if self.form is None:
            return None
        key = tuple(parts.values())
        found = self.known.get(key)
        if found is None:
            found = SharedTemplate(Shared(self.form, parts), self.first)
            if len(self.known) < _MOST:
                self.known[key] = found
        return found


class _Common(NamedTuple):
    """What an entry's message is made of: the key of its kind; its parts as JSON, by the names of their
    fields; and how those fields begin in all of the kind, up to the last mark inside."""

    key: Hashable
    parts: Mapping[str, str]
    begins: tuple[tuple[str, str], ...]


class Kinds:
    """Templates by kind. For the entries that `is_shared` holds for, and no others."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._kinds: dict[Hashable, _Kind] = {}
        self._traits: dict[str, Hashable] = {}
        self._without_arguments: dict[str | None, _Arguments] = {}
        self._bare: dict[Hashable, _Common] = {}

    def clear(self) -> None:
        """Start anew: the broker, or how messages reach it, may be another."""
        self._kinds.clear()
        self._traits.clear()
        self._without_arguments.clear()
        self._bare.clear()

    def template(
        self,
        entry: ScheduleEntry,
        *,
        named: bool,
        badge: MarkTasks,
        make: Callable[[], Template],
    ) -> Template:
        """The template of an entry; ``make`` lets Celery make it, and raises what is wrong with it.
        ``named``: the message tells the entry's name."""
        try:
            common = self._common_of(entry, badge, named=named)
        except Exception:  # noqa: BLE001 - whatever it is, Celery finds it too and says it better
            return make()
        kind = self._kinds.get(common.key)
        if kind is not None and kind.tried:
            return kind.filled(common.parts) or make()
        template = make()
        if kind is not None:
            filled = kind.filled(common.parts)
            kind.tried = True
            kind.form = kind.form if filled and filled.encoded() == template.encoded() else None
        elif len(self._kinds) < _MOST:
            self._kinds[common.key] = _Kind(template, _form(template.message, common))
        return template

    def _common_of(self, entry: ScheduleEntry, badge: MarkTasks, *, named: bool) -> _Common:
        """Of entries with a task and nothing else it is found once for each task."""
        if entry.args or entry.kwargs or entry.options:
            return self._common(entry, badge, named=named)
        known = (entry.task, self._app.tasks.get(entry.task), badge, named)
        if known not in self._bare:
            self._bare[known] = self._common(entry, badge, named=named)
        return self._bare[known]

    def _common(self, entry: ScheduleEntry, badge: MarkTasks, *, named: bool) -> _Common:
        parts, begins = self._parts(entry, badge)
        key = (begins, badge, named, self._traits_of(entry), _frozen(entry.options))
        return _Common(key, parts, begins)

    def _traits_of(self, entry: ScheduleEntry) -> Hashable:
        """What the task, and its name, add to a message."""
        name = entry.task
        if name not in self._traits:
            self._traits[name] = (_traits(self._app.tasks.get(name)), self._route(name))
        return self._traits[name]

    def _route(self, task: str) -> Hashable:
        for route in self._app.amqp.routes or ():
            found = route(task)
            if found is not None:
                return _frozen(found)
        return None

    def _parts(
        self, entry: ScheduleEntry, badge: MarkTasks
    ) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
        """What two messages of a kind differ in, and how those fields begin."""
        options, given = entry.options, self._arguments(entry)
        shown_kwargs = options.get("kwargsrepr", given.kwargsrepr)
        theirs = "kwargsrepr" in options or (entry.kwargs and badges.KEYS & set(entry.kwargs))
        if badge in (MarkTasks.KWARGS, MarkTasks.BOTH) and not theirs:
            shown_kwargs = badges.badged_kwargs(shown_kwargs, mark("scheduled_time"))
        values = {
            "task": entry.task,
            "argsrepr": options.get("argsrepr", given.argsrepr),
            "kwargsrepr": shown_kwargs,
        }
        if badge in (MarkTasks.NAME, MarkTasks.BOTH) and options.get("shadow") is None:
            values["shadow"] = badges.badged_name(entry.task)
        parts, common = {"body": f'"{given.body}"'}, [("body", "")]
        for name, value in values.items():
            text = sealed(value)
            cut = text.rfind(_MARK) + len(_MARK) if _MARK in text else 0
            parts[name] = text[cut:]
            common.append((name, text[:cut]))
        return parts, tuple(common)

    def _arguments(self, entry: ScheduleEntry) -> _Arguments:
        """Celery's own account of them; most entries have none."""
        task, serializer = self._app.tasks.get(entry.task), entry.options.get("serializer")
        args, kwargs = list(entry.args or ()), dict(entry.kwargs or {})
        if task is not None and task.typing:
            task.__header__(*args, **kwargs)  # Celery asks whether the arguments fit
        chosen = serializer or getattr(task, "serializer", None)
        known = None if args or kwargs else self._without_arguments.get(chosen)
        if known is None:
            message = self._app.amqp.create_task_message("", entry.task, args, kwargs)
            headers, body = message.headers, _body(message.body, chosen or self._app.conf.task_serializer)
            known = _Arguments(body, headers["argsrepr"], headers["kwargsrepr"])
            if not (args or kwargs):
                self._without_arguments[chosen] = known
        return known


class _Arguments(NamedTuple):
    """A task's arguments as a message has them."""

    body: str
    argsrepr: str
    kwargsrepr: str


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


def _body(body: Any, serializer: str) -> str:
    _, encoding, data = _dumps(body, serializer=serializer)
    if isinstance(data, str):
        data = data.encode("utf-8" if encoding in (None, "", "binary") else encoding)
    return b64encode(data).decode("ascii")


def _form(message: str, common: _Common) -> Form | None:
    """The message as a format, with a gap for each part; None when one of them is not found, once."""
    parts, form = common.parts, message.replace("%", "%%")
    for name, begins in common.begins:
        before = f'"{name}": {begins}'.replace("%", "%%")
        found = before + parts[name].replace("%", "%%")
        if form.count(found) != 1:
            return None
        form = form.replace(found, f"{before}%({name})s")
    return form_of(form)
