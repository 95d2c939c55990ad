"""Outages: times in which no beat led."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from celery_catchup.model import to_datetime, to_instant
from celery_catchup.operations.operator import Operator


@dataclass(frozen=True, slots=True)
class Outage:
    """Nobody ticked between these moments, and it was longer than a take-over lasts."""

    since: datetime
    until: datetime


def list_outages(operator: Operator, *, since: datetime) -> list[Outage]:
    """Outages that ended after ``since``, the oldest first."""
    found = operator.history.outages(since=to_instant(since))
    return [Outage(to_datetime(begin), to_datetime(end)) for begin, end in found]
