"""Stored entries: one for each customer, created at run time, beside the same ones in the settings."""

from __future__ import annotations

from collections import defaultdict

from benchmarks.measuring import Findings, Row, Sample, Table, limit_bar, share_bar
from benchmarks.stage import Stage

_HEADERS = (
    "entries",
    "start, s of processor time",
    "idle tick, round trips",
    "idle tick, ms",
    "memory, KiB/entry",
)
_PAGES = {
    "page": "the tab",
    "later": "a page in the middle",
    "search": "a search",
    "prefix": "a prefix of a thousand, sorted by next slot",
    "stored": "the list of stored entries",
    "entry": "one entry",
    "api": "the API's list",
}


def measure(stage: Stage) -> Findings:
    """Start, idle ticks and memory of both kinds in turns, then writes and pages with stored ones."""
    count = max(*stage.scale.sizes, *stage.scale.own_sizes, 0)
    samples: dict[tuple[str, str], Sample] = defaultdict(Sample)
    for repeat in range(1 if count > 20_000 else stage.scale.repeats):
        for kind in ("declared", "stored"):
            stage.say(f"stored: {count:,} {kind} entries, {repeat + 1}")
            stage.clear()
            found = stage.trial("stored", "fill", count=count) if kind == "stored" else {}
            stage.trial("stored", "seed", kind=kind, count=count)
            found |= stage.trial("stored", "start", kind=kind, count=count, ticks=stage.scale.ticks)
            for name, value in found.items():
                samples[kind, name].add(value)
    stage.say("stored: single creates, and pages")
    for action in ("create", "pages"):
        for name, value in stage.trial("stored", action, count=count).items():
            samples["stored", name].add(value)
    rows = [_row(samples, kind, count) for kind in ("declared", "stored")]
    tables = [Table(f"Stored entries, {count:,}", _HEADERS, rows), _calls(samples)]
    return Findings(tables, _bars(samples, count))


def _row(samples: dict[tuple[str, str], Sample], kind: str, count: int) -> list[str]:
    memory = Sample(value / count / 1024 for value in samples[kind, "memory"].values)
    return [
        kind,
        samples[kind, "startup_cpu"].shown(2),
        samples[kind, "trips"].shown(),
        samples[kind, "idle_cpu"].shown(2, scale=1e3),
        memory.shown(1),
    ]


def _calls(samples: dict[tuple[str, str], Sample]) -> Table:
    def of(name: str) -> str:
        return samples["stored", name].shown(1, scale=1e3)

    rows = [
        ["create", of("create"), of("create_cpu")],
        *([f"Flower: {what}", of(name), of(f"{name}_cpu")] for name, what in _PAGES.items()),
    ]
    rate = samples["stored", "cpu_rate"].shown()
    note = f"`apply` stores {rate} entries a second, by the processor time of client and server together."
    return Table("Calls with all entries stored", ("call", "ms", "ms of processor time"), rows, note)


def _bars(samples: dict[tuple[str, str], Sample], count: int) -> list[Row]:
    def of(kind: str, name: str, scale: float = 1.0) -> Sample:
        return Sample(value * scale for value in samples[kind, name].values)

    at = f"{count:,} stored entries"
    slowest = max(_PAGES, key=lambda name: of("stored", name).median)
    return [
        share_bar(
            f"{at}, start, of declared ones'", of("stored", "startup_cpu"), of("declared", "startup_cpu"), 1
        ),
        share_bar(f"{at}, memory, of declared ones'", of("stored", "memory"), of("declared", "memory"), 1),
        limit_bar(f"{at}, idle tick", of("stored", "trips"), 1, unit="round trips"),
        limit_bar(f"{at}, a single create", of("stored", "create", 1e3), 5, unit="ms"),
        Row.at_least(f"{at} through apply", of("stored", "cpu_rate").median, 5_000, unit="/s"),
        limit_bar(f"{at}, slowest page: {_PAGES[slowest]}", of("stored", slowest, 1e3), 500, unit="ms"),
    ]
