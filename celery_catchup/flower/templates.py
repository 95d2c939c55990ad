"""Flower's templates with one item more in the navigation bar, and ours beside them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from tornado.template import Loader, Template

from celery_catchup.flower import host

logger = logging.getLogger(__name__)

OURS = Path(__file__).parent / "templates"
"""Where templates whose names begin with ``catchup_`` are."""


class TabLoader(Loader):
    """Loads templates by name, whoever asks; names that begin with ``catchup_`` are ours."""

    def resolve_path(self, name: str, parent_path: str | None = None) -> str:
        """As it is: all templates stand side by side, ours and Flower's."""
        return name

    def _create_template(self, name: str) -> Template:
        place = OURS if name.startswith("catchup_") else Path(self.root)
        text = (place / Path(name).name).read_text(encoding="utf-8")
        if name == "navbar.html":
            text = host.with_tab(text) or self._without_item(text)
        return Template(text, name=name, loader=self)

    def _without_item(self, text: str) -> str:
        logger.warning(
            "celery_catchup: the navigation bar of Flower %s has no place for the tab; it is at /catchup",
            host.flower_version(),
        )
        return text


def loader_for(settings: dict[str, Any]) -> TabLoader:
    """A loader for what Flower's settings name."""
    return TabLoader(settings["template_path"])
