"""Lanes: how late live runs start while a backlog drains, and how fast it drains meanwhile."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from benchmarks.lateness import lines, listens, spread
from benchmarks.measuring import Findings, Row, Table
from benchmarks.stage import RABBITMQ, ROOT, Stage, answers, environment, until
from celery_catchup.store import Keys

_BROKERS = {"Redis": "", "RabbitMQ": RABBITMQ}
_AT_ONCE = 8
"""Processes of the worker of the lane, and catch-up runs that may be queued or running for each of them."""
_TASK = 0.03
"""Seconds that a catch-up run waits, as for a database: a task that only computes would take the processors
of this machine from the live runs, and no scheduler could help that."""
_QUIET = ("-l", "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat")
_HEADERS = (
    "broker", "live p50, ms: idle", "with backlog", "live p99, ms: idle", "with backlog", "×",
    "catch-up runs/s: alone", "with live runs", "part of it",
)  # fmt: skip


@dataclass(frozen=True)
class _Drained:
    """The backlog's rate, and how late live runs were before it and during it; in seconds."""

    rate: float
    idle: tuple[float, float] = (0.0, 0.0)
    busy: tuple[float, float] = (0.0, 0.0)


def measure(stage: Stage) -> Findings:
    """The same backlog alone and beside live slots, with one worker for each queue, on both brokers."""
    brokers = {name: url for name, url in _BROKERS.items() if not url or answers(url)}
    found = Findings([Table("Lanes", _HEADERS, [], _NOTE.format(count=stage.scale.backlog))])
    rows = list[list[str]]()
    for name, url in brokers.items():
        with stage.on(url) if url else nullcontext():
            stage.say(f"lanes: {stage.scale.backlog:,} runs alone, {name}")
            alone = _drain(stage, live=0)
            stage.say(f"lanes: the same beside {stage.scale.live} live slots per second, {name}")
            beside = _drain(stage, live=stage.scale.live)
        rows.append(_row(name, alone, beside))
        found.bars += _bars(name, alone, beside)
    found.tables[0] = Table("Lanes", _HEADERS, rows, found.tables[0].note)
    missing = sorted(set(_BROKERS) - set(brokers))
    found.bars += [Row.unknown(f"live p99 beside a backlog on {name}", "none answers") for name in missing]
    return found


_NOTE = (
    "A backlog of {count:,} catch-up runs of 30 ms in a queue of its own, with a worker of 8 processes under"
    " `nice`; live slots in another, with a worker of 2. Idle is the same system"
    " in the same run, before the backlog."
)


def _bars(name: str, alone: _Drained, beside: _Drained) -> list[Row]:
    part = beside.rate / alone.rate
    slower = f"live p99 beside a backlog on {name}, against idle"
    faster = f"rate of the backlog beside live slots on {name}, against alone"
    return [
        Row.at_most(slower, beside.busy[1] / beside.idle[1], 1.2, unit="×"),
        Row.at_least(faster, part, 0.8, unit="×", figures=f"{part:.2f} ×"),
    ]


def _row(name: str, alone: _Drained, beside: _Drained) -> list[str]:
    lateness = [f"{part[number] * 1e3:.1f}" for number in (0, 1) for part in (beside.idle, beside.busy)]
    rates = [f"{one.rate:,.0f}" for one in (alone, beside)]
    slower, part = beside.busy[1] / beside.idle[1], beside.rate / alone.rate
    return [name, *lateness, f"{slower:.2f}", *rates, f"{part:.2f}"]


def _drain(stage: Stage, *, live: int) -> _Drained:
    stage.clear()
    diary = stage.own_folder() / "diary"
    late, lane = diary.with_name("diary-late"), f"{stage.queue}-0"
    shared: dict[str, Any] = {
        "entries": live,
        "late": _TASK,
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
            until(lambda: len(lines(diary)) >= 2 * live, what="the first runs")
        begin = time.time() + 1
        until(lambda: time.time() > begin + stage.scale.seconds * bool(live), what="the time to pass")
        _miss(stage, shared)
        until(lambda: len(lines(late)) >= stage.scale.backlog, what="the backlog", patience=900, every=0.5)
        time.sleep(1)
        ran = sorted(at for at, _, _ in lines(late))
        if live:
            until(lambda: sum(slot >= ran[0] for _, slot, _ in lines(diary)) > live // 2, what="live runs")
    first, last = ran[len(ran) // 20], ran[-1 - len(ran) // 20]
    rate = (len(ran) * 0.9) / (last - first)
    if not live:
        return _Drained(rate)
    lags = [(slot, at - slot) for at, slot, _ in lines(diary)]
    idle, busy = (
        quantiles([lag for slot, lag in lags if low <= slot < high], n=100, method="inclusive")
        for low, high in ((begin, ran[0] - 1), (ran[0], max(ran[-1], ran[0] + 1)))
    )
    return _Drained(rate, (idle[49], idle[98]), (busy[49], busy[98]))


@contextlib.contextmanager
def _system(stage: Stage, lane: str, shared: dict[str, Any], *, live: int) -> Iterator[None]:
    """A worker for each queue, and beat; it has led before the backlog comes."""
    own = stage.queue if stage.broker else "celery"
    with (
        stage.celery("worker", "-Q", own, "-c", "2", "-n", "live@%h", *_QUIET, **shared),
        stage.celery("worker", "-Q", lane, "-c", f"{_AT_ONCE}", "-n", "late@%h", *_QUIET, **shared, nice=10),
    ):
        until(lambda: listens(stage), what="a worker that is ready")
        if live:
            spread(stage, live)
        past = int((time.time() - (stage.scale.backlog + 60) * 60) * 1000)
        stage.redis.hset(Keys("benchmarks").first_seen, "late", past)
        with stage.celery("beat", "-S", "celery_catchup:Scheduler", **shared):
            leads = Keys("benchmarks").decided if live else Keys("benchmarks").leader
            until(lambda: stage.redis.exists(leads), what="a beat that leads")
            yield


def _miss(stage: Stage, shared: dict[str, Any]) -> None:
    """Move the watermark of the late entry back, as if beat had been down that long."""
    since = time.strftime("%Y-%m-%dT%H:%M:30Z", time.gmtime(time.time() - (stage.scale.backlog + 1) * 60))
    command = ["celery", "-A", "benchmarks.project", "catchup", "watermark", "set", "late", since, "-f"]
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
