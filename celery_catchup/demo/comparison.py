"""The same outage under Celery's own scheduler, measured by what its tasks wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from celery_catchup.demo.audit import Account
from celery_catchup.demo.project import ENTRIES
from celery_catchup.demo.site import Execution, Site
from celery_catchup.model import Instant


@dataclass(frozen=True)
class Tally:
    """What became of an entry's slots under one scheduler; ``lost`` are those without run or reason."""

    entry: str
    scheduler: str
    due: int
    runs: int
    skipped: int
    lost: int
    told: int


def enough_seen(executions: Sequence[Execution], *, due: int, every_ms: int) -> Instant:
    """When the last of ``due`` slots has had its time, counted from the first run.

    Celery's scheduler has no slots to read: the first run is on time, and each later slot is
    one interval further. A run counts for the slot in whose interval it started, so the late
    one after the outage does as well.
    """
    return executions[0].started + due * every_ms if executions else 0


def tally_of_celery(site: Site, accounts: Sequence[Account]) -> list[Tally]:
    """As many slots as each account has, under Celery's own scheduler."""
    tallies = []
    for entry, ours in zip(ENTRIES, accounts, strict=True):
        all_runs = site.executions_of(entry.name)
        end = enough_seen(all_runs, due=len(ours.due), every_ms=entry.every_ms)
        runs = [execution for execution in all_runs if execution.started < end]
        told = sum(execution.slot is not None for execution in runs)
        due = len(ours.due)
        tallies.append(
            Tally(entry.name, "Celery's", due, len(runs), skipped=0, lost=max(0, due - len(runs)), told=told)
        )
    return tallies


def tally_of_ours(accounts: Sequence[Account]) -> list[Tally]:
    """The accounts in the same form."""
    return [
        Tally(
            one.entry,
            "celery_catchup",
            len(one.due),
            len(one.executions),
            skipped=one.skipped,
            lost=len(one.unaccounted),
            told=sum(execution.slot is not None for execution in one.executions),
        )
        for one in accounts
    ]
