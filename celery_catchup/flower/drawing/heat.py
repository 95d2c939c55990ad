"""A heat map: a row for each day, a cell for each slot, or for a few of them where they are many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from celery_catchup.flower.drawing.glyphs import glyph, mark_of
from celery_catchup.flower.drawing.span import Span
from celery_catchup.flower.drawing.svg import Markup, element, percent
from celery_catchup.flower.drawing.tallies import Slots, stamp, tally, title
from celery_catchup.operations.timeline import WORST_FIRST

HEIGHT = 20
_DAY = timedelta(days=1)
# Cells in a day: with more than the last, several slots share one.
_COLUMNS = (24, 48, 96)
_GAP = 0.12  # of a cell's width, left free between two


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One day: its name and its drawing."""

    day: str
    drawing: Markup


def columns_for(slots_of_a_day: int) -> int:
    """How many cells a day has."""
    return next((count for count in _COLUMNS if slots_of_a_day <= count), _COLUMNS[-1])


def heat_map(
    days: Sequence[Span], slots: Sequence[Slots], *, columns: int, href: Callable[[str], str] | None = None
) -> list[HeatRow]:
    """The rows of these days; slots of other days are left out."""
    return [_row(day, _on(day, slots), columns, href) for day in days]


def days_until(moment: datetime, count: int) -> list[Span]:
    """The last ``count`` days in UTC, today the last of them."""
    today = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    starts = (today - back * _DAY for back in reversed(range(count)))
    return [Span(start, start + _DAY) for start in starts]


def spread(one: Slots) -> list[datetime]:
    """The times of slots that were recorded together; as good as evenly spread."""
    if one.count == 1:
        return [one.first]
    apart = (one.last - one.first) / (one.count - 1)
    return [one.first + index * apart for index in range(one.count)]


def _on(day: Span, slots: Iterable[Slots]) -> list[Slots]:
    # A slot at midnight belongs to the day that begins.
    return [one for one in slots if one.first < day.until and one.last >= day.since]


def _row(day: Span, slots: Sequence[Slots], columns: int, href: Callable[[str], str] | None) -> HeatRow:
    cells: dict[int, list[Slots]] = {}
    for one in slots:
        for moment in spread(one):
            if day.since <= moment < day.until:
                cell = cells.setdefault(int(day.share(moment) * columns), [])
                if not cell or cell[-1] is not one:
                    cell.append(one)
    drawn = [_cell(index, cells.get(index, []), columns, href) for index in range(columns)]
    words = f"{day.since:%A %d %B}: {tally(slots)}"
    drawing = element(
        "svg", *drawn, class_="cu-heat", height=HEIGHT, width="100%", role="img", aria_label=words
    )
    return HeatRow(f"{day.since:%a %d}", drawing)


def _cell(index: int, slots: Sequence[Slots], columns: int, href: Callable[[str], str] | None) -> Markup:
    width = 1 / columns
    place = {"x": percent((index + _GAP / 2) * width), "width": percent(width * (1 - _GAP))}
    if not slots:
        return element("rect", **place, y=1, height=HEIGHT - 2, rx=3, class_="cu-cell cu-nothing")
    worst = min(slots, key=lambda one: WORST_FIRST.index(mark_of(one.mark).name))
    mark = mark_of(worst.mark).name
    told = title(worst) if len(slots) == 1 else f"{stamp(slots[0].first)} and later: {tally(slots)}"
    rect = element(
        "rect",
        element("title", told),
        **place,
        y=1,
        height=HEIGHT - 2,
        rx=3,
        class_=f"cu-cell cu-{mark}",
    )
    shape = (
        glyph(mark, told, x=percent((index + 0.5) * width), y=2)
        if columns <= 48 and mark not in ("on_time", "upcoming", "missed")
        else Markup()
    )
    both = Markup(rect + shape)
    link = worst.run_id if worst.count == 1 and len(slots) == 1 else None
    return element("a", both, href=href(link), tabindex="-1") if href is not None and link else both
