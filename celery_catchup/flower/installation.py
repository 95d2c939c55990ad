"""Puts tab and API into Flower, before it starts; or says why they do not fit."""

from __future__ import annotations

import logging
from html import escape
from importlib import import_module
from typing import Any

from tornado.web import RequestHandler, url

from celery_catchup.flower import host, metrics

logger = logging.getLogger(__name__)

_PARTS = ("celery_catchup.flower.pages", "celery_catchup.flower.api")
"""Each has ``ROUTES``: tuples of a pattern, a handler, and perhaps its arguments and its name."""

_installed = False


def install() -> None:
    """Mount everything once. Flower starts in any case."""
    global _installed
    if _installed:
        return
    _installed = True
    try:
        _mount()
    except host.IncompatibleFlowerError as error:
        _apologise(str(error))
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        # What nobody foresaw of a Flower or a Tornado to come; whoever mends it wants to see where.
        logger.debug("celery_catchup: the tab could not be mounted", exc_info=True)
        _apologise(f"{type(error).__name__}: {error}")


def _mount() -> None:
    """Look at everything, then change something."""
    from celery_catchup.flower.templates import loader_for

    routes, settings = host.routes(), host.settings()
    ours = [_route(*route) for part in _PARTS for route in import_module(part).ROUTES]
    settings.setdefault("template_loader", loader_for(settings))
    routes[-1:-1] = ours
    metrics.mount(routes)


def _route(pattern: str, handler: Any, given: dict[str, Any] | None = None, name: str | None = None) -> Any:
    # A URLSpec, because Flower drops what else a tuple carries when it has a prefix.
    return url(pattern, handler, given, name)


def _apologise(reason: str) -> None:
    version = host.flower_version()
    logger.error(
        "celery_catchup: the Catch-up tab does not fit Flower %s, which starts without: %s", version, reason
    )
    try:
        host.routes()[-1:-1] = [url(r"/catchup.*", Apology, {"reason": reason}, host.TAB)]
    except host.IncompatibleFlowerError:
        return  # there is no place to say it but the log


class Apology(RequestHandler):
    """What is at the tab's address in a Flower that it does not fit."""

    def initialize(self, *, reason: str) -> None:
        """Remember what is missing."""
        self._reason = reason

    def get(self) -> None:
        """Say so."""
        self.set_status(501)
        self.finish(
            f"<!doctype html><title>Catch-up</title><h1>The Catch-up tab does not fit this Flower</h1>"
            f"<p>Flower {escape(host.flower_version())}: {escape(self._reason)}.</p>"
            "<p>Install Flower 2.0 or newer, or a newer celery-catchup. Everything else of both works, "
            "and <code>celery catchup status</code> tells what the tab would.</p>"
        )
