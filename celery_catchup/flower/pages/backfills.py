"""``/catchup/backfills``: ranges of slots that somebody asked for."""

from __future__ import annotations

from celery_catchup.flower.labels import counted
from celery_catchup.flower.links import Links
from celery_catchup.flower.pages.entry import backfill_range
from celery_catchup.flower.pages.page import Page, Values
from celery_catchup.flower.views.backfills import backfill_row
from celery_catchup.operations import Operator
from celery_catchup.operations.backfills import list_backfills


class BackfillsPage(Page):
    """Backfills, the newest first, and a form for another."""

    template, active, heading = "catchup_backfills.html", "backfills", "Backfills"

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """All that are remembered."""
        found = list_backfills(operator)
        return {
            "backfills": [backfill_row(one) for one in found],
            "entries": list(operator.declared),
            "words": counted(len(found), "backfill") if found else "",
            **backfill_range(operator),
        }
