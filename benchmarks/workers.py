"""Workers: what the plugin costs a run, and an ordinary task."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.chains import NOTE, executed
from benchmarks.measuring import Findings, Row, Sample, Table
from benchmarks.stage import Stage

_PLUGIN = ["celery_catchup.worker"]
_SOLO = (
    "worker",
    "-P",
    "solo",
    "-l",
    "WARNING",
    "--without-gossip",
    "--without-mingle",
    "--without-heartbeat",
)
_HEADERS = ("worker executes", "tasks/s", "µs per task", "× ordinary without")


def measure(stage: Stage) -> Findings:
    """Real workers side by side; and the plugin's own part, in processor time inside one process."""
    whole = {
        "ordinary tasks, without the plugin": Sample(),
        "ordinary tasks, with it": Sample(),
        "runs": Sample(),
    }
    bare, plugged = Sample(), Sample()
    for _ in range(stage.scale.repeats):
        stage.say(f"workers: {stage.scale.tasks:,} tasks, three times")
        whole["ordinary tasks, without the plugin"].add(_ordinary(stage))
        whole["ordinary tasks, with it"].add(_ordinary(stage, imports=_PLUGIN))
        whole["runs"].add(_runs(stage))
        bare.add(stage.trial("tracing", "trace", plugin=False, count=stage.scale.tasks)["seconds"])
        plugged.add(stage.trial("tracing", "trace", plugin=True, count=stage.scale.tasks)["seconds"])
    ordinary = whole["ordinary tasks, without the plugin"].median
    rows = [
        [
            name,
            sample.shown(),
            Sample(1e6 / v for v in sample.values).shown(),
            f"{ordinary / sample.median:.2f}",
        ]
        for name, sample in whole.items()
    ]
    extra = min(plugged.values) - min(bare.values)
    rows.append(
        ["the plugin's part of an ordinary task", "–", f"{extra * 1e6:.2f}", f"{extra * ordinary:.4f}"]
    )
    cost = Row.at_most(
        "a run at its worker, against an ordinary task", ordinary / whole["runs"].median, 1.5, unit="×"
    )
    return Findings([Table("Workers", _HEADERS, rows, _NOTE)], [cost, _bar(extra, ordinary)])


_NOTE = (
    "One process (the solo pool), so that nothing is hidden by a second core. The last line is processor time"
    " inside one process, each at its best: the difference between two workers is smaller than their noise."
)


def _bar(extra: float, ordinary: float) -> Row:
    share = extra * ordinary * 100
    figures = f"{share:.2f} % ({extra * 1e6:.2f} µs)"
    return Row.at_most("what an ordinary task pays for the plugin", share, 1, unit="%", figures=figures)


def _ordinary(stage: Stage, **settings: Any) -> float:
    stage.clear()
    stage.trial("bare", "send_task", count=stage.scale.tasks, task=NOTE)
    return executed(stage, stage.scale.tasks, _SOLO, **settings)


def _runs(stage: Stage) -> float:
    prepare_runs(stage, stage.scale.tasks)
    return executed(stage, stage.scale.tasks, _SOLO, imports=_PLUGIN)


def prepare_runs(stage: Stage, count: int) -> None:
    """So many runs in the queue, none of which waits for another."""
    stage.clear()
    policy = {"window": f"{count + 60}m", "overlap_policy": "allow"}
    until_then = time.time() // 60 * 60 - 30
    shared: dict[str, Any] = {"count": 1, "policy": policy, "until": until_then, "task": NOTE}
    stage.trial("ours", "go_silent", minutes=count, **shared)
    stage.trial("ours", "recover", runs=count, **shared)
