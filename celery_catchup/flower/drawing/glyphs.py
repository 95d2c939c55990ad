"""Glyphs: the shape and the words of every mark, so that no information is in the colour alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from celery_catchup.flower.markup import Markup, element, join
from celery_catchup.model import SlotMark

HEIGHT = 16
"""Pixels: the height of every glyph."""


@dataclass(frozen=True, slots=True)
class Glyph:
    """The words of a mark, and its shape as a path around x = 0."""

    words: str
    path: str


GLYPHS: Mapping[SlotMark, Glyph] = {
    SlotMark.ON_TIME: Glyph("on time", "M-2.5 2h5v12h-5z"),
    # A house with a pointed roof.
    SlotMark.CAUGHT_UP: Glyph("caught up late", "M0 -1l3.5 5v10h-7v-10z"),
    # An exclamation mark.
    SlotMark.FAILED: Glyph("failed", "M-3 0h6l-1 9.5h-4zM-2 11.5h4v4h-4z"),
    SlotMark.SKIPPED: Glyph("skipped by policy", "M-2.5 6h5v4h-5z"),
    # As on time, but hollow and dashed.
    SlotMark.MISSED: Glyph("missed, not recovered", "M-2.5 2h5v12h-5z"),
    # As caught up, but hollow.
    SlotMark.DUE: Glyph("due, will be caught up", "M0 1l3 4v8h-6v-8z"),
    # Two bars.
    SlotMark.PAUSED: Glyph("entry paused", "M-3 3h2v10h-2zM1 3h2v10h-2z"),
    # A disc.
    SlotMark.IN_FLIGHT: Glyph("waiting or running", "M-4 8a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z"),
    # A dot.
    SlotMark.UPCOMING: Glyph("not yet due", "M-1.5 8a1.5 1.5 0 1 0 3 0a1.5 1.5 0 1 0 -3 0z"),
}
"""One row per mark, in the order of the legend."""


def draw_glyph(
    mark: SlotMark, title: str, *, x: str, y: float = 0, narrow: bool = False, href: str | None = None
) -> Markup:
    """Draw one slot at ``x``, a share of the width; ``narrow`` where slots are close to each other."""
    shape = _shape(mark, element("title", title), transform="scale(0.6 1)" if narrow else None)
    # A nested drawing, because a path cannot be placed by percent.
    placed = element("svg", shape, x=x, y=f"{y:g}", overflow="visible")
    return linked(placed, href=href)


def linked(*shapes: Markup, href: str | None) -> Markup:
    """Make a link of shapes, for the pointer only: a lane of a hundred slots is not a hundred tab stops."""
    return join(shapes) if href is None else element("a", *shapes, href=href, tabindex="-1")


def drawing(*shapes: Markup, words: str, kind: str, height: int) -> Markup:
    """Wrap shapes as a drawing, which a screen reader replaces by the words."""
    svg = element("svg", *shapes, class_=f"cu-{kind}", height=height, width="100%", aria_hidden="true")
    return join([element("span", words, class_="cu-hidden"), svg])


def legend(marks: Iterable[SlotMark], *, with_band: bool = True) -> Markup:
    """Draw the glyphs of these marks with their words."""
    samples = [(element("svg", _shape(mark), x=7, overflow="visible"), GLYPHS[mark].words) for mark in marks]
    if with_band:
        samples.append((element("rect", width=14, height=HEIGHT, rx=2, class_="cu-band"), "beat was down"))
    items = [
        element(
            "li",
            element("svg", sample, width=14, height=HEIGHT, class_="cu-sample", aria_hidden="true"),
            words,
        )
        for sample, words in samples
    ]
    return element("ul", *items, class_="cu-legend", aria_label="Legend")


def _shape(mark: SlotMark, *content: Markup, transform: str | None = None) -> Markup:
    return element("path", *content, d=GLYPHS[mark].path, class_=f"cu-slot cu-{mark}", transform=transform)
