"""Lateness: how long after its slot a live run starts, with a real beat and a real worker."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import quantiles
from typing import Any

from benchmarks.measuring import Findings, Row, Sample, Table
from benchmarks.stage import Program, Stage, until
from celery_catchup.store import Keys

_SETTLING = 3.0
"""Seconds at the start that are not looked at, at the most."""
_LATEST = 30.0
"""Seconds after which a slot that has not run counts as lost."""
_COMPARABLE = 0.9
"""The part of the slots that Celery's scheduler has to run for its lateness to be compared with."""
_HEADERS = (
    "scheduler", "due per second", "runs seen", "p50, ms", "p99, ms", "longest, ms", "never ran",
    "p99 of beat's part, ms",
)  # fmt: skip
_OURS, _STOCK = "celery-catchup", "Celery's PersistentScheduler"
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


@dataclass(frozen=True)
class _Lag:
    p50: float
    p99: float
    longest: float
    seen: int
    lost: int
    decided: float | None


def measure(stage: Stage) -> Findings:
    """Ours with claim and ledger, Celery's own beside it; each entry is due once a second."""
    return watched(stage, "Lateness", most=100)


def watched(stage: Stage, title: str, *, most: float) -> Findings:
    """The same on the broker of the stage; ours may be ``most`` milliseconds later than Celery's own."""
    lags: dict[str, list[_Lag]] = {_OURS: [], _STOCK: []}
    for _ in range(stage.scale.repeats):
        for name, found in lags.items():
            found.append(_watch(stage, name))
    lost = max(lag.lost for lag in lags[_OURS])
    what = f"{title[0].lower()}{title[1:]} at {stage.scale.due_per_second} due per second"
    bars = [
        _against_stock(f"{what}, p99 beyond Celery's own", lags, most),
        Row.at_most(f"{what}: slots lost", lost, 0, unit="slots", figures=f"{lost}"),
    ]
    rows = [_row(stage, name, found) for name, found in lags.items()]
    return Findings([Table(title, _HEADERS, rows, _NOTE)], bars)


def _against_stock(what: str, lags: dict[str, list[_Lag]], most: float) -> Row:
    """The medians of both; nothing when Celery's scheduler left out so much that it had an easier time."""
    seen, lost = (sum(getattr(lag, name) for lag in lags[_STOCK]) for name in ("seen", "lost"))
    if seen < _COMPARABLE * (seen + lost):
        return Row.unknown(what, f"not comparable: Celery's scheduler ran {seen:,} of {seen + lost:,} slots")
    ours, stock = (Sample(lag.p99 * 1e3 for lag in lags[name]).median for name in (_OURS, _STOCK))
    return Row.at_most(what, ours - stock, most, unit="ms", figures=f"{ours - stock:+,.1f} ms")


_NOTE = (
    "From the slot to the first line of the task; slots are spread evenly. Celery's scheduler counts each"
    " second from the last run, so the later it is the fewer it sends: look at both columns."
)


def _watch(stage: Stage, name: str) -> _Lag:
    stage.say(f"lateness: {name}, {stage.scale.seconds} s")
    stage.clear()
    diary = stage.own_folder() / "diary"
    shared: dict[str, Any] = {
        "entries": stage.scale.due_per_second,
        "diary": str(diary),
        "beat_max_loop_interval": 1,
    }
    ours = name == _OURS
    scheduler = "celery_catchup:Scheduler" if ours else "benchmarks.subjects.stock:Telling"
    if ours:
        shared |= {
            "catchup_entries": {"*": {"window": "1h", "overlap_policy": "allow"}},
            "imports": ["celery_catchup.worker"],
        }
    with stage.celery(*_WORKER, **shared):
        # Else it would begin with a backlog, and keep it for long.
        until(lambda: listens(stage), what="a worker that is ready")
        if ours:
            spread(stage, stage.scale.due_per_second)
        with stage.celery("beat", "-S", scheduler, **shared) as beat:
            return _observed(stage, beat, diary, ours=ours)


def listens(stage: Stage) -> bool:
    """Whether a worker waits for messages."""
    with contextlib.suppress(Exception):  # the queue does not exist yet
        return stage.listeners() > 0
    return False


def spread(stage: Stage, count: int) -> None:
    """Let the entries be due one after the other, and not all at the full second of the first tick.

    Only their phase is set: entries that were seen before would begin with what they missed.
    """
    now = int(time.time() * 1000)
    phases = {f"entry-{i}": now + i * 1000 // count for i in range(count)}
    stage.redis.hset(Keys("benchmarks").anchors, mapping=phases)


def _observed(stage: Stage, beat: Program, diary: Path, *, ours: bool) -> _Lag:
    """What was due in a span of time that begins when all entries have run, and ends before the end."""
    until(lambda: len(lines(diary)) >= stage.scale.due_per_second, what="the first runs")
    begin = time.time() + min(_SETTLING, stage.scale.seconds)
    end = begin + stage.scale.seconds
    until(lambda: time.time() > end + 1, what="the time to pass", patience=600, every=0.1)
    expected = stage.scale.due_per_second * stage.scale.seconds
    if ours:
        with contextlib.suppress(TimeoutError):
            until(
                lambda: len(_seen(diary, begin, end)) >= expected,
                what="the last",
                patience=_LATEST,
                every=0.2,
            )
    beat.kill()
    seen = _seen(diary, begin, end)
    lags = sorted(ran - slot for ran, slot in seen)
    cuts = quantiles(lags, n=100, method="inclusive")
    lost = max(0, expected - len(seen))
    return _Lag(cuts[49], cuts[98], lags[-1], len(seen), lost, _decided(stage, begin, end) if ours else None)


def _decided(stage: Stage, begin: float, end: float) -> float:
    """From the slot to the tick that decided it, p99: what beat itself is late, without the worker."""
    records = map(json.loads, stage.redis.hvals(Keys("benchmarks").ledger))
    lags = [(one["created"] - one["slot"]) / 1e3 for one in records if begin <= one["slot"] / 1e3 < end]
    return quantiles(lags, n=100, method="inclusive")[98]


def _seen(diary: Path, begin: float, end: float) -> list[tuple[float, float]]:
    """When each run started whose slot lies in ``[begin, end)``, and the slot."""
    return [(ran, slot) for ran, slot, _ in lines(diary) if begin <= slot < end]


def lines(diary: Path) -> list[tuple[float, float, str]]:
    """Return the lines of a diary: when the run started, its slot, its entry."""
    text = diary.read_text() if diary.exists() else ""
    found = (line.split() for line in text.splitlines() if line.count(" ") == 2)
    return [(float(ran), datetime.fromisoformat(slot).timestamp(), entry) for ran, slot, entry in found]


def _row(stage: Stage, name: str, lags: list[_Lag]) -> list[str]:
    times = [Sample(getattr(lag, what) * 1e3 for lag in lags).shown(1) for what in ("p50", "p99", "longest")]
    counts = [Sample(getattr(lag, what) for lag in lags).shown() for what in ("seen", "lost")]
    decided = Sample(lag.decided * 1e3 for lag in lags if lag.decided is not None).shown(1)
    return [name, f"{stage.scale.due_per_second}", counts[0], *times, counts[1], decided]
