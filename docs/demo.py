"""Draw the demo's outage, as it happened: ``python docs/demo.py`` plays the demo again and redraws it.

The recording is what ``celery catchup demo --compare`` printed, and the lines that the tasks wrote under
Celery's own scheduler. A test compares the committed drawing with the committed recording.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from pathlib import Path

IMAGES = Path(__file__).resolve().parent / "images"
DRAWING, PRINTED, CELERYS = (IMAGES / name for name in ("demo.svg", "demo.txt", "demo-celery.jsonl"))

ENTRY = re.compile(r"^ +(\S+) +every (\d+) s, wants (.+)$", re.MULTILINE)
SLOTS = re.compile(
    r"^(?P<entry>\S+) +(?P<first>[\d:.]{12})(?: to (?P<last>[\d:.]{12}))? +"
    r"(?:(?P<started>[\d:.]{12}) +\S+ s +(?P<trigger>\S+) +)?(?P<state>\w[\w ,()]*?)$",
    re.MULTILINE,
)
WORKER = re.compile(r"^ *([\d.]+)s +worker .* started ([\d:.]{12})", re.MULTILINE)
STORY = re.compile(r"^ *([\d.]+)s +beat is (killed|started again)", re.MULTILINE)

LEFT, WIDTH, RIGHT, TOP, LANE, ROW = 336, 510, 30, 62, 96, 24
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24323d; }
  .paper { fill: #ffffff; } .rule { stroke: #d5dde4; } .down { fill: #f6dcd5; }
  .name { font-weight: 600; } .small { font-size: 11.5px; fill: #5a6a76; }
  .due { stroke: #24323d; stroke-width: 2; } .way { stroke-width: 1.2; }
  .on-time { fill: #2c8a4b; stroke: #2c8a4b; } .caught-up { fill: #c77700; stroke: #c77700; }
  .unknown { fill: #7b8a96; }
  .skip { stroke: #7b8a96; stroke-width: 1.6; }
  @media (prefers-color-scheme: dark) {
    text { fill: #dfe7ee; } .paper { fill: #11181f; } .rule { stroke: #33414d; } .down { fill: #4a2620; }
    .small { fill: #9fb0bd; } .due { stroke: #dfe7ee; }
    .on-time { fill: #52c07a; stroke: #52c07a; } .caught-up { fill: #f0a33c; stroke: #f0a33c; }
  }
"""


@dataclass
class Lane:
    """One entry: what it wants, its slots with their runs, and the runs under Celery's own scheduler."""

    name: str
    wants: str
    due: list[float] = field(default_factory=list)
    runs: list[tuple[float, float, bool]] = field(default_factory=list)  # slot, start, caught up?
    skipped: list[tuple[float, float, str]] = field(default_factory=list)  # first, last, reason
    celerys: list[float] = field(default_factory=list)


@dataclass
class Recording:
    """The times of one demo, in seconds from its first slot."""

    lanes: list[Lane]
    killed: float
    restarted: float
    summary: str
    verdict: str

    @property
    def end(self) -> float:
        """Return the time of the last run that is drawn."""
        return max(start for lane in self.lanes for _, start, _ in lane.runs) + 1


def read(printed: str, celerys: str) -> Recording:
    """Read what a demo printed, and the tasks' lines under Celery's own scheduler."""
    intervals = {name: int(seconds) for name, seconds, _ in ENTRY.findall(printed)}
    lanes = {name: Lane(name, wants) for name, _, wants in ENTRY.findall(printed)}
    table = printed.rpartition("times in UTC:")[2]
    slots = [match for match in SLOTS.finditer(table) if match["entry"] in lanes]
    zero = min(_clock(match["first"]) for match in slots)
    for match in slots:
        lane, first = lanes[match["entry"]], _clock(match["first"]) - zero
        last = _clock(match["last"] or match["first"]) - zero
        every = intervals[lane.name]
        lane.due += [first + every * count for count in range(round((last - first) / every) + 1)]
        if match["started"]:
            lane.runs.append((first, _clock(match["started"]) - zero, match["trigger"] == "Catch-up"))
        else:
            lane.skipped.append((first, last, re.sub(r"^skipped \((?:.*, )?|\)$", "", match["state"])))
    for line in map(json.loads, celerys.splitlines()):
        started = datetime.fromtimestamp(line["started"] / 1000, UTC)
        lanes[line["entry"]].celerys.append(_clock(f"{started:%H:%M:%S.%f}") - zero)
    said, first_start = next(iter(WORKER.findall(printed)))
    begun = _clock(first_start) - zero - float(said)  # of the story, on the clock of the slots
    killed, restarted = (begun + float(seconds) for seconds, _ in STORY.findall(printed))
    (summary,) = re.findall(r"^\d+ slots: .*", printed, re.MULTILINE)
    (verdict,) = re.findall(r"^Celery's own scheduler made .*", printed, re.MULTILINE)
    return Recording(list(lanes.values()), killed, restarted, summary, verdict)


