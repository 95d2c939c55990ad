"""A heat map: a row for each day, a cell for each slot, or for several where slots are dense."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from celery_catchup.flower.drawing.captions import caption, stamp, tooltip
from celery_catchup.flower.drawing.glyphs import draw_glyph
from celery_catchup.flower.drawing.time_axis import TimeAxis
from celery_catchup.flower.markup import Markup, element, join, percent
from celery_catchup.model import SlotMark
from celery_catchup.operations.timeline import WORST_FIRST, TimelineSlots

HEIGHT = 20
_DAY = timedelta(days=1)
_COLUMNS = (24, 48, 96)
"""Cells of a day; where there are more slots than the last number, several share a cell."""
_MOST_WITH_GLYPHS = 48
_WITHOUT_GLYPH = (SlotMark.ON_TIME, SlotMark.UPCOMING, SlotMark.MISSED)
_GAP = 0.12  # between two cells, of a cell's width


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One day: its name and its drawing."""

    day: str
    drawing: Markup


def columns_for(slots_per_day: int) -> int:
    """Return the number of cells of a day."""
    return next((count for count in _COLUMNS if slots_per_day <= count), _COLUMNS[-1])


def draw_heat_map(
    days: Sequence[TimeAxis],
    slots: Sequence[TimelineSlots],
    *,
    columns: int,
    href: Callable[[str], str] | None = None,
) -> list[HeatRow]:
    """Draw the rows of these days; slots of other days are left out."""
    return [
        # A slot at midnight belongs to the day that begins.
        _row(day, [one for one in slots if one.first < day.until and one.last >= day.since], columns, href)
        for day in days
    ]


def days_until(moment: datetime, count: int) -> list[TimeAxis]:
    """Return the last days in UTC, today last."""
    today = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    starts = (today - back * _DAY for back in reversed(range(count)))
    return [TimeAxis(start, start + _DAY) for start in starts]


def spread(one: TimelineSlots) -> list[datetime]:
    """Return the times of slots that were recorded together, as if evenly spread."""
    apart = (one.last - one.first) / max(one.count - 1, 1)
    return [one.first + index * apart for index in range(one.count)]


def _row(
    day: TimeAxis, slots: Sequence[TimelineSlots], columns: int, href: Callable[[str], str] | None
) -> HeatRow:
    cells: dict[int, list[TimelineSlots]] = {}
    for one in slots:
        for moment in spread(one):
            if day.since <= moment < day.until:
                cell = cells.setdefault(int(day.share(moment) * columns), [])
                if not cell or cell[-1] is not one:
                    cell.append(one)
    drawn = [_cell(index, cells.get(index, []), columns, href) for index in range(columns)]
    label = f"{day.since:%A %d %B}: {caption(slots)}"
    drawing = element(
        "svg", *drawn, class_="cu-heat", height=HEIGHT, width="100%", role="img", aria_label=label
    )
    return HeatRow(f"{day.since:%a %d}", drawing)


def _cell(
    index: int, slots: Sequence[TimelineSlots], columns: int, href: Callable[[str], str] | None
) -> Markup:
    width = 1 / columns
    box = {"x": percent((index + _GAP / 2) * width), "width": percent(width * (1 - _GAP))}
    if not slots:
        return element("rect", **box, y=1, height=HEIGHT - 2, rx=3, class_="cu-cell cu-nothing")
    worst = min(slots, key=lambda one: WORST_FIRST.index(one.mark))
    title = tooltip(worst) if len(slots) == 1 else f"{stamp(slots[0].first)} and later: {caption(slots)}"
    kind = f"cu-cell cu-{worst.mark}"
    parts = [element("rect", element("title", title), **box, y=1, height=HEIGHT - 2, rx=3, class_=kind)]
    if columns <= _MOST_WITH_GLYPHS and worst.mark not in _WITHOUT_GLYPH:
        parts.append(draw_glyph(worst.mark, title, x=percent((index + 0.5) * width), y=2))
    if href is None or not worst.run_id or worst.count > 1 or len(slots) > 1:
        return join(parts)
    return element("a", *parts, href=href(worst.run_id), tabindex="-1")
