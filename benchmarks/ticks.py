"""Ticks: from start-up to the first one, idle, with one entry due, with all of them; side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from benchmarks.growth import growth
from benchmarks.measuring import Findings, Row, Sample, Table, limit_bar, ratio_bar, share_bar
from benchmarks.stage import Stage, installed

NAMES = {
    "stock": "Celery's PersistentScheduler",
    "redbeat": "celery-redbeat",
    "database": "django-celery-beat (SQLite)",
    "ours": "celery-catchup",
    "send_task": "bare send_task loop",
    "pipeline": "bare pipeline of LPUSH",
}
PEERS = {"stock": "celery", "redbeat": "redbeat", "database": "django_celery_beat"}
_HEADERS = (
    "entries", "scheduler", "start to first tick, s", "idle tick, ms", "tick with one due, ms",
    "all due, sent/s", "× send_task", "processor, µs/run",
    "memory idle, KiB/entry", "memory at most, KiB/entry",
)  # fmt: skip

Results = dict[tuple[str, int, str], Sample]


def measure(stage: Stage) -> Findings:
    """The table for all sizes, how ours grows, and the bars at the size where everybody took part."""
    results: Results = defaultdict(Sample)
    sizes = (*stage.scale.sizes, *stage.scale.own_sizes)
    for count in sizes:
        for repeat in range(1 if count > 20_000 else stage.scale.repeats):
            for subject in _subjects(stage, count):
                stage.say(f"ticks: {count:,} entries, {NAMES[subject]}, {repeat + 1}")
                for name, value in trial(stage, subject, count).items():
                    results[subject, count, name].add(value)
    rows = [_row(results, subject, n) for n in sizes for subject in NAMES if _measured(results, subject, n)]
    missing = [NAMES[peer] for peer, module in PEERS.items() if not installed(module)]
    note = f"Not installed, so not measured: {', '.join(missing)}." if missing else ""
    found = Findings([Table("Ticks", _HEADERS, rows, note)], _bars(results, max(stage.scale.sizes)))
    found.extend(growth(results, sizes))
    return found


def _subjects(stage: Stage, count: int) -> Iterator[str]:
    """Who takes part; the pipeline pushes what ours has left in the queue, so it comes after."""
    if count in stage.scale.sizes and count <= stage.scale.peers_up_to:
        yield from (peer for peer, module in PEERS.items() if installed(module))
    yield from ("ours", "pipeline", "send_task")


def trial(stage: Stage, subject: str, count: int) -> dict[str, float]:
    if subject in ("send_task", "pipeline"):
        return stage.trial("bare", subject, count=min(count, 10_000))
    stage.clear()
    scale, folder = stage.scale, str(stage.own_folder())
    stage.trial(subject, "seed", folder=folder, count=count, birds=scale.birds)
    # Ours is always let through to the end: how it ends matters too.
    patience = 600.0 if subject == "ours" else scale.patience
    return stage.trial(
        subject, "ticks", folder=folder, count=count, ticks=scale.ticks, birds=scale.birds, patience=patience
    )


def _measured(results: Results, subject: str, count: int) -> bool:
    return (subject, count, "rate") in results


def _row(results: Results, subject: str, count: int) -> list[str]:
    def of(name: str) -> Sample:
        return results.get((subject, count, name), Sample())

    limit = results[("send_task", count, "rate")]
    times = f"{of('rate').median / limit.median:,.2f}" if limit else "–"
    memory, peak = (Sample(v / count / 1024 for v in of(name).values) for name in ("memory", "peak"))
    return [
        f"{count:,}",
        NAMES[subject],
        of("startup").shown(2),
        of("idle").shown(2, scale=1e3),
        of("one").shown(2, scale=1e3),
        of("rate").shown(),
        times,
        of("cpu").shown(scale=1e6),
        *(sample.shown(1) if count >= 1_000 else "–" for sample in (memory, peak)),
    ]


def _bars(results: Results, count: int) -> list[Row]:
    def of(subject: str, name: str) -> Sample:
        return results.get((subject, count, name), Sample())

    rate = of("ours", "rate")
    at = f"{count:,} entries"
    return [
        ratio_bar(f"{at} all due, against Celery's scheduler", rate, of("stock", "rate"), 100),
        ratio_bar(f"{at} all due, against redbeat", rate, of("redbeat", "rate"), 8),
        ratio_bar(f"{at} all due, against a bare send_task loop", rate, of("send_task", "rate"), 4),
        ratio_bar(f"{at} all due, against a bare pipeline", rate, of("pipeline", "rate"), 0.12),
        share_bar(
            f"{at}, start to first tick, of redbeat's", of("ours", "startup"), of("redbeat", "startup"), 1 / 3
        ),
        limit_bar(f"{at}, start to first tick", of("ours", "startup"), 0.7, unit="s"),
        limit_bar(f"{at}, idle tick", Sample(1e3 * v for v in of("ours", "idle").values), 1, unit="ms"),
        share_bar(f"{at}, memory per entry, of redbeat's", of("ours", "peak"), of("redbeat", "peak"), 1),
    ]