def drawing(recording: Recording) -> str:
    """Make the drawing: a lane for each entry, with its slots, Celery's runs and ours."""
    scale = WIDTH / (recording.end + 1)

    def x(seconds: float) -> str:
        return f"{LEFT + (seconds + 1) * scale:.1f}"

    bottom = TOP + LANE * len(recording.lanes)
    width, height = LEFT + WIDTH + RIGHT, bottom + 62
    down = (recording.restarted - recording.killed) * scale
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'aria-label="An outage of beat: the slots of three entries, and their runs under both schedulers">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{width}" height="{height}"/>',
        f'<rect class="down" x="{x(recording.killed)}" y="{TOP - 20}" width="{down:.1f}" '
        f'height="{bottom - TOP}"/>',
        f'<text x="{x(recording.killed)}" y="{TOP - 30}">beat is killed</text>',
        f'<text x="{x(recording.restarted)}" y="{TOP - 30}">… and started again</text>',
    ]
    for number, lane in enumerate(recording.lanes):
        parts += _lane(lane, TOP + LANE * number, x, width)
    parts += [
        f'<text x="16" y="{bottom + 20}">{escape(recording.summary)}</text>',
        f'<text x="16" y="{bottom + 42}">{escape(recording.verdict)}</text>',
    ]
    return "\n".join((*parts, "</svg>", ""))


def _lane(lane: Lane, y: int, x: Callable[[float], str], width: int) -> Iterator[str]:
    """Draw an entry: a tick for each slot, then a row for each scheduler."""
    theirs, ours = y + ROW, y + 2 * ROW
    yield f'<path class="rule" d="M16 {y - 20} H{width - 16}"/>'
    yield f'<text class="name" x="16" y="{y + 4}">{lane.name}</text>'
    yield f'<text class="small" x="16" y="{y + 20}">wants {escape(lane.wants)}</text>'
    for label, row in (("due", y), ("Celery's scheduler", theirs), ("celery-catchup", ours)):
        yield f'<text class="small" x="{LEFT - 8}" y="{row + 4}" text-anchor="end">{label}</text>'
    for slot in lane.due:
        yield f'<path class="due" d="M{x(slot)} {y - 6} v12"/>'
    for start in lane.celerys:
        yield f'<circle class="unknown" cx="{x(start)}" cy="{theirs}" r="4.5"/>'
    for slot, start, caught_up in lane.runs:
        kind = "caught-up" if caught_up else "on-time"
        yield f'<path class="{kind} way" d="M{x(slot)} {y + 7} L{x(start)} {ours}"/>'
        yield f'<circle class="{kind}" cx="{x(start)}" cy="{ours}" r="4.5"/>'
    for first, last, reason in lane.skipped:
        yield f'<path class="skip" d="M{x(first)} {ours} H{x(last)}"/>'
        yield f'<text class="small" x="{x(first)}" y="{ours + 16}">skipped, on record: {reason}</text>'


def _clock(text: str) -> float:
    """Convert ``05:44:31.234`` to seconds of the day."""
    hours, minutes, seconds = text.split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def play() -> tuple[str, str]:
    """Play the demo; return what it printed, and the tasks' lines under Celery's own scheduler."""
    command = [sys.executable, "-m", "celery_catchup", "demo", "--compare", "--keep"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    story, _, folder = printed.rpartition("The project, its logs and what the tasks wrote are in ")
    kept = Path(folder.strip())
    celerys = (kept / "celery" / "runs.jsonl").read_text(encoding="utf-8")
    shutil.rmtree(kept)
    return re.sub(r"leader=\S+?:", "leader=host:", story), celerys


if __name__ == "__main__":
    recorded = play()
    for path, text in zip((PRINTED, CELERYS), recorded, strict=True):
        path.write_text(text, encoding="utf-8")
    DRAWING.write_text(drawing(read(*recorded)), encoding="utf-8")
