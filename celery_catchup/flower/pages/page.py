"""What every page has: the tabs, whether something may be changed, and sentences instead of tracebacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from celery_catchup.errors import CatchupError, ConfigurationError
from celery_catchup.flower.buttons import action, pause_button
from celery_catchup.flower.links import BACKFILLS, DEAD, RUNS, SCHEDULES, Links
from celery_catchup.flower.mount import PageHandler
from celery_catchup.operations import Operator, UnknownEntryError, UnknownRunError
from celery_catchup.operations.refusals import RefusedError

Values = Mapping[str, Any]


class Page(PageHandler):
    """A page of the tab. A subclass says what it shows; that is read in a thread, never in the loop."""

    template: ClassVar[str]
    active: ClassVar[str]
    heading: ClassVar[str]
    every: ClassVar[int] = 4
    """Seconds between two looks of a page that stays open; drawings are large, and change slowly."""

    async def get(self, *path: str) -> None:
        """Render the page, or a sentence about what is in its way."""
        link = Links(self.url_prefix)
        try:
            values = await self.with_operator(
                lambda operator: {**self.show(operator, link, *path), **_dead(operator)}
            )
        except CatchupError as error:
            self._trouble(error, link)
            return
        self._render(self.template, link, **values)

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """What the template is given."""
        raise NotImplementedError

    def asked(self, name: str) -> str:
        """A field of the query as it was written; empty when it is not there."""
        # Flower's own get_argument escapes, which would do it twice.
        return self.get_query_argument(name, "") or ""

    def _render(self, template: str, link: Links, **values: Any) -> None:
        dead = values.pop("dead_letters", 0)
        given = {
            "heading": self.heading,
            "eyebrow": self.heading,
            "of": "",
            "every": self.every,
            "active": self.active,
            "tabs": _tabs(dead),
            "link": link,
            "asset": lambda name: link(f"/catchup/static/{name}", v=self.version),
            "may_change": self.may_change,
            "why_not": self.why_not,
            "action": action,
            "pause_button": pause_button,
        }
        self.render(template, **given | values)

    def _trouble(self, error: CatchupError, link: Links) -> None:
        told = _told(error)
        self.set_status(told.pop("status"))
        self._render("catchup_message.html", link, **told)


def _tabs(dead: int) -> list[tuple[str, str, str]]:
    letters = f"Dead letters ({dead:,})" if dead else "Dead letters"
    return [
        ("schedules", SCHEDULES, "Schedules"),
        ("runs", RUNS, "Runs"),
        ("dead", DEAD, letters),
        ("backfills", BACKFILLS, "Backfills"),
    ]


def _dead(operator: Operator) -> Values:
    return {"dead_letters": operator.listing.counts()["dead"]}


def _told(error: CatchupError) -> dict[str, Any]:
    """An error as a page: a heading, a few lines, and the status of the answer."""
    if isinstance(error, ConfigurationError):
        advice = "Flower reads it as beat does. Mend it and start Flower again."
        return _message("The configuration has mistakes", [advice], 500, text=str(error))
    if isinstance(error, UnknownEntryError | UnknownRunError):
        return _message("Not found", [str(error)], 404, kind="cu-warn")
    if isinstance(error, RefusedError):
        return _message("That cannot be shown", [str(error)], 400, kind="cu-warn")
    again = "The page looks again when you load it; nothing was changed."
    return _message("The store cannot be read", [str(error), again], 503)


def _message(
    heading: str, lines: list[str], status: int, *, text: str = "", kind: str = "cu-error"
) -> dict[str, Any]:
    return {"heading": heading, "lines": lines, "status": status, "text": text, "kind": kind}
