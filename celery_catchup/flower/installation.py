"""Mount the tab, the API and the metrics in Flower before it starts, or log why that is not possible."""

from __future__ import annotations

import logging
import sys
from html import escape
from typing import Any

from tornado.web import RequestHandler, url

from celery_catchup.events.command_lines import command_line
from celery_catchup.flower import host

logger = logging.getLogger(__name__)

_installed = False
_SWITCH_INTERVAL = 0.0005  # seconds


def install() -> None:
    """Mount everything, once. Flower starts in any case."""
    global _installed
    if _installed:
        return
    _installed = True
    try:
        _mount()
    except host.IncompatibleFlowerError as error:
        _report(str(error))
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        # An incompatibility of a future Flower or Tornado that no check covers; the log says where.
        logger.debug("celery_catchup: the tab could not be mounted", exc_info=True)
        _report(f"{type(error).__name__}: {error}")


def _mount() -> None:
    """Check everything, then change Flower."""
    routes, settings = host.routes(), host.settings()
    from celery_catchup.flower import api, metrics, pages  # they need Flower's handlers

    # Python lets a thread run for 5 ms before another one may; beside a few busy threads, the event loop
    # would wait for tenths of a second at each of its many turns.
    sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL))
    # URLSpecs, because with a URL prefix Flower keeps only two members of a tuple.
    ours = [url(*route) for route in (*pages.ROUTES, *api.ROUTES)]
    settings.setdefault("template_loader", host.TemplateLoader(settings["template_path"]))
    routes[-1:-1] = ours
    metrics.mount(routes)


def _report(reason: str) -> None:
    logger.error(
        "celery_catchup: the Catch-up tab does not fit Flower %s, which starts without it: %s",
        host.flower_version(),
        reason,
    )
    try:
        host.routes()[-1:-1] = [url(r"/catchup.*", IncompatiblePage, {"reason": reason}, host.TAB)]
    except host.IncompatibleFlowerError:
        return  # the log has to do


class IncompatiblePage(RequestHandler):
    """The page at the tab's URL in an incompatible Flower."""

    def initialize(self, *, reason: str) -> None:
        """Store what is missing."""
        self._reason: Any = reason

    def get(self) -> None:
        """Explain what is missing."""
        self.set_status(501)
        self.finish(
            f"<!doctype html><title>Catch-up</title><h1>The Catch-up tab does not fit this Flower</h1>"
            f"<p>Flower {escape(host.flower_version())}: {escape(self._reason)}.</p>"
            "<p>Install Flower 2.0 or newer, or a newer celery-catchup. Everything else works, "
            f"and <code>{escape(command_line('status'))}</code> shows the same information.</p>"
        )
