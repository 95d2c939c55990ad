"""Queries: preview, status and lists while the ledger is large."""

from __future__ import annotations

from benchmarks.measuring import Findings, Sample, Table
from benchmarks.stage import Stage

ENTRIES = 100
_HEADERS = ("with {runs:,} runs in the ledger", "ms")


def measure(stage: Stage) -> Findings:
    """Each of the questions that people ask, in a process that has just connected."""
    runs = stage.scale.ledger
    stage.say(f"queries: {runs:,} runs are written")
    stage.clear()
    entries = min(ENTRIES, runs // 10)
    stage.trial("looks", "fill", runs=runs, entries=entries)
    samples: dict[str, Sample] = {}
    for repeat in range(stage.scale.repeats):
        stage.say(f"queries: {repeat + 1}")
        for what, seconds in stage.trial("looks", "look", runs=runs, entries=entries).items():
            samples.setdefault(what, Sample()).add(seconds)
    memory = stage.redis.info("memory")["used_memory"] / runs
    rows = [[what, sample.shown(1, scale=1e3)] for what, sample in samples.items()]
    headers = (_HEADERS[0].format(runs=runs), _HEADERS[1])
    return Findings([Table("Queries", headers, rows, f"The server holds {memory:,.0f} bytes per run.")])
