"""A drawing of the bars that compare with others: how many times as fast, on a logarithmic scale."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape

from benchmarks.measuring import Row

_RATIO = re.compile(r"([\d,.]+) ×$")
_LINE, _LEFT, _WIDTH, _MARGIN, _TOP = 26, 430, 420, 60, 34
_DECADES = (0.1, 1, 10, 100)
_LABEL = 40
"""The width of a figure beside its bar; it is written behind a line that would cross it."""


def ratios(bars: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """The measured and the wanted ratio of each bar that says how many times as fast ours is."""
    found = {}
    for bar in bars:
        measured, wanted = _RATIO.search(bar.figures), _RATIO.search(bar.bar)
        if measured and wanted and bar.bar.startswith("≥"):
            found[bar.what] = _number(measured[1]), _number(wanted[1])
    return found


def drawn(bars: Sequence[Row]) -> str:
    """The drawing as SVG; a line across each bar is what is wanted."""
    rows = ratios(bars)
    width, height = _LEFT + _WIDTH + _MARGIN, _TOP + _LINE * len(rows) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'aria-label="How many times as fast as others" font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for value in _DECADES:
        x = _place(value)
        parts.append(f'<line x1="{x}" y1="{_TOP - 6}" x2="{x}" y2="{height - 8}" stroke="#d0d7de"/>')
        parts.append(f'<text x="{x}" y="{_TOP - 14}" fill="#57606a" text-anchor="middle">{value:g} ×</text>')
    for number, (what, (measured, wanted)) in enumerate(rows.items()):
        y, start, end, line = _TOP + _LINE * number, _place(1), _place(measured), _place(wanted)
        right = max(start, end)
        if right < line < right + _LABEL:
            right = line
        colour = "#2da44e" if measured >= wanted else "#cf222e"
        parts += [
            f'<text x="{_LEFT - 12}" y="{y + 14}" fill="#24292f" text-anchor="end">{escape(what)}</text>',
            f'<rect x="{min(start, end)}" y="{y + 3}" width="{abs(end - start):.1f}" height="14" '
            f'fill="{colour}"/>',
            f'<line x1="{line}" y1="{y}" x2="{line}" y2="{y + 20}" stroke="#24292f"/>',
            f'<text x="{right + 6:.1f}" y="{y + 14}" fill="#24292f">{measured:,.2f}</text>',
        ]
    return "\n".join((*parts, "</svg>", ""))


def _place(value: float) -> float:
    """Where a ratio is on the logarithmic axis."""
    first, last = math.log10(_DECADES[0]), math.log10(_DECADES[-1])
    part = (math.log10(max(value, _DECADES[0])) - first) / (last - first)
    return round(_LEFT + _WIDTH * min(part, 1.0), 1)


def _number(text: str) -> float:
    return float(text.replace(",", ""))
