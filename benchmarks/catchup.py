"""Catch-up: an outage is over, and everything missed is to become durable."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.measuring import Findings, Row, Sample, Table, limit_bar, share_bar
from benchmarks.stage import Stage

_MINUTE = 60
_HEADERS = (
    "missed",
    "runs",
    "until durable, s",
    "runs/s",
    "send_task of as many, s",
    "part of it",
    "memory, MiB",
)


def measure(stage: Stage) -> Findings:
    """Four outages; ``send_task`` of as many messages beside each where every slot becomes a run."""
    scale = stage.scale
    entries, each = scale.many
    window = f"{scale.years + scale.week + each + 60}m"
    everything, latest = {"window": window, "overlap_policy": "all"}, {"window": window, "select": "latest"}
    week = _Case(f"{scale.week:,} minutes of one entry, all", 1, scale.week, everything, scale.week)
    many = _Case(f"{entries:,} entries × {each} minutes, all", entries, each, everything, entries * each)
    years = _Case(f"{scale.years:,} minutes of one entry, latest", 1, scale.years, latest, 1)
    plain = _Case(f"{entries:,} entries × 180 minutes, no policy: one run each", entries, 180, None, entries)
    cases = [week, many, years, plain]
    for _ in range(scale.repeats):
        for case in cases:
            stage.say(f"catch-up: {case.title}")
            case.play(stage)
    table = Table("Catch-up", _HEADERS, [case.row() for case in cases], _NOTE)
    return Findings([table], _bars(week, many, years))


_NOTE = (
    "From the first tick after the start until all is in the ledger; send_task is timed on at most 10,000"
    " messages and scaled. Memory is the most that the beat had over what it had before it was built."
)


def _bars(week: _Case, many: _Case, years: _Case) -> list[Row]:
    return [
        share_bar(f"{week.title}: of send_task's time", week.seconds, week.limit, 1 / 20),
        limit_bar(years.title, years.seconds, 2, unit="s"),
        share_bar(f"{many.title}: of send_task's time", many.seconds, many.limit, 1 / 10),
    ]


class _Case:
    """One outage, played as often as one likes."""

    def __init__(self, title: str, entries: int, minutes: int, policy: Any, runs: int) -> None:
        self.title, self.entries, self.minutes, self.policy, self.runs = title, entries, minutes, policy, runs
        self.seconds, self.limit, self.memory = Sample(), Sample(), Sample()

    def play(self, stage: Stage) -> None:
        stage.clear()
        # In the middle of a minute, so that the number of slots is known.
        until = time.time() // _MINUTE * _MINUTE - _MINUTE / 2
        shared: dict[str, Any] = {"count": self.entries, "policy": self.policy, "until": until}
        stage.trial("ours", "go_silent", minutes=self.minutes, **shared)
        found = stage.trial("ours", "recover", runs=self.runs, **shared)
        self.seconds.add(found["seconds"])
        self.memory.add(found["peak"])
        if self.runs > 1:
            sent = stage.trial("bare", "send_task", count=min(self.runs, 10_000))
            self.limit.add(self.runs / sent["rate"])

    def row(self) -> list[str]:
        rate = Sample(self.runs / seconds for seconds in self.seconds.values)
        part = f"{self.seconds.median / self.limit.median:.3f}" if self.limit else "–"
        return [
            self.title,
            f"{self.runs:,}",
            self.seconds.shown(2),
            rate.shown() if self.runs > 1 else "–",
            self.limit.shown(2),
            part,
            self.memory.shown(1, scale=2**-20),
        ]
