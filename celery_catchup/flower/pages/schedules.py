"""``/catchup``: all entries with a lane of their slots, and the last day in numbers."""

from __future__ import annotations

from datetime import timedelta

from celery_catchup.flower.drawing.glyphs import GLYPHS, legend
from celery_catchup.flower.drawing.lanes import draw_lane
from celery_catchup.flower.drawing.time_axis import TimeAxis, hour_labels
from celery_catchup.flower.markup import Markup, element, join
from celery_catchup.flower.pages.notes import down_times, notes
from celery_catchup.flower.pages.page import SCHEDULES, Links, Page, Values, query_string
from celery_catchup.model import SlotMark, to_datetime
from celery_catchup.operations import Operator
from celery_catchup.operations.entries import EntryRow, EntryRows, list_entry_rows
from celery_catchup.operations.status import list_outages, overview
from celery_catchup.operations.timeline import timeline

ROWS = 50
_LANE = timedelta(hours=24)


class SchedulesPage(Page):
    """The entries, their last day, and their buttons."""

    template, active, heading = "catchup_schedules.html", "schedules", "Schedules"
    refresh_seconds = 10

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """Read one page of the entries that match the search."""
        search, offset = self.query("search"), self.query("offset")
        found = list_entry_rows(
            operator, search=search, offset=int(offset) if offset.isdecimal() else 0, limit=ROWS
        )
        now = to_datetime(operator.now())
        axis = TimeAxis(now - _LANE, now)
        names = [row.name for row in found.entries]
        slots = timeline(operator, names, since=axis.since, until=axis.until) if names else {}
        summary = overview(operator)
        down = down_times(list_outages(operator, since=axis.since), summary.status)
        return {
            "notes": notes(summary.status, summary.banner),
            "summary": summary,
            "status": summary.status,
            "search": search,
            "total": found.total,
            "known": len(operator.schedule),
            "axis": hour_labels(axis),
            "rows": found.entries,
            "lanes": {
                name: draw_lane(axis, slots.get(name, ()), down_times=down, name=name, href=link.run)
                for name in names
            },
            "policy": _policy,
            **_pager(found, search),
            "legend": legend(mark for mark in GLYPHS if mark is not SlotMark.UPCOMING),
        }


def _policy(row: EntryRow) -> Markup:
    """Write the policy of an entry: ``all · 6h``."""
    if row.catchup is None:
        title = "as in Celery's own scheduler: one late run at most"
        return element("span", "Celery's", class_="cu-muted", title=title)
    if row.catchup == "off":
        return element("span", "off", class_="cu-muted", title="missed slots never run")
    title = f"overlap_policy: {row.overlap_policy}"
    return element("span", join([element("strong", row.catchup), f" · {row.window}"]), title=title)


def _pager(found: EntryRows, search: str) -> Values:
    """Return the position in a long list, and the paths of the neighbouring pages."""
    first, last = found.offset + 1, min(found.offset + found.limit, found.total)
    back, forward = found.offset - found.limit, found.offset + found.limit
    return {
        "position": f"{first:,} – {last:,} of {found.total:,} entries" if found.total > found.limit else "",
        "previous_path": _page_path(search, back) if found.offset else "",
        "next_path": _page_path(search, forward) if last < found.total else "",
    }


def _page_path(search: str, offset: int) -> str:
    return SCHEDULES + query_string(search=search, offset=str(offset) if offset > 0 else None)
