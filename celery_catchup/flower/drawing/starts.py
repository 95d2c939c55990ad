"""Scheduled against started: a line from each slot down to the moment when its run began."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from celery_catchup.flower.drawing.glyphs import mark_of
from celery_catchup.flower.drawing.lanes import Down, bands
from celery_catchup.flower.drawing.span import Span, axis, grid
from celery_catchup.flower.drawing.svg import Markup, element, percent
from celery_catchup.flower.drawing.tallies import Slots, tally, title
from celery_catchup.flower.labels import length

HEIGHT = 124
_ABOVE, _BELOW = 36, 108
_THIN = 6
_MOST_DOTS = 120  # with more of them the lines alone are clearer


def starts(span: Span, slots: Sequence[Slots], *, downs: Sequence[Down] = ()) -> Markup:
    """Upright lines are punctual runs; the more a line leans, the later its run began."""
    seen = [one for one in slots if span.since <= one.first <= span.until]
    dots = sum(one.count for one in seen) <= _MOST_DOTS
    parts = [*grid(span, HEIGHT), *bands(span, downs, HEIGHT), *_labels(span, downs)]
    parts += [_one(span, one, dots=dots) for one in seen]
    drawing = element(
        "svg", *parts, class_="cu-starts", height=HEIGHT, width="100%", role="img", aria_label=_words(seen)
    )
    return Markup(drawing + axis(span))


def _one(span: Span, one: Slots, *, dots: bool) -> Markup:
    if one.count > 1:
        return _many(span, one)
    above = percent(span.share(one.first))
    kind = f"cu-{mark_of(one.mark).name}"
    told = element("title", title(one))
    line = f"cu-line {kind}" if dots else f"cu-line cu-thin {kind}"
    parts = []
    if one.started_at is not None:
        below = percent(span.share(one.started_at))
        parts.append(element("line", told, x1=above, y1=_ABOVE, x2=below, y2=_BELOW, class_=line))
        if dots:
            parts.append(element("circle", told, cx=below, cy=_BELOW, r=4, class_=f"cu-dot {kind}"))
    if dots or one.started_at is None:
        parts.append(element("circle", told, cx=above, cy=_ABOVE, r=4, class_=f"cu-ring {kind}"))
    return Markup("".join(parts))


def _many(span: Span, one: Slots) -> Markup:
    """Slots that are told together: an area down to the starts of punctual ones; of others, whose
    starts differ, only the slots."""
    name = mark_of(one.mark).name
    left, right = span.share(one.first), span.share(one.last)
    height = _BELOW - _ABOVE if name == "on_time" else _THIN
    return element(
        "rect",
        element("title", title(one)),
        x=percent(left),
        width=percent(max(right - left, 0.002)),
        y=_ABOVE,
        height=height,
        class_=f"cu-area cu-{name}",
    )


def _labels(span: Span, downs: Iterable[Down]) -> list[Markup]:
    """What the widest band is; others tell it to the pointer."""
    seen = [(down.since, down.until or span.until) for down in downs]
    wide = [(since, until) for since, until in seen if span.meets(since, until)]
    if not wide:
        return []
    since, until = max(wide, key=lambda pair: pair[1] - pair[0])
    late = span.share(until) > 0.5
    # Written towards the side where there is room.
    return [
        element(
            "text",
            f"beat down {since:%H:%M} – {until:%H:%M} ({length(until - since)})",
            x=percent(span.share(until if late else since)),
            dx=-6 if late else 6,
            y=16,
            text_anchor="end" if late else "start",
            class_="cu-down",
        )
    ]


def _words(slots: Sequence[Slots]) -> str:
    lags = [one.started_at - one.first for one in slots if one.started_at is not None]
    longest = max(lags, default=timedelta())
    return f"Scheduled against started. {tally(slots)}. Largest lag {length(longest)}."
