"""``/catchup/entry?entry=…``: one entry: its week, its starts, its facts and its preview."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from shlex import quote

from celery_catchup.flower.drawing.captions import stamp
from celery_catchup.flower.drawing.glyphs import GLYPHS, legend
from celery_catchup.flower.drawing.heat import columns_for, days_until, draw_heat_map, spread
from celery_catchup.flower.drawing.lanes import DownTime
from celery_catchup.flower.drawing.starts import draw_starts
from celery_catchup.flower.drawing.time_axis import TimeAxis, hour_labels
from celery_catchup.flower.markup import plural
from celery_catchup.flower.pages.backfills import app_name, backfill_form
from celery_catchup.flower.pages.elements import TRIGGERS, FilterLink
from celery_catchup.flower.pages.notes import down_times, notes
from celery_catchup.flower.pages.page import Links, Page, Values, parse_word
from celery_catchup.model import SlotMark, Trigger, to_datetime
from celery_catchup.operations import Operator
from celery_catchup.operations.entries import EntryPage, show_entry
from celery_catchup.operations.previews import Preview, PreviewSlot, preview
from celery_catchup.operations.runs import list_runs
from celery_catchup.operations.status import Banner, overview
from celery_catchup.operations.timeline import TimelineSlots, timeline

ROWS = 12
_DAYS = 7
_DAY = timedelta(days=1)
_HEAT_MAP_VALUES = 1000
"""Values of the heat map's timeline: 96 cells on each of seven days, and some to spare."""
_MOST_COUNTED = 1000
"""Runs of the latest catch-up that are counted for the note above the page."""
_MOST_PREVIEWED = 12
"""Slots of the preview; a longer one is cut in the middle."""
_MOST_SPREAD = 500
"""Slots of one value whose times are computed one by one."""


class EntryDetailsPage(Page):
    """One entry."""

    template, active, heading = "catchup_entry.html", "schedules", "Schedules"
    refresh_seconds = 10

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """Read everything about the entry in the query."""
        name, chosen = self.query("entry"), self.query("triggerType")
        page = show_entry(operator, name)
        summary = overview(operator)
        triggers = [parse_word(Trigger, "triggerType", chosen)] if chosen else []
        return {
            "heading": name,
            "entry": name,
            "page": page,
            "row": page.entry,
            "notes": notes(summary.status, _own_banner(operator, name, summary.banner), entry=name),
            "app_timezone": operator.app.timezone,
            "triggers": _trigger_links(page, chosen, link),
            "runs": list_runs(operator, [name], triggers=triggers, limit=ROWS).runs,
            "dead_letters": page.dead_letters,
            **_drawings(operator, name, down_times(page.outages, summary.status), link),
            **_preview(operator, page),
            **backfill_form(operator),
        }


def _own_banner(operator: Operator, name: str, banner: Banner | None) -> Banner | None:
    """Reduce the latest catch-up to the runs of this entry; None if it has none."""
    if banner is None:
        return None
    found = list_runs(
        operator,
        [name],
        triggers=[Trigger.CATCHUP],
        since=banner.first,
        until=banner.last,
        limit=_MOST_COUNTED,
    )
    slots = [run.scheduled_time for run in found.runs]
    return replace(banner, dispatched=len(slots), first=min(slots), last=max(slots)) if slots else None


def _trigger_links(page: EntryPage, chosen: str, link: Links) -> list[FilterLink]:
    """Return the runs of the last week by trigger, as links."""
    counts = {"": ("All", sum(page.runs.values()))}
    counts |= {str(one): (one.label, page.runs.get(one, 0)) for one in TRIGGERS}
    return [
        FilterLink(
            f"{words} {count:,}",
            f"{link.entry(page.entry.name, triggerType=trigger)}#cu-runs-title",
            chosen == trigger,
        )
        for trigger, (words, count) in counts.items()
    ]


# -- drawings -----------------------------------------------------------------------------------


def _drawings(operator: Operator, name: str, down: Sequence[DownTime], link: Links) -> Values:
    now = to_datetime(operator.now())
    days = days_until(now, _DAYS)
    end = days[-1].until - timedelta(milliseconds=1)
    week = timeline(operator, [name], since=days[0].since, until=end, most=_HEAT_MAP_VALUES)[name]
    per_day = _slots_per_day(week)
    columns = columns_for(per_day)
    axis = TimeAxis(now - _DAY, now)
    today = timeline(operator, [name], since=axis.since, until=axis.until)[name]
    shown = {one.mark for one in week} | {SlotMark.ON_TIME, SlotMark.CAUGHT_UP}
    return {
        "heat": draw_heat_map(days, week, columns=columns, href=link.run),
        "heat_axis": hour_labels(days[0]),
        "cell_words": _cell_words(columns, per_day),
        "starts": draw_starts(axis, today, down_times=down),
        "legend": legend((mark for mark in GLYPHS if mark in shown), with_band=False),
    }


def _slots_per_day(slots: Sequence[TimelineSlots]) -> int:
    """Return the number of slots of the busiest day."""
    days: Counter[datetime] = Counter()
    for one in slots:
        if one.count > _MOST_SPREAD:
            return round(one.count / max((one.last - one.first) / _DAY, 1))
        days.update(moment.replace(hour=0, minute=0, second=0, microsecond=0) for moment in spread(one))
    return max(days.values(), default=1)


def _cell_words(columns: int, slots_per_day: int) -> str:
    if slots_per_day <= columns:
        return "one cell per slot" if slots_per_day > 1 else "one cell per hour"
    return f"a cell is {24 * 60 // columns} minutes"


# -- preview ------------------------------------------------------------------------------------


def _preview(operator: Operator, page: EntryPage) -> Values:
    name = page.entry.name
    found = preview(operator, [name]) if page.entry.catchup is not None else []
    if not found:
        words = "An entry without a policy is not caught up; Celery's own rules make one late run at most."
        return {"preview_words": words, "preview_text": "", "preview_command": ""}
    return {
        "preview_words": _preview_words(found[0]),
        "preview_text": _preview_text(found[0]) if len(found[0].slots) else "",
        "preview_command": f"celery -A {app_name(operator)} catchup preview {quote(name)}",
    }


def _preview_words(found: Preview) -> str:
    if found.error is not None:
        return f"The catch-up cannot be planned: {found.error}"
    if found.paused:
        return "The entry is paused: nothing is dispatched until it is resumed. Then beat would do this:"
    if not found.dispatched and not found.skipped:
        return "Nothing is missed: if beat started now, it would continue with the next slot."
    return "What beat would do with the slots that are due now:"


def _preview_text(found: Preview) -> str:
    head, hidden, tail = found.slots.cut(_MOST_PREVIEWED)
    skipped = f", {found.skipped:,} skipped" if found.skipped else ""
    lines = [
        *map(_preview_line, head),
        *([f"… {hidden:,} more"] if hidden else []),
        *map(_preview_line, tail),
        "",
        f"{plural(found.dispatched, 'run')} would be dispatched{skipped}.",
    ]
    return "\n".join(lines)


def _preview_line(one: PreviewSlot) -> str:
    reason = f" ({one.reason})" if one.reason else ""
    return f"{stamp(one.scheduled_time)}  {one.action}{reason}"
