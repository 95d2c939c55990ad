"""Overview: what the last day brought, and the entries page by page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from celery_catchup.model import Instant, SkipReason, Trigger, to_datetime
from celery_catchup.operations.entries import EntryView, list_entries
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.status import LATELY, LOST, Status, status
from celery_catchup.store.history import last_catchup

BANNER = 3_600_000
"""Milliseconds for which a catch-up that is through is news."""

_BY_POLICY = (SkipReason.SUPERSEDED, SkipReason.GUARD_BLOCKED, SkipReason.PAUSED)


@dataclass(frozen=True, slots=True)
class Banner:
    """A catch-up that ended within the last hour: so many catch-up runs, and of which slots it was."""

    dispatched: int
    skipped: int
    first: datetime
    last: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of things, and the last 24 hours (counted in whole hours) in numbers.

    ``last_catchup`` is the one that ended last, ``banner`` the same while it is news.
    """

    status: Status
    banner: Banner | None
    last_catchup: Banner | None
    caught_up: int
    skipped_by_policy: int
    not_recovered: int
    largest_lag: timedelta | None
    failed_attempts: int
    dead_letters: int


@dataclass(frozen=True, slots=True)
class EntryRow(EntryView):
    """An entry, with what it missed and how late its runs started in the last 24 hours."""

    missed: int = 0
    max_lag: timedelta | None = None


@dataclass(frozen=True, slots=True)
class EntryRows:
    """A page of entries in the order of declaration; ``total`` is how many there are in all."""

    entries: tuple[EntryRow, ...]
    total: int
    offset: int
    limit: int


def overview(operator: Operator) -> Overview:
    """How things are; it costs the same whatever the ledger holds."""
    now = operator.now()
    told = status(operator)
    tally = operator.history.tally(since=now - LATELY)
    banner = _banner(operator)
    return Overview(
        status=told,
        banner=banner if banner is not None and _is_news(banner, now) else None,
        last_catchup=banner,
        caught_up=tally.dispatched(Trigger.CATCHUP),
        skipped_by_policy=tally.skipped(*_BY_POLICY),
        not_recovered=tally.skipped(*LOST),
        largest_lag=_length(tally.lag),
        failed_attempts=tally.counts.get("failed", 0),
        dead_letters=told.dead_letters,
    )


def entry_rows(operator: Operator, *, search: str = "", offset: int = 0, limit: int = 50) -> EntryRows:
    """A page of the entries whose name or task contains ``search``; only these are computed."""
    text = search.casefold()
    found = [
        name
        for name, entry in operator.schedule.items()
        if not text or text in name.casefold() or text in str(entry.task).casefold()
    ]
    names = found[offset : offset + limit]
    return EntryRows(tuple(rows_of(operator, names)), len(found), offset, limit)


def rows_of(operator: Operator, names: Sequence[str]) -> list[EntryRow]:
    """These entries."""
    tallies = operator.history.tallies(names, since=operator.now() - LATELY)
    return [
        EntryRow(**_fields(view), missed=tallies[view.name].missed, max_lag=_length(tallies[view.name].lag))
        for view in list_entries(operator, names)
    ]


def _fields(view: EntryView) -> dict[str, Any]:
    return {field.name: getattr(view, field.name) for field in fields(view)}


def _banner(operator: Operator) -> Banner | None:
    last = last_catchup(operator.states.scheduler())
    if last is None:
        return None
    times = {"first": last.first, "last": last.last, "ended_at": last.ended}
    return Banner(
        last.dispatched, last.skipped, **{name: to_datetime(value) for name, value in times.items()}
    )


def _is_news(banner: Banner, now: Instant) -> bool:
    age = to_datetime(now) - banner.ended_at
    return banner.dispatched > 0 and age <= timedelta(milliseconds=BANNER)


def _length(milliseconds: int | None) -> timedelta | None:
    return None if milliseconds is None else timedelta(milliseconds=milliseconds)
