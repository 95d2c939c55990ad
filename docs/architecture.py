"""Draw the rooms of the package and the way of a slot through them: ``python docs/architecture.py``.

The rows are the layers of the import contract in pyproject.toml, so the drawing cannot disagree with it; a
test compares the committed drawing with what this script makes.
"""

from __future__ import annotations

import tomllib
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
DRAWING = HERE / "images" / "architecture.svg"
CONTRACT = "Each room imports from lower rooms only"

SAYS = {
    "cli": "celery catchup …",
    "flower": "tab and HTTP API",
    "django": "policies in Django's admin",
    "demo": "an outage, played",
    "testing": "for users' tests",
    "operations": "what an operator can do",
    "beat": "Celery's side of beat",
    "worker_plugin": "claim, renew, report",
    "metrics": "Prometheus",
    "dispatch": "a run becomes a message",
    "notifications": "tell receivers, over HTTP",
    "engine": "the leader's work",
    "stored_entries": "entries made at run time",
    "store": "all of Redis, in Lua scripts",
    "events": "log lines, signals",
    "planning": "what happens to each slot",
    "config": "what the user wrote",
    "timetables": "when a schedule fires",
}
"""A few words on each room; single files of the top are not drawn."""
ON_THE_WAY = ("beat", "worker_plugin", "dispatch", "engine", "store", "planning")
"""Rooms that a slot passes; they stand in a column of their own."""
OUTSIDE = {"celery beat": "beat", "celery worker": "worker_plugin", "broker": "dispatch", "Redis": "store"}
"""What is not ours, each beside the room that talks to it."""
FOREIGN = "not part of the package"
STEPS = (
    ("celery beat", "beat", "Celery calls tick()."),
    ("beat", "engine", "The scheduler lets the engine lead and advance."),
    ("engine", "planning", "The planner decides on every slot that is due: run or skip, with the reason."),
    ("engine", "dispatch", "Celery builds the message of each run; it is captured as a template."),
    ("engine", "store", "One script commits runs, skips and watermarks."),
    (
        "store",
        "Redis",
        "The message goes out in the same step if Redis is the broker, else through the outbox.",
    ),
    ("broker", "celery worker", "A worker receives the message."),
    (
        "celery worker",
        "worker_plugin",
        "The plugin claims the run, renews its lease and reports the outcome.",
    ),
    ("worker_plugin", "store", "The script that records the outcome releases the next run of the chain."),
)
"""The way of a slot: who calls whom, and for what."""

BOX, HEIGHT, ROW, TOP = 196, 46, 66, 16
COLUMNS = {"beside": 20, "way": 250, "outside": 640}
STYLE = """
  text { font-family: system-ui, sans-serif; fill: #1c2b36; }
  .paper { fill: #ffffff; }
  .room { fill: #eef3f8; stroke: #5b7083; }
  .pure { fill: #edf7ee; stroke: #5a7f5d; }
  .outside { fill: #f6f1e7; stroke: #8a7a55; stroke-dasharray: 4 3; }
  .name { font-size: 15px; font-weight: 600; }
  .says { font-size: 12px; fill: #44525e; }
  .step { stroke: #b3541e; stroke-width: 2; fill: none; marker-end: url(#tip); }
  .number { fill: #b3541e; }
  .digit { font-size: 11px; font-weight: 700; fill: #ffffff; text-anchor: middle; }
"""
PURE = {"planning", "config", "timetables"}


def layers() -> list[list[str]]:
    """Read the rooms of each layer, highest first."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (contract,) = (one for one in contracts if one["name"] == CONTRACT)
    return [[room.strip(" ()") for room in layer.split("|")] for layer in contract["layers"]]


def places() -> dict[str, tuple[int, int]]:
    """Place each room in the row of its layer, and what is outside beside its room."""
    found, row = dict[str, tuple[int, int]](), 0
    for layer in layers():
        rooms = [room for room in layer if room in SAYS]
        beside = [room for room in rooms if room not in ON_THE_WAY]
        for room in rooms:
            column = "way" if room in ON_THE_WAY or room in beside[1:] else "beside"
            found[room] = COLUMNS[column], TOP + row * ROW
        row += bool(rooms)
    return found | {name: (COLUMNS["outside"], found[room][1]) for name, room in OUTSIDE.items()}


def drawing() -> str:
    """Make the drawing: rooms, what is outside, the numbered way, and its legend."""
    where = places()
    bottom = max(y for _, y in where.values()) + ROW
    width, height = COLUMNS["outside"] + BOX + 40, bottom + 20 * len(STEPS) + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'aria-label="The rooms of the package, and the way of a slot through them">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#b3541e"/></marker></defs>',
        f'<rect class="paper" width="{width}" height="{height}"/>',
    ]
    for name, (x, y) in where.items():
        kind = "outside" if name in OUTSIDE else "pure" if name in PURE else "room"
        parts += [
            f'<rect class="{kind}" x="{x}" y="{y}" width="{BOX}" height="{HEIGHT}" rx="8"/>',
            f'<text class="name" x="{x + 12}" y="{y + 20}">{name}</text>',
            f'<text class="says" x="{x + 12}" y="{y + 37}">{escape(SAYS.get(name, FOREIGN))}</text>',
        ]
    for number, (caller, called, what) in enumerate(STEPS, 1):
        y = bottom + 20 * number - 12
        parts += [*_arrow(number, where[caller], where[called]), *_badge(number, 32, y)]
        parts.append(f'<text class="says" x="48" y="{y + 4}">{escape(what)}</text>')
    return "\n".join((*parts, "</svg>", ""))


def _arrow(number: int, start: tuple[int, int], end: tuple[int, int]) -> list[str]:
    """Draw one step: straight within a row, else along a lane of its own at the right of the rooms."""
    (x1, y1), (x2, y2) = start, end
    shift = 4 * (number % 5) - 8
    if y1 == y2:
        left, right = min(x1, x2) + BOX, max(x1, x2)
        ends = (left, right - 2) if x1 < x2 else (right, left + 2)
        y = y1 + HEIGHT // 2 + shift
        return [
            f'<path class="step" d="M{ends[0]} {y} H{ends[1]}"/>',
            *_badge(number, right - 20 * (number % 3) - 20, y),
        ]
    lane = max(x1, x2) + BOX + 20 * number - (20 if x1 == COLUMNS["way"] else 130)
    a, b = y1 + HEIGHT // 2 + shift, y2 + HEIGHT // 2 + shift
    path = f'<path class="step" d="M{x1 + BOX} {a} H{lane} V{b} H{x2 + BOX + 2}"/>'
    return [path, *_badge(number, lane, (a + b) // 2)]


def _badge(number: int, x: int, y: int) -> list[str]:
    return [
        f'<circle class="number" cx="{x}" cy="{y}" r="9"/>',
        f'<text class="digit" x="{x}" y="{y + 4}">{number}</text>',
    ]


if __name__ == "__main__":
    DRAWING.write_text(drawing(), encoding="utf-8")
