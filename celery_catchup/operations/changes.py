"""Find out what has changed in the store since the last look, at a cost that does not depend on its size."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from celery_catchup.operations.operator import Operator
from celery_catchup.operations.status import lease_of
from celery_catchup.store.store import time_between


class Topic(StrEnum):
    """A part of what the HTTP API serves."""

    STATUS = "status"
    SCHEDULES = "schedules"
    RUNS = "runs"
    DEAD_LETTERS = "dead-letters"
    BACKFILLS = "backfills"


def fingerprints(operator: Operator) -> Mapping[Topic, object]:
    """Return a value for each topic that is another one after each change of it."""
    leader, scheduler = operator.listing.leader()
    counts = operator.listing.counts()
    age = time_between(scheduler.get("last_tick"), operator.now())
    ticking = age is not None and age <= lease_of(leader)
    steady = {name: value for name, value in scheduler.items() if name not in ("last_tick", "watermark")}
    return {
        Topic.STATUS: (leader.get("owner"), leader.get("epoch"), ticking, steady),
        Topic.SCHEDULES: operator.states.version(),
        # The counters of decisions, starts and ends only grow.
        Topic.RUNS: (operator.history.ever(), counts),
        Topic.DEAD_LETTERS: counts["dead"],
        Topic.BACKFILLS: operator.backfills.all(),
    }
