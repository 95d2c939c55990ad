"""``/catchup/backfills``: the backfills, and a form for a new one."""

from __future__ import annotations

from datetime import timedelta
from shlex import quote

from celery_catchup.flower.markup import plural
from celery_catchup.flower.pages.page import Links, Page, Values
from celery_catchup.model import to_datetime
from celery_catchup.operations import Operator
from celery_catchup.operations.backfills import list_backfills
from celery_catchup.planning.scope import Reprocess

REPROCESS_WORDS = {
    Reprocess.NONE: "missing only",
    Reprocess.FAILED: "missing and failed",
    Reprocess.COMPLETED: "all, run again",
}


class BackfillsPage(Page):
    """The backfills, newest first, and a form for a new one."""

    template, active, heading = "catchup_backfills.html", "backfills", "Backfills"

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """Read all stored backfills."""
        found = list_backfills(operator)
        return {
            "backfills": found,
            "reprocess_words": REPROCESS_WORDS,
            "entries": list(operator.declared),
            "words": plural(len(found), "backfill") if found else "",
            **backfill_form(operator),
        }


def backfill_form(operator: Operator) -> Values:
    """Return the initial values of the form: the last day."""
    now = to_datetime(operator.now()).replace(second=0, microsecond=0)
    return {
        "backfill_start": f"{now - timedelta(days=1):%Y-%m-%dT%H:%MZ}",
        "backfill_end": f"{now:%Y-%m-%dT%H:%MZ}",
        "app_name": app_name(operator),
    }


def app_name(operator: Operator) -> str:
    """Return the app as it is named on a command line."""
    return quote(operator.app.main or "proj")
