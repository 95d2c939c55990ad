"""Templates: what is made of a message that Celery has made, once for all runs of an entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from celery_catchup.dispatch.messages import Message
from celery_catchup.settings import MarkTasks
from celery_catchup.store import Template


@dataclass(frozen=True)
class Caught:
    """A message that Celery has made, and where it would have gone; a template is made of it."""

    message: Message
    text: str
    queue: str | None = None
    db: int | None = None

    def template(self, badge: MarkTasks) -> Template:
        """With marks, and badges where they are wanted."""
        return Template(
            self.message.template_text(self.text, badge=badge),
            queue=self.queue,
            db=self.db,
            expires_ms=self.message.expires_ms,
            countdown_ms=self.message.countdown_ms,
        )


@dataclass(slots=True)
class Known:
    """The templates of an entry, and what they were made from; catch-up runs wear badges."""

    fields: tuple[Any, ...]
    caught: Caught | None = None
    templates: dict[MarkTasks, Template] = field(default_factory=dict)

    def template(self, badge: MarkTasks, make: Callable[[], Template]) -> Template:
        """The one with these badges; made once."""
        if badge not in self.templates:
            self.templates[badge] = make()
        return self.templates[badge]
