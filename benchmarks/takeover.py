"""Take-over: the leader is killed, or stopped in good order; every setting at its default."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.measuring import Findings, Sample, Table, limit_bar
from benchmarks.stage import Program, Stage, installed, until

_HEADERS = ("beat", "s")
_PROJECT: dict[str, Any] = {
    "entries": 1,
    "catchup_entries": {"*": {"window": "1h", "overlap_policy": "allow"}},
}
_BEAT = ("beat", "-S", "celery_catchup:Scheduler")
_LEADING = 'msg="Leading"'
_STANDBY = 'msg="Standing by"'


def measure(stage: Stage) -> Findings:
    """An entry is due each second: the silence after a kill is what a slot would have to wait."""
    silence, stop = Sample(), Sample()
    for number in range(stage.scale.takeovers):
        stage.say(f"takeover: {number + 1}")
        gap, seconds = _killed(stage)
        silence.add(gap)
        stop.add(seconds)
    rows = [
        ["celery-catchup: kill -9 of the leader, until the next message", silence.shown(2)],
        ["celery-catchup: clean stop, until the process has ended", stop.shown(2)],
    ]
    if installed("redbeat"):
        rows.append(["celery-redbeat: kill -9, what is left of the lock's life", f"{_lock(stage):,.0f}"])
    bars = [
        limit_bar("take-over after kill -9", silence, 3, unit="s"),
        limit_bar("clean stop", stop, 2, unit="s"),
    ]
    return Findings([Table("Take-over", _HEADERS, rows, _NOTE)], bars)


_NOTE = "Default settings. redbeat's standby is not waited for: its lock is read instead."


def _killed(stage: Stage) -> tuple[float, float]:
    stage.clear()
    project = _PROJECT if stage.scale.lease is None else {**_PROJECT, "catchup_lease_ttl": stage.scale.lease}
    with stage.celery(*_BEAT, **project) as leader:
        leader.until_it_says(_LEADING)
        with stage.celery(*_BEAT, **project) as standby:
            standby.until_it_says(_STANDBY)
            _another_message(stage)
            leader.kill()
            gap = _another_message(stage)
            return gap, standby.stop()


def _another_message(stage: Stage) -> float:
    """Seconds until the next message."""
    before, begun = stage.redis.llen("celery"), time.perf_counter()
    until(lambda: stage.redis.llen("celery") > before, what="a message")
    return time.perf_counter() - begun


def _lock(stage: Stage) -> float:
    """Seconds for which no other redbeat can begin."""
    stage.clear()
    with stage.celery(
        "beat", "-S", "redbeat.RedBeatScheduler", entries=1, redbeat_redis_url=stage.url
    ) as beat:
        _killed_after_a_message(stage, beat)
        return float(stage.redis.pttl("redbeat::lock")) / 1000


def _killed_after_a_message(stage: Stage, beat: Program) -> None:
    _another_message(stage)
    beat.kill()
