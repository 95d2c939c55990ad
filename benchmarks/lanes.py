"""Lanes: how late live runs start while a backlog drains, and how fast it drains meanwhile."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.lateness import lines, spread
from benchmarks.measuring import Findings, Row, Table
from benchmarks.stage import RABBITMQ, ROOT, Stage, answers, environment, until
from celery_catchup.store import Keys

_BROKERS = {"Redis": "", "RabbitMQ": RABBITMQ}
_ENTRIES = 20
"""Entries that have missed hourly slots; an outage rarely concerns one entry alone."""
_AT_ONCE = 8
"""Processes of the worker of the lane, and catch-up runs that may be queued or running for each of them."""
_TASK = 0.03
"""Seconds that a catch-up run waits, as for a database: a task that only computes would take the processors
of this machine from the live runs, and no scheduler could help that."""
_WINDOW = 10.0
"""Seconds of live slots that have a p99 of their own."""
_QUIET = ("-l", "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat")
_HEADERS = (
    "broker", "live p50, ms: idle", "with backlog", "live p99, ms: idle", "with backlog", "×",
    "p99 of all, ms: idle", "with backlog", "catch-up runs/s: alone", "with live runs", "part of it",
)  # fmt: skip


@dataclass(frozen=True)
class _Lateness:
    """Live runs of one part: the median and the p99 of each window, and the p99 of all; in seconds."""

    p50: float
    p99: float
    p99_of_all: float


@dataclass(frozen=True)
class _Drained:
    """The backlog's rate, and how late live runs were without it and during it."""

    rate: float
    idle: _Lateness | None = None
    busy: _Lateness | None = None


def measure(stage: Stage) -> Findings:
    """The same backlog alone and beside live slots, with one worker for each queue, on both brokers."""
    brokers = {name: url for name, url in _BROKERS.items() if not url or answers(url)}
    found, rows = Findings(), list[list[str]]()
    for name, url in brokers.items():
        with stage.on(url) if url else nullcontext():
            stage.say(f"lanes: {stage.scale.backlog:,} runs alone, {name}")
            alone = _drain(stage, live=0)
            stage.say(f"lanes: the same beside {stage.scale.live} live slots per second, {name}")
            beside = _drain(stage, live=stage.scale.live)
        assert beside.idle is not None
        assert beside.busy is not None
        rows.append(_row(name, alone.rate, beside.rate, beside.idle, beside.busy))
        found.bars += _bars(name, beside.rate / alone.rate, beside.busy.p99 / beside.idle.p99)
    found.tables = [Table("Lanes", _HEADERS, rows, _NOTE.format(count=stage.scale.backlog))]
    missing = sorted(set(_BROKERS) - set(brokers))
    found.bars += [Row.unknown(f"live p99 beside a backlog on {name}", "none answers") for name in missing]
    return found


_NOTE = (
    f"A backlog of {{count:,}} catch-up runs of 30 ms, missed by {_ENTRIES} entries, in a queue of its own,"
    f" with a worker of {_AT_ONCE} processes under `nice`; live slots in another, with a worker of 2. Idle is"
    " the same system in the same run, before the backlog and after it. p50 and p99 are the medians of those"
    f" of each {_WINDOW:.0f} s; *of all* is the p99 over all slots, with every pause of the machine. Rates"
    " are those of the first half of the backlog, without its first twentieth."
)


def _bars(name: str, part: float, later: float) -> list[Row]:
    slower = f"live p99 beside a backlog on {name}, against idle"
    faster = f"rate of the backlog beside live slots on {name}, against alone"
    return [
        Row.at_most(slower, later, 1.2, unit="×"),
        Row.at_least(faster, part, 0.8, unit="×", figures=f"{part:.2f} ×"),
    ]


def _row(name: str, alone: float, beside: float, idle: _Lateness, busy: _Lateness) -> list[str]:
    p50, p99, p99_of_all = (
        [f"{getattr(one, what) * 1e3:.1f}" for one in (idle, busy)] for what in ("p50", "p99", "p99_of_all")
    )
    later, rates = f"{busy.p99 / idle.p99:.2f}", [f"{alone:,.0f}", f"{beside:,.0f}"]
    return [name, *p50, *p99, later, *p99_of_all, *rates, f"{beside / alone:.2f}"]


