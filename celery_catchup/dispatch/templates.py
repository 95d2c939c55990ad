"""Templates: what is made of a message that Celery has made, once for all runs of an entry."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from celery.beat import ScheduleEntry

from celery_catchup.config.settings import MarkTasks
from celery_catchup.dispatch.messages import Message, is_watched
from celery_catchup.store import Template


@dataclass(frozen=True)
class Caught:
    """A message that Celery has made, and where it would have gone; a template is made of it."""

    message: Message
    text: str
    queue: str | None = None
    db: int | None = None
    routing_key: str = ""
    queue_name: str = ""

    def template(self, badge: MarkTasks) -> Template:
        """With marks, and badges where they are wanted."""
        return Template(
            self.message.template_text(self.text, badge=badge),
            queue=self.queue,
            db=self.db,
            expires_ms=self.message.expires_ms,
            countdown_ms=self.message.countdown_ms,
            routing_key=self.routing_key,
            queue_name=self.queue_name,
        )


@dataclass(slots=True)
class Known:
    """The templates of an entry, and what they were made from; catch-up runs wear badges."""

    fields: tuple[Any, ...]
    task: Any = None
    caught: Caught | None = None
    templates: dict[MarkTasks, Template] = field(default_factory=dict)

    def template(self, badge: MarkTasks, make: Callable[[], Template]) -> Template:
        """The one with these badges; made once."""
        if badge not in self.templates:
            self.templates[badge] = make()
        return self.templates[badge]


class Entries:
    """What is known of entries, under the name that the ledger knows them by, or None."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._known: dict[tuple[str, str | None], Known] = {}

    def clear(self) -> None:
        """Forget all of it."""
        self._known.clear()

    def valid(self, entry: ScheduleEntry, policy_entry: str | None) -> Known | None:
        """What is known of the entry, if it is as it was then, and nobody has put himself in between."""
        known = self._known.get((entry.name, policy_entry))
        if known is None or known.fields != _fields(entry):
            return None
        task = self._app.tasks.get(entry.task)
        return known if task is known.task and not is_watched(self._app, task) else None

    def add(self, entry: ScheduleEntry, policy_entry: str | None) -> Known:
        """Nothing yet, but of an entry as it is now; one that cannot be copied is not kept."""
        key, fields, task = (entry.name, policy_entry), _fields(entry), self._app.tasks.get(entry.task)
        try:
            # A copy: an entry that is changed in place is noticed. What is empty needs no such care.
            copied = tuple([copy.deepcopy(one) if one else _empty(one) for one in fields])
            self._known[key] = Known(copied, task)
        except (TypeError, ValueError, AttributeError, copy.Error, RecursionError):
            self._known.pop(key, None)
            return Known(fields, task)
        return self._known[key]


# They are only compared with, so one for all entries will do.
_EMPTY: dict[type, Any] = {dict: {}, list: [], tuple: ()}


def _empty(one: Any) -> Any:
    kind = type(one)
    return _EMPTY[kind] if kind in _EMPTY else kind()


def _fields(entry: ScheduleEntry) -> tuple[Any, ...]:
    return entry.task, entry.args, entry.kwargs, entry.options
