"""All that is used of Flower and is documented nowhere; each name is looked for before anything is mounted.

- ``flower.urls.handlers``: the list of routes, the last of which answers everything with 404.
- ``flower.urls.settings``: what Flower's Tornado application is made with.
- ``flower.views.BaseHandler``, ``flower.api.BaseApiHandler``: who may see a page, who may use the API.
- ``application.options`` and ``application.capp``: the command line, and the Celery app.
- ``navbar.html``: an item for the page "Broker", of which ours is made.
"""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from celery_catchup.errors import CatchupError

TAB = "catchup"
"""The name of the tab's route, and of its item in the navigation bar."""

_BROKER_ITEM = re.compile(r"<li\b(?:(?!</li>).)*?reverse_url\('broker'\).*?</li>", re.DOTALL)


class IncompatibleFlowerError(CatchupError):
    """This Flower is not as the tab needs it; the message says what is missing."""


def routes() -> list[Any]:
    """Flower's own list of routes; what is put into it before Flower starts is served."""
    found = _named("flower.urls", "handlers")
    if not isinstance(found, list) or not found or not _answers_everything(found[-1]):
        raise IncompatibleFlowerError("flower.urls.handlers is no list that ends with a route for everything")
    return found


def settings() -> dict[str, Any]:
    """What Flower's Tornado application will be made with."""
    found = _named("flower.urls", "settings")
    if not isinstance(found, dict) or not isinstance(found.get("template_path"), str):
        raise IncompatibleFlowerError("flower.urls.settings has no template_path")
    return found


def page_handler() -> Any:
    """The class that Flower's pages are made of."""
    return _named("flower.views", "BaseHandler", "get_current_user", "render")


def api_handler() -> Any:
    """The class that Flower's API is made of."""
    return _named("flower.api", "BaseApiHandler", "get_current_user", "prepare")


def flower_version() -> str:
    """For people."""
    try:
        return version("flower")
    except PackageNotFoundError:
        return "unknown"


def auth_is_on(application: Any) -> bool:
    """Whether whoever comes has to say who he is."""
    return bool(_option(application, "basic_auth") or _option(application, "auth"))


def asks_for_a_password(application: Any) -> bool:
    """Whether a browser should ask for a name and a password."""
    return bool(_option(application, "basic_auth"))


def is_read_only(application: Any) -> bool:
    """Whether Flower was started to be looked at only; before 2.1 it could not be."""
    return bool(_option(application, "read_only"))


def url_prefix(application: Any) -> str:
    """What stands before every address: empty, or ``/flower``."""
    stripped = (_option(application, "url_prefix") or "").strip("/")
    return f"/{stripped}" if stripped else ""


def celery_app(application: Any) -> Any:
    """The app that Flower looks at."""
    return application.capp


def with_tab(navbar: str) -> str | None:
    """The navigation bar's template with an item for the tab behind Flower's own; None when there is
    no item to be made like."""
    found = _BROKER_ITEM.search(navbar)
    if found is None:
        return None
    item = found[0].replace("broker", TAB).replace("Broker", "Catch-up")
    return f"{navbar[: found.end()]}\n{item}{navbar[found.end() :]}"


def _option(application: Any, name: str) -> Any:
    return getattr(application.options, name, None)


def _named(module: str, name: str, *attributes: str) -> Any:
    try:
        found = getattr(import_module(module), name)
        for attribute in attributes:
            getattr(found, attribute)
    except (ImportError, AttributeError) as error:
        raise IncompatibleFlowerError(f"{module}.{name} is not what it was: {error}") from None
    return found


def _answers_everything(route: Any) -> bool:
    pattern = route[0] if isinstance(route, tuple) else getattr(getattr(route, "regex", None), "pattern", "")
    return str(pattern).rstrip("$") == ".*"
