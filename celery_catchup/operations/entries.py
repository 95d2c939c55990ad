"""List declared entries with what is known of each; rows and facts for the pages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, assert_never

from celery.schedules import crontab

from celery_catchup.beat.catchup_entry import CatchupEntry, ConfiguredSchedule, StoredScheduleEntry
from celery_catchup.beat.celery_schedules import zone_of
from celery_catchup.beat.fingerprints import describe
from celery_catchup.beat.unserved import destinations
from celery_catchup.config.durations import format_duration
from celery_catchup.config.policy import Policy, Select
from celery_catchup.engine.tracked_entries import TrackedEntry
from celery_catchup.model import Instant, Trigger, to_datetime, to_instant
from celery_catchup.operations.dead_letters import DeadLetter, list_dead
from celery_catchup.operations.deadlines import count_overdue
from celery_catchup.operations.in_flight import running_by_entry
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.refusals import RefusedError
from celery_catchup.operations.status import LATELY, Failing, Outage, list_failing, list_outages, server_time
from celery_catchup.planning.entry import Entry, Role
from celery_catchup.store import StoredState
from celery_catchup.store.states import OpenRuns
from celery_catchup.store.store import read_json, stored_length, stored_time
from celery_catchup.store.workers import LATELY as SEEN_LATELY
from celery_catchup.timetables.cron_table import CronTable
from celery_catchup.timetables.timetable import OneSlot

WEEK = timedelta(days=7)
MOST_COMPUTED = 20_000
"""Entries whose state is computed for one page; it takes seconds, in which other requests wait."""
_SEPARATOR = re.compile(r"[/:.\[]")
"""What separates a prefix, such as a tenant, from the rest of a name."""


@dataclass(frozen=True, slots=True)
class EntryView:
    """One line of the beat schedule. ``catchup`` is ``all``, ``latest`` or ``off``, and ``window`` how far
    back; where schedules of a list differ, each of them in their order. Without a policy the entry runs as
    under Celery's own scheduler, and that and the fields of a policy are null. ``timezone`` is that of
    its cron strings. ``stopped_by`` are the runs for which its chain waits (`on_failure: stop`). ``active``
    runs are ``queued`` or ``running``.
    ``failing`` is why its slots cannot be decided at present, ``failing_since`` since when. ``held`` is the
    number of runs for which its catch-up waits for an approval (`hold_above`); it is paused until then. A
    ``stored`` entry was created at run time; it is ``finished`` if it runs once, and that time has passed.
    ``undecided_since`` is the first missed slot that is not decided. ``overdue`` is the number of slots that
    have missed their deadline (`expect_within`), ``last_success`` when a run of it last succeeded."""

    name: str
    task: str
    schedule: str
    timezone: str | None
    catchup: str | None
    overlap_policy: str | None
    window: str | None
    paused: bool
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    next: datetime | None
    watermark: datetime | None
    first_seen_at: datetime | None
    active: int
    queued: int
    running: int
    waiting: int
    stopped_by: tuple[str, ...]
    failing: str | None = None
    failing_since: datetime | None = None
    held: int | None = None
    stored: bool = False
    revision: int | None = None
    finished: bool = False
    undecided_since: datetime | None = None
    expect_within: timedelta | None = None
    overdue: int = 0
    last_success: datetime | None = None


class Attention(StrEnum):
    """Why an entry needs attention."""

    MISSED = "missed"
    FAILING = "failing"
    PAUSED = "paused"
    HELD = "held"
    LATE = "late"
    OVERDUE = "overdue"


@dataclass(frozen=True, slots=True)
class EntryRow(EntryView):
    """An entry, with what it missed, how late its runs started, and how many attempts failed in the last 24
    hours."""

    missed: int = 0
    max_lag: timedelta | None = None
    failed: int = 0

    @property
    def attention(self) -> frozenset[Attention]:
        """The kinds of attention that it needs."""
        found = {
            Attention.MISSED: self.missed,
            Attention.FAILING: self.failing or self.failed,
            Attention.PAUSED: self.paused,
            Attention.HELD: self.held or self.stopped_by,
            Attention.LATE: self.undecided_since,
            Attention.OVERDUE: self.overdue,
        }
        return frozenset(word for word, present in found.items() if present)


class EntrySort(StrEnum):
    """The columns that entries can be sorted by."""

    NAME = "name"
    SCHEDULE = "schedule"
    POLICY = "policy"
    MISSED = "missed"
    LAG = "lag"
    WATERMARK = "watermark"
    NEXT = "next"

    def key(self, row: EntryRow) -> Any:
        """Return what of a row is compared; None comes last."""
        match self:
            case EntrySort.NAME:
                return row.name
            case EntrySort.SCHEDULE:
                return row.schedule
            case EntrySort.POLICY:
                return None if row.catchup is None else (row.catchup, row.window or "")
            case EntrySort.MISSED:
                return row.missed
            case EntrySort.LAG:
                return row.max_lag
            case EntrySort.WATERMARK:
                return row.watermark
            case EntrySort.NEXT:
                return row.next
            case _:
                assert_never(self)


@dataclass(frozen=True, slots=True)
class EntryRows:
    """A page of entries; ``total`` is how many match in all."""

    entries: tuple[EntryRow, ...]
    total: int
    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class EntryQueue:
    """The queue of an entry's live runs; ``seen`` is how long ago a worker with the plugin consumed it, null
    if none ever did, and ``without_plugin`` are workers that consume it without the plugin."""

    name: str
    seen: timedelta | None
    without_plugin: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EntryPage:
    """An entry's facts. ``runs`` are those decided on in the last seven days, by trigger; ``lag`` is how
    old the first slot is that is due and not decided. ``outages`` reach back as far. ``queue`` is null if
    only the broker knows it."""

    entry: EntryRow
    lag: timedelta | None
    next: tuple[datetime, ...]
    runs: dict[Trigger, int]
    dead_letters: tuple[DeadLetter, ...]
    outages: tuple[Outage, ...]
    queue: EntryQueue | None


def list_entries(operator: Operator, names: Sequence[str] | None = None) -> list[EntryView]:
    """List every declared entry in the order of declaration, or only these."""
    wanted = tuple(operator.schedule) if names is None else operator.in_schedule(names)
    stored, now = operator.read_stored(None if names is None else wanted), operator.now()
    tracked = operator.tracked(stored, now, set(wanted))
    busy = operator.states.open_runs(wanted)
    running = running_by_entry(operator) if any(one.active for one in busy.values()) else Counter[str]()
    failing = {one.entry: one for one in list_failing(operator) if one.backfill is None}
    overdue, succeeded = count_overdue(operator), operator.deadlines.last_successes(wanted)
    views = [
        _view(operator, name, tracked.get(name), stored, busy[name], running[name], failing.get(name), now)
        for name in wanted
    ]
    return [
        replace(view, overdue=overdue.get(view.name, 0), last_success=stored_time(succeeded.get(view.name)))
        for view in views
    ]


def list_entry_rows(
    operator: Operator,
    *,
    search: str = "",
    prefix: str = "",
    attention: Collection[Attention] = (),
    sort: EntrySort | None = None,
    descending: bool = False,
    offset: int = 0,
    limit: int = 50,
) -> EntryRows:
    """List a page of the entries whose name or task contains ``search`` and whose name begins with
    ``prefix``, in the order of declaration. With ``attention`` only those that need one of its kinds, and
    with ``sort`` in that order: then all of them are computed, else only the page; raise `RefusedError` if
    these are too many."""
    text = search.casefold()
    found = [
        name
        for name, entry in operator.schedule.items()
        if name.startswith(prefix) and (text in name.casefold() or text in str(entry.task).casefold())
    ]
    end = offset + limit
    if not attention and sort in (None, EntrySort.NAME):
        ordered = found if sort is None else sorted(found, reverse=descending)
        return EntryRows(tuple(_rows(operator, ordered[offset:end])), len(found), offset, limit)
    if len(found) > MOST_COMPUTED:
        raise RefusedError(
            f"{len(found):,} entries match; at most {MOST_COMPUTED:,} can be sorted or examined at once: "
            "search for a part of their names, choose a prefix, or sort by name"
        )
    rows = [row for row in _rows(operator, found) if not attention or row.attention & set(attention)]
    if sort is not None:
        known = [row for row in rows if sort.key(row) is not None]
        unknown = [row for row in rows if sort.key(row) is None]
        rows = [*sorted(known, key=sort.key, reverse=descending), *unknown]
    return EntryRows(tuple(rows[offset:end]), len(rows), offset, limit)


def list_prefixes(operator: Operator, prefix: str = "") -> dict[str, int]:
    """Count the entries below each longer prefix that several share: ``tenant/acme/``."""
    names = [name for name in operator.schedule if name.startswith(prefix)]
    while True:
        ends = (_SEPARATOR.search(name, len(prefix)) for name in names)
        counts = Counter(name[: end.end()] for name, end in zip(names, ends, strict=True) if end)
        shared = {one: count for one, count in sorted(counts.items()) if count > 1}
        if list(shared.values()) != [len(names)]:
            return shared
        (prefix,) = shared


def show_entry(operator: Operator, name: str, *, slots: int = 3, letters: int = 20) -> EntryPage:
    """Show a declared entry; raise `UnknownEntryError` for another."""
    operator.one(name)
    now = operator.now()
    (row,) = _rows(operator, [name])
    tracked = operator.tracked(operator.read_stored([name]), now, {name}).get(name)
    since = to_datetime(now) - WEEK
    tally = operator.history.counts_of([name], since=to_instant(since), now=now)[name]
    return EntryPage(
        entry=row,
        lag=_lag(row, tracked, now),
        next=tuple(_next_slots(tracked, now, count=slots)),
        runs={trigger: tally.dispatched(trigger) for trigger in Trigger},
        dead_letters=tuple(list_dead(operator, [name], limit=letters)),
        outages=tuple(list_outages(operator, since=since)),
        queue=_queue(operator, name),
    )


def _queue(operator: Operator, name: str) -> EntryQueue | None:
    (destination,) = destinations(operator.app, {name: operator.schedule[name]})
    if destination.queue is None:
        return None
    presence, now = operator.workers.presence(), server_time(operator)
    seen = presence.plugin.get(destination.queue)
    return EntryQueue(
        destination.queue,
        None if seen is None else timedelta(milliseconds=max(0, now - seen)),
        tuple(presence.plain_since(destination.queue, now - SEEN_LATELY)),
    )


def format_windows(policy: Policy, entry: Entry | None) -> str | None:
    """Format how far back the entry is caught up; where its schedules differ, each of them."""
    if entry is None or not entry.selects:
        return None if policy.window is None else format_duration(policy.window)
    starting = (b for s, b in zip(entry.schedules, entry.bounds, strict=True) if s.role is Role.START)
    known = _once(
        "none" if one.window is None else format_duration(timedelta(milliseconds=one.window))
        for one in starting
    )
    return None if known == "none" else known


def _rows(operator: Operator, names: Sequence[str]) -> list[EntryRow]:
    now = operator.now()
    tallies = operator.history.counts_of(names, since=now - LATELY, now=now)
    return [
        EntryRow(
            **{field.name: getattr(view, field.name) for field in fields(view)},
            missed=tallies[view.name].missed,
            failed=tallies[view.name].counts.get("failed", 0),
            max_lag=stored_length(tallies[view.name].lag),
        )
        for view in list_entries(operator, names)
    ]


def _view(
    operator: Operator,
    name: str,
    tracked: TrackedEntry | None,
    stored: StoredState,
    busy: OpenRuns,
    running: int,
    failing: Failing | None,
    now: Instant,
) -> EntryView:
    policy = operator.configuration.policies.get(name) if name in operator.declared else None
    pause = read_json(stored.paused.get(name)) or {}
    declared, entry = operator.schedule[name], None if tracked is None else tracked.entry
    return EntryView(
        name=name,
        task=str(declared.task),
        schedule=_describe(declared),
        timezone=_zones(operator, declared, entry),
        catchup=None if policy is None else _selects(policy, entry),
        overlap_policy=None if policy is None else str(policy.overlap_policy),
        window=None if policy is None else format_windows(policy, entry),
        paused=bool(pause.get("paused")),
        paused_at=stored_time(pause.get("at")) if pause.get("paused") else None,
        paused_by=(pause.get("by") or None) if pause.get("paused") else None,
        pause_reason=pause.get("reason") or None,
        next=next(iter(_next_slots(tracked, now, count=1)), None),
        watermark=stored_time(stored.decided.get(name)),
        first_seen_at=stored_time(stored.first_seen.get(name)),
        active=busy.active,
        queued=max(busy.active - running, 0),
        running=min(running, busy.active),
        waiting=busy.waiting,
        stopped_by=tuple(stored.stopped.get(name, "").split()),
        failing=None if failing is None else failing.reason,
        failing_since=None if failing is None else failing.since,
        held=pause.get("held") if pause.get("paused") else None,
        stored=isinstance(declared, StoredScheduleEntry),
        revision=declared.revision if isinstance(declared, StoredScheduleEntry) else None,
        finished=entry is not None and _is_over(entry, now),
        undecided_since=None if policy is None else _undecided_since(tracked, now),
        expect_within=None if policy is None else policy.expect_within,
    )


def _is_over(entry: Entry, now: Instant) -> bool:
    """Return whether the entry runs once, and that time has passed."""
    tables = [schedule.timetable for schedule in entry.schedules]
    return all(isinstance(table, OneSlot) and table.at <= now for table in tables)


def _undecided_since(tracked: TrackedEntry | None, now: Instant) -> datetime | None:
    """Return the first slot that nothing has decided although it is too late to be live."""
    if tracked is None or tracked.state.paused:
        return None
    decided = max(tracked.state.decided or 0, tracked.state.first_seen_at, tracked.state.manual_start or 0)
    found = min(_slots_after(tracked.entry, decided, count=1), default=now)
    return to_datetime(found) if found <= tracked.entry.missed_until(now) else None


def _lag(row: EntryRow, tracked: TrackedEntry | None, now: Instant) -> timedelta | None:
    """Return the age of the first slot that is due and not decided; zero if there is none."""
    if tracked is None or row.catchup is None:
        return None
    decided = to_instant(row.watermark or row.first_seen_at or to_datetime(now))
    return timedelta(milliseconds=now - min([now, *_slots_after(tracked.entry, decided, count=1)]))


def _next_slots(tracked: TrackedEntry | None, now: Instant, *, count: int) -> list[datetime]:
    """Return the next slots that start a run; a paused entry has none, nor one whose schedule fails."""
    if tracked is None or tracked.state.paused:
        return []
    return [to_datetime(at) for at in sorted(_slots_after(tracked.entry, now, count=count))[:count]]


def _slots_after(entry: Entry, instant: Instant, *, count: int) -> Iterable[Instant]:
    """Yield the next slots of each schedule that starts runs, between its dates."""
    for index, schedule in enumerate(entry.schedules):
        at: Instant | None = instant
        for _ in range(0 if schedule.role is Role.STOP else count):
            try:
                at = None if at is None else entry.next_run_after(index, at)
            except Exception:  # noqa: BLE001 - a schedule of the user's own may raise anything; beat reports it
                at = None
            if at is not None:
                yield at


def _zones(operator: Operator, declared: CatchupEntry, entry: Entry | None) -> str | None:
    """Name the zone in which the entry's cron strings are read; None if it has none."""
    if entry is None:
        plain = declared.schedule
        return str(zone_of(plain, default=operator.app.timezone)) if isinstance(plain, crontab) else None
    tables = (schedule.timetable for schedule in entry.schedules)
    return _once(str(table.zone) for table in tables if isinstance(table, CronTable)) or None


def _describe(entry: CatchupEntry) -> str:
    """Describe an entry's schedule: the cron expression, or the interval."""
    schedule = entry.schedule
    return _describe_written(schedule.written if isinstance(schedule, ConfiguredSchedule) else schedule)


def _describe_written(written: object) -> str:
    if isinstance(written, Mapping):
        for kind, before in (("cron", ""), ("every", "every "), ("at", "once at ")):
            if kind in written:
                return f"{before}{written[kind]}"
        return "; ".join(f"{role}: {_describe_written(part)}" for role, part in written.items())
    if isinstance(written, list | tuple):
        return ", ".join(map(_describe_written, written))
    return written if isinstance(written, str) else describe(written)


def _selects(policy: Policy, entry: Entry | None) -> str:
    selects = (() if entry is None else entry.selects) or (policy.select,)
    return _once("off" if one is Select.OFF else str(one) for one in selects)


def _once(words: Iterable[Any]) -> str:
    """Join the words in their order; once when all are the same."""
    found = list(words)
    return ", ".join(found[:1] if len(set(found)) == 1 else found)
