"""A lane: the slots of an entry along the time axis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple, TypeAlias

from celery_catchup.flower.drawing.captions import caption, tooltip
from celery_catchup.flower.drawing.glyphs import draw_glyph, drawing, linked
from celery_catchup.flower.drawing.time_axis import TimeAxis, grid
from celery_catchup.flower.markup import Markup, element, join, percent
from celery_catchup.model import SlotMark
from celery_catchup.operations.timeline import TimelineSlots

HEIGHT = 28
_TOP = 6
# Shares of the width. Slots closer to each other than this would touch, and become one bar. It fits
# the 430 pixels of a lane on a wide page; on other widths the drawing is a little coarser or finer.
_TOUCHING = 4.0 / 430
_HALF = _TOUCHING / 2
_MOST_WIDE = 40  # slots of a lane that are drawn at full width

_BAR = {
    SlotMark.SKIPPED: (6, 4),
    SlotMark.UPCOMING: (7, 2),
    SlotMark.PAUSED: (3, 10),
    SlotMark.CAUGHT_UP: (0, 14),
    SlotMark.DUE: (1, 12),
    SlotMark.FAILED: (0, 16),
}
"""Top and height of a bar of many slots; other marks have those of a slot on time."""


SlotLink: TypeAlias = Callable[[datetime, datetime, str | None], str]
"""Returns the page of a run, or without one the page about the slots from the first time to the last."""


class DownTime(NamedTuple):
    """A time without a beat; ``until`` is None while beat is still down."""

    since: datetime
    until: datetime | None


def draw_lane(
    axis: TimeAxis,
    slots: Sequence[TimelineSlots],
    *,
    down_times: Iterable[DownTime] = (),
    name: str = "",
    href: SlotLink | None = None,
) -> Markup:
    """Draw the slots on one line, with bands where beat was down."""
    narrow = sum(one.count for one in slots) > _MOST_WIDE
    parts = [*grid(axis, HEIGHT), *draw_bands(axis, down_times, HEIGHT, href)]
    parts += [_draw(axis, one, href, narrow=narrow) for one in merge_touching(axis, slots)]
    words = f"{name}: {caption(slots)}" if name else caption(slots)
    return drawing(*parts, words=words, kind="lane", height=HEIGHT)


def draw_bands(
    axis: TimeAxis, down_times: Iterable[DownTime], height: int, href: SlotLink | None = None
) -> list[Markup]:
    """Draw a band over each time in which beat was down."""
    bands = []
    for since, until in down_times:
        if axis.overlaps(since, until or axis.until):
            left, right = axis.share(since), axis.share(until or axis.until)
            end = "still down" if until is None else axis.times.stamp(until)
            band = element(
                "rect",
                element("title", f"beat was down: {axis.times.stamp(since)} – {end}"),
                x=percent(left),
                width=percent(max(right - left, 0.004)),
                y=1,
                height=height - 2,
                rx=3,
                class_="cu-band",
            )
            bands.append(linked(band, href=_link(href, since, until or axis.until)))
    return bands


def merge_touching(axis: TimeAxis, slots: Iterable[TimelineSlots]) -> Iterator[TimelineSlots]:
    """Merge neighbours with the same mark and reason that would touch each other."""
    held: TimelineSlots | None = None
    for one in slots:
        if held is not None and _touch(axis, held, one):
            held = replace(held, last=one.last, count=held.count + one.count, run_id=None, started_at=None)
            continue
        if held is not None:
            yield held
        held = one
    if held is not None:
        yield held


def _touch(axis: TimeAxis, left: TimelineSlots, right: TimelineSlots) -> bool:
    return (
        (left.mark, left.reason) == (right.mark, right.reason)
        and not (left.counts or right.counts)
        and axis.share(right.first) - axis.share(left.last) < _TOUCHING
    )


def _link(href: SlotLink | None, first: datetime, last: datetime, run_id: str | None = None) -> str | None:
    return None if href is None else href(first, last, run_id)


def _draw(axis: TimeAxis, one: TimelineSlots, href: SlotLink | None, *, narrow: bool) -> Markup:
    left, right = axis.share(one.first), axis.share(one.last)
    apart = (right - left) / max(one.count - 1, 1)
    if one.count > 1 and apart < _TOUCHING:
        return linked(_bar(axis, one, left, right), href=_link(href, one.first, one.last))
    # Slots of one schedule that were recorded together are evenly spread, or nearly so.
    link = _link(href, one.first, one.last, one.run_id)
    places = [percent(left + index * apart) for index in range(one.count)]
    title = tooltip(one, axis.times)
    return join(draw_glyph(one.mark, title, x=place, y=_TOP, narrow=narrow, href=link) for place in places)


def _bar(axis: TimeAxis, one: TimelineSlots, left: float, right: float) -> Markup:
    top, height = _BAR.get(one.mark, (2, 12))
    return element(
        "rect",
        element("title", tooltip(one, axis.times)),
        x=percent(max(0.0, left - _HALF)),
        width=percent(min(1.0, right + _HALF) - max(0.0, left - _HALF)),
        y=_TOP + top,
        height=height,
        rx=1,
        class_=f"cu-slot cu-{one.mark} cu-many",
    )
