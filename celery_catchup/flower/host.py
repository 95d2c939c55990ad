"""Everything used of Flower that is not documented; each name is checked before anything is mounted.

- ``flower.urls.handlers``: the list of routes. The last route answers every other path with 404.
- ``flower.urls.settings``: the settings of Flower's Tornado application.
- ``flower.views.BaseHandler``, ``flower.api.BaseApiHandler``: authentication of pages and of the API.
- ``application.options`` and ``application.capp``: the command line, and the Celery app.
- ``application.events.state.tasks``: the tasks that Flower remembers; without it, none.
- ``navbar.html``: the item of the page "Broker", which the item of the tab is copied from.

If one of the first three is different, `IncompatibleFlowerError` says so and Flower starts without the
tab. Without the item in the navigation bar the tab has no item of its own; its URL works.
"""

from __future__ import annotations

import logging
import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tornado.template import Loader, Template

from celery_catchup.errors import CatchupError

logger = logging.getLogger(__name__)

TAB = "catchup"
"""The name of the tab's route, and of its item in the navigation bar."""

_TEMPLATES = Path(__file__).parent / "templates"
_BROKER_ITEM = re.compile(r"<li\b(?:(?!</li>).)*?reverse_url\('broker'\).*?</li>", re.DOTALL)


class IncompatibleFlowerError(CatchupError):
    """The installed Flower lacks something that the tab needs; the message says what."""


# -- routes, handlers and settings --------------------------------------------------------------


def routes() -> list[Any]:
    """Return Flower's list of routes; routes added before Flower starts are served."""
    found = _attribute("flower.urls", "handlers")
    if not isinstance(found, list) or not found or not _matches_everything(found[-1]):
        raise IncompatibleFlowerError("flower.urls.handlers does not end with a route for every path")
    return found


def settings() -> dict[str, Any]:
    """Return the settings that Flower's Tornado application starts with."""
    found = _attribute("flower.urls", "settings")
    if not isinstance(found, dict) or not isinstance(found.get("template_path"), str):
        raise IncompatibleFlowerError("flower.urls.settings has no template_path")
    return found


def page_handler() -> Any:
    """Return the base class of Flower's pages."""
    return _attribute("flower.views", "BaseHandler", "get_current_user", "render")


def api_handler() -> Any:
    """Return the base class of Flower's API."""
    return _attribute("flower.api", "BaseApiHandler", "get_current_user", "prepare")


def flower_version() -> str:
    """Return the version of Flower, for messages."""
    try:
        return version("flower")
    except PackageNotFoundError:
        return "unknown"


def _attribute(module: str, name: str, *needed: str) -> Any:
    try:
        found = getattr(import_module(module), name)
        for attribute in needed:
            getattr(found, attribute)
    except (ImportError, AttributeError) as error:
        raise IncompatibleFlowerError(f"{module}.{name} has changed: {error}") from None
    return found


def _matches_everything(route: Any) -> bool:
    pattern = route[0] if isinstance(route, tuple) else getattr(getattr(route, "regex", None), "pattern", "")
    return str(pattern).rstrip("$") == ".*"


# -- the running application --------------------------------------------------------------------


def has_auth(application: Any) -> bool:
    """Whether Flower requires authentication."""
    return bool(_option(application, "basic_auth") or _option(application, "auth"))


def has_basic_auth(application: Any) -> bool:
    """Whether a browser should ask for a name and a password."""
    return bool(_option(application, "basic_auth"))


def is_read_only(application: Any) -> bool:
    """Whether Flower is read-only; Flower before 2.1 has no such option."""
    return bool(_option(application, "read_only"))


def url_prefix(application: Any) -> str:
    """Return the path that Flower is served at: empty, or ``/flower``."""
    stripped = (_option(application, "url_prefix") or "").strip("/")
    return f"/{stripped}" if stripped else ""


def celery_app(application: Any) -> Any:
    """Return the Celery app that Flower monitors."""
    return application.capp


def knows_task(application: Any, task_id: str) -> bool:
    """Whether Flower still has a page about this task; it keeps the newest ones in memory."""
    try:
        return application.events.state.tasks.get(task_id) is not None
    except AttributeError:
        return False


def _option(application: Any, name: str) -> Any:
    return getattr(application.options, name, None)


# -- templates ----------------------------------------------------------------------------------


class TemplateLoader(Loader):
    """Load Flower's templates, with the tab in the navigation bar, and ours (``catchup_*``)."""

    def resolve_path(self, name: str, parent_path: str | None = None) -> str:
        """Return the name unchanged: templates of both kinds include each other by name."""
        return name

    def _create_template(self, name: str) -> Template:
        folder = _TEMPLATES if name.startswith("catchup_") else Path(self.root)
        text = (folder / Path(name).name).read_text(encoding="utf-8")
        return Template(_add_tab(text) if name == "navbar.html" else text, name=name, loader=self)


def _add_tab(navbar: str) -> str:
    found = _BROKER_ITEM.search(navbar)
    if found is None:
        logger.warning(
            "celery_catchup: the navigation bar of Flower %s has changed; open the tab at /catchup",
            flower_version(),
        )
        return navbar
    item = found[0].replace("broker", TAB).replace("Broker", "Catch-up")
    return f"{navbar[: found.end()]}\n{item}{navbar[found.end() :]}"
