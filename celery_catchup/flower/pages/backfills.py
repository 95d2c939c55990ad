"""``/catchup/backfills``: the backfills, and a form for a new one."""

from __future__ import annotations

from datetime import timedelta
from shlex import quote

from celery_catchup.flower.markup import Markup, join, plural
from celery_catchup.flower.pages.elements import api_button
from celery_catchup.flower.pages.page import Links, Page, Values
from celery_catchup.model import to_datetime
from celery_catchup.operations import Operator
from celery_catchup.operations.backfills import BackfillView, list_backfills
from celery_catchup.planning.scope import Reprocess

_REPROCESS = {
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
            "which_slots": _which_slots,
            "buttons": _buttons,
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


def _which_slots(one: BackfillView) -> str:
    order = ", newest first" if one.newest_first else ""
    return f"{_REPROCESS[one.reprocess]}{order}, {one.max_active} at once"


def _buttons(one: BackfillView) -> Markup:
    if one.ended:
        return Markup()
    path, name = f"/backfills/{one.id}", f"backfill {one.id}"
    if one.state == "paused":
        first = api_button(
            "Resume", f"{path}/resume", label=f"Resume {name}", done="The backfill is resumed."
        )
    else:
        first = api_button("Pause", f"{path}/pause", label=f"Pause {name}", done="The backfill is paused.")
    cancel = api_button(
        "Cancel",
        f"{path}/cancel",
        label=f"Cancel {name}",
        kind="cu-danger",
        confirm=f"Cancel {name}? {one.total - one.sent:,} of its slots will not run.",
        yes="Cancel the backfill",
        done="The backfill is cancelled.",
    )
    return join([first, " ", cancel])
