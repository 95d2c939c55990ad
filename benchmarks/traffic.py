"""Traffic: round trips and bytes, counted by a proxy; no figure here depends on how busy the machine is."""

from __future__ import annotations

from benchmarks.counting import CountingProxy
from benchmarks.measuring import Findings, Row, Table
from benchmarks.stage import Stage, installed, until
from benchmarks.ticks import NAMES
from benchmarks.workers import prepare_runs
from celery_catchup.store import Keys

_HEADERS = ("what", "round trips", "bytes", "commands of the server")
_WORKER = (
    "worker",
    "-P",
    "solo",
    "-l",
    "INFO",
    "--without-gossip",
    "--without-mingle",
    "--without-heartbeat",
)


def measure(stage: Stage) -> Findings:
    """An idle tick and a tick with one live slot, ours and redbeat's; and a run at the worker."""
    rows, bars = [], []
    for subject in ("ours", "redbeat"):
        if subject == "redbeat" and not installed("redbeat"):
            continue
        found = _ticks(stage, subject)
        rows += [
            [f"{NAMES[subject]}: {what}", *(f"{found[f'{key}_{name}']:,.1f}" for name in _PARTS)]
            for key, what in (("idle", "idle tick"), ("one", "tick with one live slot"))
        ]
        if subject == "ours":
            trips = found["idle_trips"]
            bars.append(Row.at_most("idle tick: round trips", trips, 1, unit="", figures=f"{trips:.2f}"))
    run = _run(stage)
    rows.append(["celery-catchup: a run at the worker", *(f"{value:,.1f}" for value in run)])
    bars.append(
        Row.at_most("a run at the worker: round trips", run[0], 2.05, unit="", figures=f"{run[0]:.2f}")
    )
    return Findings([Table("Traffic", _HEADERS, rows, _NOTE)], bars)


_PARTS = ("trips", "bytes", "commands")
_NOTE = (
    "Per tick or run; the broker's own traffic of a worker is left out, heartbeats are in: hence the"
    " hundredths. Commands include those that scripts call."
)


def _ticks(stage: Stage, subject: str) -> dict[str, float]:
    stage.clear()
    stage.say(f"traffic: ticks, {NAMES[subject]}")
    count, folder = max(stage.scale.birds * 2, 50), str(stage.own_folder())
    shared = {"folder": folder, "count": count, "birds": stage.scale.birds}
    stage.trial(subject, "seed", **shared)
    return stage.trial(subject, "traffic", ticks=stage.scale.ticks, **shared)


def _run(stage: Stage) -> tuple[float, float, float]:
    """From when the worker is ready until all runs have ended."""
    count, keys = stage.scale.tasks, Keys("benchmarks")
    stage.say(f"traffic: {count:,} runs at a worker")
    prepare_runs(stage, count)
    messages = stage.redis.lrange("celery", 0, -1)
    stage.redis.delete("celery")
    with CountingProxy(stage.url) as proxy:
        settings = {"imports": ["celery_catchup.worker"], "catchup_redis_url": proxy.url}
        with stage.celery(*_WORKER, **settings) as worker:
            worker.until_it_says(" ready.")
            before = proxy.so_far()
            stage.redis.config_resetstat()
            stage.redis.rpush("celery", *messages)
            until(lambda: stage.redis.zcard(keys.ended) >= count, what="the ends of all runs", every=0.1)
            cost, calls = proxy.so_far() - before, _script_calls(stage)
    return cost.trips / count, cost.bytes / count, calls / count


def _script_calls(stage: Stage) -> float:
    """Commands that touch the ledger; what the broker and this benchmark ask is not counted."""
    stats = stage.redis.info("commandstats")
    return float(sum(one["calls"] for name, one in stats.items() if _is_ours(name)))


def _is_ours(name: str) -> bool:
    command = name.removeprefix("cmdstat_").partition("|")[0]
    return command.startswith(("h", "z", "eval")) and command not in ("hello", "zcard")
