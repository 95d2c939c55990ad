"""Scheduled against started: a line from each slot down to the time when its run started."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from celery_catchup.flower.drawing.captions import caption, tooltip
from celery_catchup.flower.drawing.glyphs import drawing, linked
from celery_catchup.flower.drawing.lanes import DownTime, SlotLink, draw_bands
from celery_catchup.flower.drawing.time_axis import TimeAxis, grid, hour_labels
from celery_catchup.flower.markup import Markup, duration, element, join, percent
from celery_catchup.model import SlotMark
from celery_catchup.operations.timeline import TimelineSlots

HEIGHT = 124
_TOP, _BOTTOM = 36, 108
_THIN = 6
_MOST_DOTS = 120  # slots; with more of them the lines alone are clearer


def draw_starts(
    axis: TimeAxis,
    slots: Sequence[TimelineSlots],
    *,
    down_times: Sequence[DownTime] = (),
    href: SlotLink | None = None,
) -> Markup:
    """Draw a vertical line for a run on time; the later a run started, the more its line leans."""
    shown = [one for one in slots if axis.since <= one.first <= axis.until]
    dots = sum(one.count for one in shown) <= _MOST_DOTS
    parts = [
        *grid(axis, HEIGHT),
        *draw_bands(axis, down_times, HEIGHT, href),
        *_down_label(axis, down_times),
        *(
            linked(
                _area(axis, one) if one.count > 1 else _line(axis, one, dots=dots),
                href=None if href is None else href(one.first, one.last, one.run_id),
            )
            for one in shown
        ),
    ]
    lags = [one.started_at - one.first for one in shown if one.started_at is not None]
    largest = duration(max(lags, default=timedelta()))
    words = f"Scheduled against started. {caption(shown)}. Largest lag {largest}."
    return join([drawing(*parts, words=words, kind="starts", height=HEIGHT), hour_labels(axis)])


def _line(axis: TimeAxis, one: TimelineSlots, *, dots: bool) -> Markup:
    top = percent(axis.share(one.first))
    kind = f"cu-{one.mark}"
    title = element("title", tooltip(one, axis.times))
    parts = []
    if one.started_at is not None:
        bottom = percent(axis.share(one.started_at))
        line = f"cu-line {kind}" if dots else f"cu-line cu-thin {kind}"
        parts.append(element("line", title, x1=top, y1=_TOP, x2=bottom, y2=_BOTTOM, class_=line))
        if dots:
            parts.append(element("circle", title, cx=bottom, cy=_BOTTOM, r=4, class_=f"cu-dot {kind}"))
    if dots or one.started_at is None:
        parts.append(element("circle", title, cx=top, cy=_TOP, r=4, class_=f"cu-ring {kind}"))
    return join(parts)


def _area(axis: TimeAxis, one: TimelineSlots) -> Markup:
    """Draw merged slots: on time, an area down to their starts; else only the slots, as starts differ."""
    left, right = axis.share(one.first), axis.share(one.last)
    return element(
        "rect",
        element("title", tooltip(one, axis.times)),
        x=percent(left),
        width=percent(max(right - left, 0.002)),
        y=_TOP,
        height=_BOTTOM - _TOP if one.mark is SlotMark.ON_TIME else _THIN,
        class_=f"cu-area cu-{one.mark}",
    )


def _down_label(axis: TimeAxis, down_times: Sequence[DownTime]) -> list[Markup]:
    """Label the longest band; the others have only tooltips."""
    ended = [(since, until or axis.until) for since, until in down_times]
    on_axis = [(since, until) for since, until in ended if axis.overlaps(since, until)]
    if not on_axis:
        return []
    since, until = max(on_axis, key=lambda pair: pair[1] - pair[0])
    words = f"{axis.times.at(since):%H:%M} – {axis.times.at(until):%H:%M} ({duration(until - since)})"
    right = axis.share(until) > 0.5
    return [
        element(
            "text",
            f"beat down {words}",
            x=percent(axis.share(until if right else since)),
            dx=-6 if right else 6,  # towards the side with more room
            y=16,
            text_anchor="end" if right else "start",
            class_="cu-down",
        )
    ]
