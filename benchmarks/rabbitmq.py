"""Chains and lateness on RabbitMQ, where messages are published from the outbox."""

from __future__ import annotations

from benchmarks.chains import chained
from benchmarks.lateness import watched
from benchmarks.measuring import Findings, Row, Table
from benchmarks.stage import RABBITMQ, Stage, answers


def measure(stage: Stage) -> Findings:
    """As on Redis, with the broker of most Celery projects."""
    if not answers(RABBITMQ):
        table = Table("RabbitMQ", ("broker", "state"), [("RabbitMQ", "none answers")])
        return Findings([table], [Row.unknown("chains and lateness on RabbitMQ", "none answers")])
    with stage.on(RABBITMQ):
        found = chained(stage, "Chains on RabbitMQ", least=3)
        found.extend(watched(stage, "Lateness on RabbitMQ", most=30))
    return found
