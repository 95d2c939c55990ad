"""A lane: the slots of an entry along a span of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from celery_catchup.flower.drawing.glyphs import glyph, mark_of
from celery_catchup.flower.drawing.span import Span, grid
from celery_catchup.flower.drawing.svg import Markup, element, percent
from celery_catchup.flower.drawing.tallies import Slots, stamp, tally, title

HEIGHT = 28
_TOP = 6
# Shares of the width. Slots nearer to each other than this would touch: they become one bar. It
# is right for the 430 pixels of a lane on a wide page, and no drawing is wrong on another.
_TOUCHING = 4.0 / 430
_HALF = _TOUCHING / 2
_CLOSE = 40  # slots in a lane; with more of them each is drawn narrower

_BAR = {"skipped": (6, 4), "upcoming": (7, 2), "paused": (3, 10), "caught_up": (0, 14), "failed": (0, 16)}
"""Top and height of a bar of many slots, where it is not as high as one on time."""


class Down(Protocol):
    """A time in which no beat was there; ``until`` is None while there still is none."""

    @property
    def since(self) -> datetime:
        """Its last sign of life."""

    @property
    def until(self) -> datetime | None:
        """When a beat was back."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Slots of one kind that are drawn as one."""

    first: datetime
    last: datetime
    count: int
    mark: str
    reason: str | None
    run_id: str | None = None
    started_at: datetime | None = None
    counts: Mapping[str, int] | None = None


def lane(
    span: Span,
    slots: Sequence[Slots],
    *,
    downs: Iterable[Down] = (),
    name: str = "",
    href: Callable[[str], str] | None = None,
) -> Markup:
    """The slots on one line, with bands where beat was down; all of it also in words.

    Slots of one kind that would touch are one bar with their number in its title.
    """
    parts = [*grid(span, HEIGHT), *bands(span, downs, HEIGHT)]
    narrow = sum(one.count for one in slots) > _CLOSE
    parts += [_drawn(span, piece, href, narrow=narrow) for piece in merged(span, slots)]
    words = f"{name}: {tally(slots)}" if name else tally(slots)
    return element("svg", *parts, class_="cu-lane", height=HEIGHT, width="100%", role="img", aria_label=words)


def bands(span: Span, downs: Iterable[Down], height: int) -> list[Markup]:
    """Where beat was down."""
    drawn = []
    for down in downs:
        until = down.until or span.until
        if span.meets(down.since, until):
            left, right = span.share(down.since), span.share(until)
            back = "still down" if down.until is None else stamp(down.until)
            drawn.append(
                element(
                    "rect",
                    element("title", f"beat was down: {stamp(down.since)} – {back}"),
                    x=percent(left),
                    width=percent(max(right - left, 0.004)),
                    y=1,
                    height=height - 2,
                    rx=3,
                    class_="cu-band",
                )
            )
    return drawn


def merged(span: Span, slots: Iterable[Slots]) -> Iterator[Slots]:
    """The slots in order, those of one kind that would touch each other as one."""
    held: Slots | None = None
    for one in slots:
        if held is not None and _touch(span, held, one):
            held = _Piece(held.first, one.last, held.count + one.count, one.mark, held.reason)
            continue
        if held is not None:
            yield held
        held = one
    if held is not None:
        yield held


def _touch(span: Span, left: Slots, right: Slots) -> bool:
    same = (left.mark, left.reason) == (right.mark, right.reason)
    return (
        same
        and not (left.counts or right.counts)
        and span.share(right.first) - span.share(left.last) < _TOUCHING
    )


def _drawn(span: Span, one: Slots, href: Callable[[str], str] | None, *, narrow: bool) -> Markup:
    if one.count == 1:
        link = href(one.run_id) if href is not None and one.run_id else None
        place = percent(span.share(one.first))
        return glyph(one.mark, title(one), x=place, y=_TOP, narrow=narrow, href=link)
    left, right = span.share(one.first), span.share(one.last)
    apart = (right - left) / (one.count - 1)
    if apart >= _TOUCHING:
        # Slots of one schedule that were recorded together: they are as good as evenly spread.
        places = [percent(left + index * apart) for index in range(one.count)]
        drawn = [glyph(one.mark, title(one), x=place, y=_TOP, narrow=narrow) for place in places]
        return Markup("".join(drawn))
    return _bar(one, left, right)


def _bar(one: Slots, left: float, right: float) -> Markup:
    top, height = _BAR.get(one.mark, (2, 12))
    return element(
        "rect",
        element("title", title(one)),
        x=percent(max(0.0, left - _HALF)),
        width=percent(min(1.0, right + _HALF) - max(0.0, left - _HALF)),
        y=_TOP + top,
        height=height,
        rx=1,
        class_=f"cu-slot cu-{mark_of(one.mark).name} cu-many",
    )
