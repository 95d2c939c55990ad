"""A heat map: a row for each day, a cell for each slot, or for several where slots are dense."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from itertools import pairwise

from celery_catchup.flower.drawing.captions import caption, tooltip
from celery_catchup.flower.drawing.glyphs import draw_glyph, drawing, linked
from celery_catchup.flower.drawing.lanes import SlotLink
from celery_catchup.flower.drawing.time_axis import TimeAxis
from celery_catchup.flower.markup import IN_UTC, Markup, Times, element, percent
from celery_catchup.model import SlotMark
from celery_catchup.operations.timeline import WORST_FIRST, TimelineSlots

HEIGHT = 20
_COLUMNS = (24, 48, 96)
"""Cells of a day; where there are more slots than the last number, several share a cell."""
_MOST_WITH_GLYPHS = 48
_WITHOUT_GLYPH = (SlotMark.ON_TIME, SlotMark.UPCOMING, SlotMark.MISSED, SlotMark.DUE)
_GAP = 0.12  # between two cells, of a cell's width


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One day: its date, its name and its drawing."""

    date: date
    day: str
    drawing: Markup


def columns_for(slots_per_day: int) -> int:
    """Return the number of cells of a day."""
    return next((count for count in _COLUMNS if slots_per_day <= count), _COLUMNS[-1])


def draw_heat_map(
    days: Sequence[TimeAxis], slots: Sequence[TimelineSlots], *, columns: int, href: SlotLink | None = None
) -> list[HeatRow]:
    """Draw the rows of these days; slots of other days are left out."""
    return [_row(day, slots, columns, href) for day in days]


def days_until(moment: datetime, count: int, times: Times = IN_UTC) -> list[TimeAxis]:
    """Return the last days in the zone, that of the moment last."""
    last = times.at(moment).date()
    dates = [last + timedelta(days=1 - back) for back in reversed(range(count + 1))]
    midnights = [datetime.combine(one, time(), times.zone).astimezone(moment.tzinfo) for one in dates]
    return [TimeAxis(since, until, times) for since, until in pairwise(midnights)]


def spread(one: TimelineSlots) -> list[datetime]:
    """Return the times of slots that were recorded together, as if evenly spread."""
    apart = (one.last - one.first) / max(one.count - 1, 1)
    return [one.first + index * apart for index in range(one.count)]


def _row(day: TimeAxis, slots: Sequence[TimelineSlots], columns: int, href: SlotLink | None) -> HeatRow:
    cells: dict[int, list[TimelineSlots]] = {}
    for one in slots:
        # A slot at midnight belongs to the day that begins.
        if one.first < day.until and one.last >= day.since:
            moments: dict[int, list[datetime]] = {}
            for moment in spread(one):
                if day.since <= moment < day.until:
                    moments.setdefault(int(day.share(moment) * columns), []).append(moment)
            for index, some in moments.items():
                cells.setdefault(index, []).append(_part(one, some))
    drawn = [_cell(index, cells.get(index, []), columns, day.times, href) for index in range(columns)]
    since = day.times.at(day.since)
    words = f"{since:%A %d %B}: {caption(one for cell in cells.values() for one in cell)}"
    return HeatRow(since.date(), f"{since:%a %d}", drawing(*drawn, words=words, kind="heat", height=HEIGHT))


def _part(one: TimelineSlots, moments: Sequence[datetime]) -> TimelineSlots:
    """Return the part of slots that lies at these times; of mixed marks, in the same proportion."""
    if len(moments) == one.count:
        return one
    counts = one.counts and {
        mark: round(number * len(moments) / one.count) for mark, number in one.counts.items()
    }
    return replace(one, first=moments[0], last=moments[-1], count=len(moments), counts=counts)


def _cell(
    index: int, slots: Sequence[TimelineSlots], columns: int, times: Times, href: SlotLink | None
) -> Markup:
    width = 1 / columns
    box = {"x": percent((index + _GAP / 2) * width), "width": percent(width * (1 - _GAP))}
    if not slots:
        return element("rect", **box, y=1, height=HEIGHT - 2, rx=3, class_="cu-cell cu-nothing")
    worst = min(slots, key=lambda one: WORST_FIRST.index(one.mark))
    alone = len(slots) == 1
    title = tooltip(worst, times) if alone else f"{times.stamp(slots[0].first)} and later: {caption(slots)}"
    kind = f"cu-cell cu-{worst.mark}"
    parts = [element("rect", element("title", title), **box, y=1, height=HEIGHT - 2, rx=3, class_=kind)]
    if columns <= _MOST_WITH_GLYPHS and worst.mark not in _WITHOUT_GLYPH:
        parts.append(draw_glyph(worst.mark, title, x=percent((index + 0.5) * width), y=2))
    if href is None:
        return linked(*parts, href=None)
    last = max(one.last for one in slots)
    return linked(*parts, href=href(slots[0].first, last, worst.run_id if alone else None))
