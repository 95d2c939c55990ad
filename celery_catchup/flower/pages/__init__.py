"""The pages of the tab: each reads at the desk, makes views of it, and renders a template."""

from __future__ import annotations

from typing import Any

from celery_catchup.flower.host import TAB
from celery_catchup.flower.mount import PageHandler
from celery_catchup.operations.status import status


class StatusPage(PageHandler):
    """Whether a beat leads."""

    async def get(self) -> None:
        """In a word."""
        found = await self.at_desk(status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(str(found.scheduler))


ROUTES: list[tuple[Any, ...]] = [(r"/catchup", StatusPage, None, TAB)]
