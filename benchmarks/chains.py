"""Chains: runs that wait for one another, executed by a real worker, against ``celery.chain``."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
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
    return chained(stage, "Chains", least=5)


def chained(stage: Stage, title: str, *, least: float) -> Findings:
    """The same on the broker of the stage; ours has to be ``least`` times as fast as Celery's."""
    scale = stage.scale
    ours = {length: Sample() for length in scale.chains}
    others = {name: Sample() for name in _OTHERS}
    for _ in range(scale.repeats):
        for length, sample in ours.items():
            stage.say(f"chains: ours, {length:,}")
            sample.add(_ours(stage, length))
        for name, action in _OTHERS.items():
            stage.say(f"chains: {name}, {scale.native_chain:,}")
            others[name].add(action(stage, scale.native_chain))
    rows = [["celery-catchup", f"{length:,}", sample.shown()] for length, sample in ours.items()]
    rows += [[name, f"{scale.native_chain:,}", sample.shown()] for name, sample in others.items()]
    bars = _bars(ours, others, scale.native_chain, f"chain{title.removeprefix('Chains')}", least)
    return Findings([Table(title, _HEADERS, rows, _NOTE)], bars)


_NOTE = (
    "A real worker with two processes; links of a chain are executed one after the other. With slots: each"
    " link tells its task for which slot it runs, as ours do. The last line is the limit: nothing is claimed"
    " or recorded, and it does not know how long it is."
)


def _bars(
    ours: dict[int, Sample], others: dict[str, Sample], length: int, what: str, least: float
) -> list[Row]:
    shortest, longest = min(ours), max(ours)
    flat = ours[longest].median / ours[shortest].median
    figures = f"{flat:.2f} of the rate at {shortest:,}"
    return [
        *(
            ratio_bar(
                f"{what} of {longest:,} against {name} of {length:,}", ours[longest], others[name], least
            )
            for name in (_NATIVE, _TOLD)
        ),
        Row(f"{what} of {longest:,}: flat in length", figures, f"≥ {_FLAT}", flat >= _FLAT),
    ]


def _ours(stage: Stage, length: int) -> float:
    stage.clear()
    until_then = time.time() // 60 * 60 - 30
    policy = {"window": f"{length + 60}m", "overlap_policy": "all"}
    shared: dict[str, Any] = {"count": 1, "policy": policy, "until": until_then, "task": NOTE}
    stage.trial("ours", "go_silent", minutes=length, **shared)
    stage.trial("ours", "recover", runs=length, **shared)
    return executed(stage, length, _WORKER, imports=["celery_catchup.worker"])


def _native(stage: Stage, length: int, *, slots: bool = False) -> float:
    stage.clear()
    stage.trial("bare", "native_chain", count=length, task=NOTE, slots=slots)
    return executed(stage, length, _WORKER)


def _relay(stage: Stage, length: int) -> float:
    stage.clear()
    stage.trial("bare", "send_task", count=1, task=_RELAY)
    return executed(stage, length, _WORKER)


_NATIVE, _TOLD = "celery.chain", "celery.chain with slots"
_OTHERS: dict[str, Callable[[Stage, int], float]] = {
    _NATIVE: _native,
    _TOLD: partial(_native, slots=True),
    "a task that sends itself on": _relay,
}


def executed(stage: Stage, count: int, worker: tuple[str, ...], **settings: Any) -> float:
    """Let a worker execute what is in the queue; tasks per second from the first to the last of them."""
    diary = stage.own_folder() / "diary"
    with stage.celery(*worker, diary=str(diary), **settings) as program:
        try:
            until(lambda: _count(diary) >= count, what=f"{count:,} tasks", patience=300, every=0.05)
        except TimeoutError as error:
            found = f"{_count(diary):,} were executed, {stage.waiting():,} messages wait in the queue"
            raise TimeoutError(f"{error}: {found}; the worker says:\n{program.last_words()}") from error
    times = sorted(float(line.split()[0]) for line in diary.read_text().splitlines())
    return (len(times) - 1) / (times[-1] - times[0])


def _count(diary: Path) -> int:
    return diary.read_bytes().count(b"\n") if diary.exists() else 0
