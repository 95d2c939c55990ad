"""What stands for a slot: a colour and a shape, so that nobody needs to tell colours apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from celery_catchup.flower.drawing.svg import Markup, element

HEIGHT = 16
"""Pixels: the height of every glyph."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One kind of slot: its name in words, and its shape as a path around x = 0."""

    name: str
    words: str
    path: str


MARKS: Mapping[str, Mark] = {
    mark.name: mark
    for mark in (
        Mark("on_time", "on time", "M-2.5 2h5v12h-5z"),
        # A house with a pointed roof: it came from elsewhere.
        Mark("caught_up", "caught up late", "M0 -1l3.5 5v10h-7v-10z"),
        # An exclamation mark.
        Mark("failed", "failed", "M-3 0h6l-1 9.5h-4zM-2 11.5h4v4h-4z"),
        Mark("skipped", "skipped by policy", "M-2.5 6h5v4h-5z"),
        Mark("missed", "missed, not recovered", "M-2.5 2h5v12h-5z"),
        # Two bars.
        Mark("paused", "entry paused", "M-3 3h2v10h-2zM1 3h2v10h-2z"),
        # A ball: it is still moving.
        Mark("in_flight", "waiting or running", "M-4 8a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z"),
        Mark("upcoming", "not yet due", "M-1.5 8a1.5 1.5 0 1 0 3 0a1.5 1.5 0 1 0 -3 0z"),
    )
}


def mark_of(name: str) -> Mark:
    """The mark by its name; a name from a newer version is shown as skipped."""
    return MARKS.get(name, MARKS["skipped"])


def glyph(
    name: str, title: str, *, x: str, y: float = 0, narrow: bool = False, href: str | None = None
) -> Markup:
    """One slot at ``x``, a share of the width; its title says what it is. A narrow one has close
    neighbours."""
    mark = mark_of(name)
    squeezed = "scale(0.6 1)" if narrow else None
    kind = f"cu-slot cu-{mark.name}"
    path = element("path", element("title", title), d=mark.path, class_=kind, transform=squeezed)
    # A nested drawing, because a path cannot be placed by percent.
    placed = element("svg", path, x=x, y=f"{y:g}", overflow="visible")
    # For the pointer only: a lane of a hundred slots must not be a hundred stops of the tabulator.
    return placed if href is None else element("a", placed, href=href, tabindex="-1")


def legend(names: Sequence[str], *, band: bool = True) -> Markup:
    """What the shapes mean."""
    items = [
        element(
            "li",
            element(
                "svg", _sample(mark_of(name)), width=14, height=HEIGHT, class_="cu-sample", aria_hidden="true"
            ),
            mark_of(name).words,
        )
        for name in names
    ]
    if band:
        sample = element(
            "svg",
            element("rect", width=14, height=HEIGHT, rx=2, class_="cu-band"),
            width=14,
            height=HEIGHT,
            class_="cu-sample",
            aria_hidden="true",
        )
        items.append(element("li", sample, "beat was down"))
    return element("ul", *items, class_="cu-legend", aria_label="Legend")


def _sample(mark: Mark) -> Markup:
    return element(
        "svg",
        element("path", d=mark.path, class_=f"cu-slot cu-{mark.name}"),
        x=7,
        overflow="visible",
    )
