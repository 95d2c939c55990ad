"""``/catchup``: all entries, a lane of slots for each."""

from __future__ import annotations

from datetime import timedelta

from celery_catchup.flower.drawing.glyphs import legend
from celery_catchup.flower.drawing.span import Span, axis
from celery_catchup.flower.links import Links
from celery_catchup.flower.pages.page import Page, Values
from celery_catchup.flower.views.downs import downs
from celery_catchup.flower.views.notes import cards, notes
from celery_catchup.flower.views.schedules import pages, schedule_rows
from celery_catchup.model import to_datetime
from celery_catchup.operations import Operator
from celery_catchup.operations.entries import list_entry_rows
from celery_catchup.operations.status import list_outages, overview
from celery_catchup.operations.timeline import timeline

ROWS = 50
_LANE = timedelta(hours=24)
_LEGEND = ("on_time", "caught_up", "failed", "skipped", "missed", "paused", "in_flight")


class SchedulesPage(Page):
    """Entries, their last day and what may be done with them."""

    template, active, heading = "catchup_schedules.html", "schedules", "Schedules"
    every = 10

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """A page of entries."""
        search, offset = self.asked("search"), self.asked("offset")
        found = list_entry_rows(
            operator, search=search, offset=int(offset) if offset.isdecimal() else 0, limit=ROWS
        )
        now = to_datetime(operator.now())
        span = Span(now - _LANE, now)
        names = [row.name for row in found.entries]
        slots = timeline(operator, names, since=span.since, until=span.until) if names else {}
        told = overview(operator)
        bands = downs(list_outages(operator, since=span.since), told.status)
        return {
            "notes": notes(told),
            "cards": cards(told),
            "search": search,
            "total": found.total,
            "known": len(operator.schedule),
            "axis": axis(span),
            "rows": schedule_rows(found.entries, slots, span=span, downs=bands, link=link),
            "pages": pages(found, search),
            "legend": legend(_LEGEND),
        }
