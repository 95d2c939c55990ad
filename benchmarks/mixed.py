"""The work that users have: different tasks and arguments, five queues, a restart after an outage."""

from __future__ import annotations

from collections import defaultdict
from contextlib import nullcontext
from typing import Any

from benchmarks.measuring import Findings, Row, Sample, Table, limit_bar, ratio_bar
from benchmarks.stage import RABBITMQ, Stage, answers, installed

_BROKERS = {"Redis": "", "RabbitMQ": RABBITMQ}
_NAMES = {
    "stock": "Celery's PersistentScheduler",
    "redbeat": "celery-redbeat",
    "ours": "celery-catchup",
    "send_task": "bare send_task loop, not confirmed",
}
_HEADERS = (
    "broker",
    "workload",
    "scheduler",
    "sent/s",
    "× send_task",
    "processor, µs/run",
    "Redis, bytes/entry",
)
_POLICY = {"window": "6h"}
_WEEKS = {"allow": "10,080 minutes of one entry, all at once", "all": "10,080 minutes of one entry, a chain"}

Results = dict[tuple[str, str, str, str], Sample]


def measure(stage: Stage) -> Findings:
    """Restart after two hours on each broker, with everybody, and a week of minutes of one entry."""
    results: Results = defaultdict(Sample)
    brokers = {name: url for name, url in _BROKERS.items() if not url or answers(url)}
    count = max(stage.scale.sizes)
    for repeat in range(stage.scale.repeats):
        for name, url in brokers.items():
            with stage.on(url) if url else nullcontext():
                _round(stage, results, name, count, f"{name}, {repeat + 1}")
    missing = sorted(set(_BROKERS) - set(brokers))
    note = f"Not measured, because none answers: {', '.join(missing)}." if missing else _NOTE
    workloads = dict.fromkeys(key[:3] for key in results)
    table = Table("Mixed workload", _HEADERS, [_row(results, *key) for key in workloads], note)
    return Findings([table], _bars(results, list(brokers), _restart(count)))


def _round(stage: Stage, results: Results, broker: str, count: int, where: str) -> None:
    for subject in _NAMES:
        if subject == "redbeat" and not installed(subject):
            continue
        stage.say(f"mixed: {count:,} entries, {_NAMES[subject]}, {where}")
        _note(results, broker, _restart(count), subject, _trial(stage, subject, count))
    if stage.scale.week != 10_080:
        return
    stage.say(f"mixed: {_WEEKS['allow']}, {where}")
    limit = stage.trial("mixed", "send_task", count=0)
    for overlap, workload in _WEEKS.items():
        stage.clear()
        policy = {"window": "8d", "overlap_policy": overlap}
        _note(results, broker, workload, "ours", stage.trial("mixed", "ours", count=0, policy=policy))
        _note(results, broker, workload, "send_task", limit)


_NOTE = (
    "20 tasks, own args and kwargs, 5 queues, beat down for 2 h; until all messages are with the broker. Ours"
    " confirms each message; the send_task loop does not."
)


def _restart(count: int) -> str:
    return f"{count:,} entries, restart after 2 h"


def _trial(stage: Stage, subject: str, count: int) -> dict[str, float]:
    stage.clear()
    if subject == "ours":
        return stage.trial("mixed", "ours", count=count, policy=_POLICY)
    more: dict[str, Any] = {} if subject == "send_task" else {"patience": stage.scale.patience}
    return stage.trial("mixed", subject, count=count, **more)


def _note(results: Results, broker: str, workload: str, subject: str, found: dict[str, float]) -> None:
    for name in ("rate", "cpu", "stored"):
        if name in found:
            results[broker, workload, subject, name].add(found[name])


def _row(results: Results, broker: str, workload: str, subject: str) -> list[str]:
    def of(name: str, subject: str = subject) -> Sample:
        return results.get((broker, workload, subject, name), Sample())

    limit = of("rate", "send_task")
    return [
        broker,
        workload,
        _NAMES[subject],
        of("rate").shown(),
        f"{of('rate').median / limit.median:,.2f}" if limit else "–",
        of("cpu").shown(scale=1e6),
        of("stored").shown() if workload not in _WEEKS.values() else "–",
    ]


def _bars(results: Results, brokers: list[str], restart: str) -> list[Row]:
    def of(broker: str, workload: str, subject: str, name: str = "rate") -> Sample:
        return results.get((broker, workload, subject, name), Sample())

    wanted = {"Redis": 4, "RabbitMQ": 1.2}
    rows = []
    for broker in brokers:
        ours = of(broker, restart, "ours")
        against = of(broker, restart, "send_task")
        rows.append(ratio_bar(f"mixed on {broker}, against send_task", ours, against, wanted[broker]))
        rows.append(ratio_bar(f"mixed on {broker}, against redbeat", ours, of(broker, restart, "redbeat"), 4))
    for overlap, workload in _WEEKS.items():
        week = "RabbitMQ", workload
        what = f"a week of minutes on RabbitMQ ({overlap}), against send_task"
        rows.append(ratio_bar(what, of(*week, "ours"), of(*week, "send_task"), 1.5))
    stored = of("Redis", restart, "ours", "stored")
    rows.append(
        limit_bar("memory in Redis per mixed entry", Sample(v / 1024 for v in stored.values), 2.5, unit="KB")
    )
    return rows
