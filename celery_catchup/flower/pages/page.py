"""The base of all pages: authentication, links, tabs, and messages instead of tracebacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote, unquote, urlencode
from zoneinfo import ZoneInfo

from tornado.web import HTTPError, authenticated

from celery_catchup import __version__
from celery_catchup.config.times import parse_time
from celery_catchup.error_text import counted, did_you_mean, listed, shown, with_visible_controls
from celery_catchup.errors import CatchupError, ConfigurationError, EntryMissingError
from celery_catchup.flower import host, markup
from celery_catchup.flower.handler import CatchupHandler
from celery_catchup.flower.markup import Times, written
from celery_catchup.flower.operators import BusyError
from celery_catchup.flower.pages import elements
from celery_catchup.operations import Operator, UnknownEntryError, UnknownRunError
from celery_catchup.operations.refusals import RefusedError

SCHEDULES = "/catchup"
RUNS = "/catchup/runs"
DEAD_LETTERS = "/catchup/dead"
BACKFILLS = "/catchup/backfills"
ENTRY = "/catchup/entry"
ENTRIES = "/catchup/entries"
ENTRY_FORM = "/catchup/entries/edit"
AUDIT = "/catchup/audit"

ZONE_COOKIE = "catchup_zone"
"""The zone of times that the reader chose: ``utc``, ``app``, or ``local:`` and the browser's zone."""

Values = Mapping[str, Any]

_Word = TypeVar("_Word", bound=StrEnum)
_FlowerPageHandler: Any = host.page_handler()
_STATIC = Path(__file__).parent.parent / "static"
_STATIC_TYPES = {
    "catchup.css": "text/css",
    "catchup.js": "text/javascript",
    "entryform.js": "text/javascript",
}


class AuthenticatedHandler(CatchupHandler, _FlowerPageHandler):  # type: ignore[misc]
    """A handler that requires login if Flower does."""

    def prepare(self) -> None:
        """Check the login before anything else."""
        super().prepare()
        self._check_login()

    @authenticated
    def _check_login(self) -> None:
        """Let Tornado redirect to the login page."""

    def render_string(self, template_name: str, **values: Any) -> bytes:
        """Render a template, with characters that change the direction of text shown as escapes."""
        rendered: bytes = super().render_string(template_name, **values)
        return with_visible_controls(rendered.decode()).encode()


class StaticFile(AuthenticatedHandler):
    """The style sheet and the script; their URLs have the version, so that browsers may cache them."""

    def get(self, name: str) -> None:
        """Send a file."""
        if name not in _STATIC_TYPES:
            raise HTTPError(404)
        self.set_header("Content-Type", f"{_STATIC_TYPES[name]}; charset=utf-8")
        self.set_header("Cache-Control", "private, max-age=3600")
        self.finish((_STATIC / name).read_bytes())


class Page(AuthenticatedHandler):
    """A page of the tab. A subclass reads the values of its template in `show`, which runs in a thread."""

    template: ClassVar[str]
    active: ClassVar[str]
    heading: ClassVar[str]
    refresh_seconds: ClassVar[int] = 4
    """How often an open page is updated; pages with drawings are large, and change slowly."""
    heavy: ClassVar[bool] = False
    """Whether few requests for the page may be there at once."""

    async def get(self, *path: str) -> None:
        """Render the page, or a message that says why it cannot be shown."""
        link = Links(self.url_prefix)
        self.times = self._times()
        try:
            values = await self.with_operator(
                lambda operator: {
                    **self.show(operator, link, *path),
                    "dead_letter_count": operator.listing.counts()["dead"],
                },
                heavy=self.heavy,
            )
        except CatchupError as error:
            status, message = _message(error)
            self.set_status(status)
            self._render("catchup_message.html", link, message)
            return
        self._render(self.template, link, values)

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """Read the values of the template."""
        raise NotImplementedError

    def _times(self) -> Times:
        """Return the times in the zone of the cookie; in UTC if it has none that is known."""
        app_zone = host.celery_app(self.application).timezone
        now = Operator.clock.now()
        choice, _, name = unquote(self.get_cookie(ZONE_COOKIE) or "").partition(":")
        if choice == "app":
            return Times(app_zone, now, "app")
        if choice == "local":
            try:
                return Times(ZoneInfo(name), now, "local")
            except (ValueError, OSError, LookupError):
                pass
        return Times(UTC, now)

    def moment(self, name: str, *, whole_day: bool = False) -> datetime | None:
        """Parse a query parameter that is a time, or how long ago (``6h``), in the zone of the page."""
        text, times = self.query(name), self.times
        if not text:
            return None
        try:
            return parse_time(text, now=times.now, zone=times.zone, since=True, whole_day=whole_day)
        except ValueError as error:
            raise RefusedError(f"{name}: {error}") from None

    def query(self, name: str) -> str:
        """Return a query parameter as it was written, or an empty text."""
        # Flower's own get_argument escapes, and the template would escape again.
        return self.get_query_argument(name, "") or ""

    def _render(self, template: str, link: Links, values: Values) -> None:
        # Few names, because Flower's own functions must not have the same.
        defaults = {
            "markup": markup,
            "counted": counted,
            "times": self.times,
            "zones": self._zones(),
            "has_api": host.has_auth(self.application),
            "elements": elements,
            "heading": self.heading,
            "eyebrow": self.heading,
            "of": "",
            "refresh_seconds": self.refresh_seconds,
            "active": self.active,
            "tabs": _tabs(values.get("dead_letter_count", 0)),
            "link": link,
            "asset": lambda name: link(f"/catchup/static/{name}", v=__version__),
            "may_change": self.why_read_only is None,
            "why_read_only": self.why_read_only,
        }
        self.render(template, **{**defaults, **values})

    def _zones(self) -> list[tuple[str, str]]:
        """Return the choices of the zone: the value for the cookie, and the words."""
        app_zone = str(host.celery_app(self.application).timezone)
        local = f"Local ({self.times.name})" if self.times.choice == "local" else "Local"
        choices = [("utc", "UTC"), ("app", f"App ({app_zone})"), ("local", local)]
        return [(choice, words) for choice, words in choices if choice != "app" or app_zone != "UTC"]