def _drain(stage: Stage, *, live: int) -> _Drained:
    """Drain the backlog: half of it without live slots, which is enough for its rate, and all of it beside
    them, with idle parts before and after it."""
    stage.clear()
    diary = stage.own_folder() / "diary"
    late, lane = diary.with_name("diary-late"), f"{stage.queue}-0"
    count, seconds = stage.scale.backlog // _ENTRIES * _ENTRIES, stage.scale.seconds if live else 0
    half = count // 2
    shared: dict[str, Any] = {
        "entries": live,
        "late": _ENTRIES,
        "waits": _TASK,
        "minute": time.gmtime(time.time() - 1800).tm_min,  # none of their slots is due meanwhile
        "diary": str(diary),
        "beat_max_loop_interval": 1,
        "catchup_entries": {"*": {"window": "60d", "overlap_policy": "allow"}},
        "catchup_queue": lane,
        "catchup_max_active": 2 * _AT_ONCE,
        "worker_prefetch_multiplier": 1,
        "imports": ["celery_catchup.worker"],
    }
    with _system(stage, lane, shared, live=live):
        if live:
            until(lambda: _count(diary) >= 2 * live, what="the first runs")
        before = _wait(seconds)
        _miss(stage, shared)
        wanted = count if live else half
        until(lambda: _count(late) >= wanted, what="the backlog", patience=900, every=0.5)
        ran = sorted(at for at, _, _ in lines(late))
        after = _wait(seconds)
        if live:
            until(lambda: lines(diary)[-1][1] >= after[1], what="the last live runs")
    rate = (half - half // 10) / (ran[half - 1] - ran[half // 10 - 1])
    if not live:
        return _Drained(rate)
    lags = [(slot, at - slot) for at, slot, _ in lines(diary)]
    return _Drained(rate, _lateness(lags, [before, after]), _lateness(lags, [(ran[0], ran[-1])]))


def _wait(seconds: float) -> tuple[float, float]:
    """Let the time pass, with a moment for the system to settle; return the part that counts."""
    begin = time.time() + min(1.0, seconds)
    time.sleep(max(0.0, begin + seconds - time.time()))
    return begin, begin + seconds


def _count(diary: Path) -> int:
    """Count the lines, without the cost of reading them: the machine is being measured."""
    return diary.read_bytes().count(b"\n") if diary.exists() else 0


def _lateness(lags: Sequence[tuple[float, float]], parts: Sequence[tuple[float, float]]) -> _Lateness:
    """Return how late the slots of these parts were; a part is divided into windows of the same length."""
    windows = list[list[float]]()
    for begin, end in parts:
        many = max(1, round((end - begin) / _WINDOW))
        edges = [begin + (end - begin) * number / many for number in range(many + 1)]
        found = [[lag for slot, lag in lags if low <= slot < high] for low, high in pairwise(edges)]
        windows += [window for window in found if len(window) > 1]
    if not windows:  # a backlog that drains at once, in a test of the benchmark
        windows = [[lag for _, lag in lags]]
    cuts = [quantiles(window, n=100, method="inclusive") for window in windows]
    everything = quantiles([lag for window in windows for lag in window], n=100, method="inclusive")
    return _Lateness(median(cut[49] for cut in cuts), median(cut[98] for cut in cuts), everything[98])


@contextlib.contextmanager
def _system(stage: Stage, lane: str, shared: dict[str, Any], *, live: int) -> Iterator[None]:
    """A worker for each queue, and beat; it has led before the backlog comes."""
    own = stage.queue if stage.broker else "celery"
    with (
        stage.celery("worker", "-Q", own, "-c", "2", "-n", "live@%h", *_QUIET, **shared),
        stage.celery("worker", "-Q", lane, "-c", f"{_AT_ONCE}", "-n", "late@%h", *_QUIET, **shared, nice=10),
    ):
        until(lambda: _both_listen(stage, lane), what="workers that are ready", every=0.1)
        if live:
            spread(stage, live)
        past = int((time.time() - _since(stage) - 3600) * 1000)
        seen = {f"late-{i}": past for i in range(_ENTRIES)}
        stage.redis.hset(Keys("benchmarks").first_seen, mapping=seen)
        with stage.celery("beat", "-S", "celery_catchup:Scheduler", **shared):
            leads = Keys("benchmarks").decided if live else Keys("benchmarks").leader
            until(lambda: stage.redis.exists(leads), what="a beat that leads")
            yield


def _both_listen(stage: Stage, lane: str) -> bool:
    """Whether a worker waits for messages of each queue; else its start would be part of the drain."""
    if not stage.broker:
        return stage.listeners() >= 2
    with contextlib.suppress(Exception):  # the queue does not exist yet
        return stage.listeners() > 0 and stage.listeners(lane) > 0
    return False


def _since(stage: Stage) -> float:
    """Return how many seconds ago the outage began that made the backlog."""
    return (stage.scale.backlog // _ENTRIES) * 3600.0


def _miss(stage: Stage, shared: dict[str, Any]) -> None:
    """Move the watermarks of the late entries back, as if beat had been down that long."""
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - _since(stage)))
    command = ["celery", "-A", "benchmarks.project", "catchup", "watermark", "set", "late-*", since, "-f"]
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=environment() | {"BENCHMARK_SETTINGS": stage.settings(shared)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"no backlog:\n{done.stderr[-3000:]}")
