"""Chains: runs that wait for one another, executed by a real worker, against ``celery.chain``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.measuring import Findings, Row, Sample, Table, ratio_bar
from benchmarks.stage import Stage, until

NOTE = "benchmarks.project.note"
_RELAY = "benchmarks.project.relay"
_WORKER = (
    "worker",
    "-c",
    "2",
    "-l",
    "WARNING",
    "--without-gossip",
    "--without-mingle",
    "--without-heartbeat",
)
_HEADERS = ("chain", "links", "links/s")
_FLAT = 0.8
"""A longer chain may be so much slower before its rate counts as falling: the machine is noisy."""


def measure(stage: Stage) -> Findings:
    """Ours at several lengths, Celery's at one, and the limit; the first link to the last."""
    scale = stage.scale
    ours = {length: Sample() for length in scale.chains}
    native, relay = Sample(), Sample()
    for _ in range(scale.repeats):
        for length, sample in ours.items():
            stage.say(f"chains: ours, {length:,}")
            sample.add(_ours(stage, length))
        stage.say(f"chains: celery.chain, {scale.native_chain:,}")
        native.add(_native(stage, scale.native_chain))
        stage.say(f"chains: a task that sends itself on, {scale.native_chain:,}")
        relay.add(_relay(stage, scale.native_chain))
    rows = [["celery-catchup", f"{length:,}", sample.shown()] for length, sample in ours.items()]
    rows.append(["celery.chain", f"{scale.native_chain:,}", native.shown()])
    rows.append(["a task that sends itself on", f"{scale.native_chain:,}", relay.shown()])
    return Findings([Table("Chains", _HEADERS, rows, _NOTE)], _bars(ours, native, scale.native_chain))


_NOTE = (
    "A real worker with two processes; links of a chain are executed one after the other. The last line is"
    " the limit: nothing is claimed or recorded, and it does not know how long it is."
)


def _bars(ours: dict[int, Sample], native: Sample, length: int) -> list[Row]:
    shortest, longest = min(ours), max(ours)
    flat = ours[longest].median / ours[shortest].median
    figures = f"{flat:.2f} of the rate at {shortest:,}"
    return [
        ratio_bar(f"chain of {longest:,} against celery.chain of {length:,}", ours[longest], native, 5),
        Row(f"chain of {longest:,}: flat in length", figures, f"≥ {_FLAT}", flat >= _FLAT),
    ]


def _ours(stage: Stage, length: int) -> float:
    stage.clear()
    until_then = time.time() // 60 * 60 - 30
    policy = {"window": f"{length + 60}m", "overlap_policy": "all"}
    shared: dict[str, Any] = {"count": 1, "policy": policy, "until": until_then, "task": NOTE}
    stage.trial("ours", "go_silent", minutes=length, **shared)
    stage.trial("ours", "recover", runs=length, **shared)
    return executed(stage, length, _WORKER, imports=["celery_catchup.worker"])


def _native(stage: Stage, length: int) -> float:
    stage.clear()
    stage.trial("bare", "native_chain", count=length, task=NOTE)
    return executed(stage, length, _WORKER)


def _relay(stage: Stage, length: int) -> float:
    stage.clear()
    stage.trial("bare", "send_task", count=1, task=_RELAY)
    return executed(stage, length, _WORKER)


def executed(stage: Stage, count: int, worker: tuple[str, ...], **settings: Any) -> float:
    """Let a worker execute what is in the queue; tasks per second from the first to the last of them."""
    diary = stage.own_folder() / "diary"
    with stage.celery(*worker, diary=str(diary), **settings):
        until(lambda: _count(diary) >= count, what=f"{count:,} tasks", patience=300, every=0.05)
    times = sorted(float(line.split()[0]) for line in diary.read_text().splitlines())
    return (len(times) - 1) / (times[-1] - times[0])


def _count(diary: Path) -> int:
    return diary.read_bytes().count(b"\n") if diary.exists() else 0