class Links:
    """Make the URLs of pages, below the prefix that Flower is served at."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __call__(self, path: str, **query: str | Iterable[str] | None) -> str:
        """Return the URL of a path with a query; empty parameters are left out."""
        return self._prefix + path + query_string(**query)

    def run(self, run_id: str) -> str:
        """Return the URL of a run's page."""
        return self(f"/catchup/run/{quote(run_id, safe='')}")

    def entry(self, name: str, **query: str) -> str:
        """Return the URL of an entry's page; its name may have any characters."""
        return self(ENTRY, entry=name, **query)

    def edit(self, name: str) -> str:
        """Return the URL of the form of a stored entry."""
        return self(ENTRY_FORM, entry=name)

    def slots(self, entry: str, first: datetime, last: datetime, run_id: str | None = None) -> str:
        """Return the URL of a run, or without one the place on the entry's page that explains the slots."""
        if run_id:
            return self.run(run_id)
        return self.entry(entry, slot=written(first), to=written(last) if last > first else "") + "#cu-slots"


def query_string(**query: str | Iterable[str] | None) -> str:
    """Encode a query: ``?entry=etl&state=failed&state=dead``, or nothing."""
    pairs = [
        (name, value)
        for name, values in query.items()
        for value in ([values] if isinstance(values, str) else values or ())
        if value
    ]
    return f"?{urlencode(pairs)}" if pairs else ""


def parse_word(words: type[_Word], name: str, text: str) -> _Word:
    """Parse one of the words of an enumeration."""
    known = [str(one) for one in words]
    if text not in known:
        raise RefusedError(f"{name}: expected {listed(known)}, got {shown(text)}{did_you_mean(text, known)}")
    return words(text)


def _tabs(dead_letters: int) -> list[tuple[str, str, str]]:
    return [
        ("schedules", SCHEDULES, "Schedules"),
        ("runs", RUNS, "Runs"),
        ("dead", DEAD_LETTERS, f"Dead letters ({dead_letters:,})" if dead_letters else "Dead letters"),
        ("backfills", BACKFILLS, "Backfills"),
        ("stored", ENTRIES, "Stored entries"),
        ("audit", AUDIT, "Audit"),
    ]


def status_of(error: CatchupError) -> int:
    """Return the HTTP status for an error."""
    match error:
        case ConfigurationError():
            return 500
        case UnknownEntryError() | UnknownRunError() | EntryMissingError():
            return 404
        case RefusedError():
            return 400
        case BusyError():
            return 429
        case _:
            return 503


def _message(error: CatchupError) -> tuple[int, Values]:
    """Convert an error to a status and the values of the message page."""
    status = status_of(error)
    match status:
        case 500:
            advice = "Flower reads the same configuration as beat. Fix it and restart Flower."
            heading, lines = "The configuration has mistakes", [advice]
        case 404:
            heading, lines = "Not found", [str(error)]
        case 400:
            heading, lines = "This cannot be shown", [str(error)]
        case 429:
            heading, lines = "Too many requests at once", [str(error)]
        case _:
            advice = "Reload the page to try again; nothing was changed."
            heading, lines = "The store cannot be read", [str(error), advice]
    return status, {
        "heading": heading,
        "lines": lines,
        "text": str(error) if status == 500 else "",
        "kind": "cu-error" if status >= 500 else "cu-warn",
    }
