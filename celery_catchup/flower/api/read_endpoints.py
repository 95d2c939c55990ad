"""Endpoints that change nothing: each calls one operation and returns its result."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import Any

from celery_catchup.errors import ConfigurationError
from celery_catchup.flower.api import requests
from celery_catchup.flower.api.endpoint import endpoint
from celery_catchup.flower.api.explanation_requests import WhatIfRequest, WhyRequest
from celery_catchup.flower.api.responses import EntryTimeline, ResultPage, page_of
from celery_catchup.flower.fleet import latest_fleet
from celery_catchup.model import to_datetime
from celery_catchup.operations import (
    Operator,
    RefusedError,
    audit,
    backfills,
    dead_letters,
    deadlines,
    entries,
    previews,
    runs,
    skipped_slots,
    status,
    timeline,
    watermarks,
    whatif,
    why,
)
from celery_catchup.operations.refusals import RangeError
from celery_catchup.operations.slot_answers import Why
from celery_catchup.stored_entries.stored_entry import StoredEntry

DAY = timedelta(hours=24)
OUTAGES = timedelta(days=90)
"""How far back outages are played again by default."""
LONGEST = timedelta(days=366)
"""The longest timeline, and the longest window of a preview."""
MOST_ENTRIES = 200
"""Entries of one page of a timeline."""


@endpoint("GET", "/status")
def get_status(operator: Operator, request: requests.Request) -> status.Status:
    """Show whether a beat leads, what it does, and what needs attention."""
    return status.status(operator, fleet=latest_fleet(operator, wait=True))


@endpoint("GET", "/overview")
def get_overview(operator: Operator, request: requests.Request) -> status.Overview:
    """Show the status, the last catch-up, and the last 24 hours in numbers."""
    return status.overview(operator, fleet=latest_fleet(operator, wait=True))


@endpoint("GET", "/schedules")
def list_schedules(operator: Operator, request: requests.SchedulesRequest) -> ResultPage[entries.EntryRow]:
    """List the entries of the beat schedule in the order of declaration."""
    begin, limit = request.offset, request.limit
    found = entries.list_entry_rows(operator, search=request.search, offset=begin, limit=limit)
    end = begin + limit
    return ResultPage(found.entries, str(end) if end < found.total else None, found.total)


@endpoint("GET", "/entries")
def list_stored_entries(
    operator: Operator, request: requests.StoredEntriesRequest
) -> ResultPage[StoredEntry]:
    """List the entries that were created at run time, by name."""
    labels = dict(one.split("=", 1) for one in request.label)
    if not labels and request.task is None:  # only the records of this page are read
        known = (*operator.stored.entries, *operator.stored.unused)
        page = page_of(sorted(name for name in known if name.startswith(request.prefix)), request)
        records = operator.stored_entries.find(page.items)
        items = [records[name] for name in page.items if name in records]
        return ResultPage(items, page.next, page.total)
    found = operator.stored_entries.list(prefix=request.prefix, labels=labels, task=request.task)
    return page_of(found, request)


@endpoint("GET", "/entries/{entry}")
def get_stored_entry(operator: Operator, request: requests.EntryRequest) -> StoredEntry:
    """Show one entry that was created at run time, with its revision."""
    return operator.stored_entries.get(request.entry)


@endpoint("GET", "/entries/{entry}/why", heavy=True)
def explain_slot(operator: Operator, request: WhyRequest) -> Why:
    """Explain one time of an entry: what was decided, by whom and by which rule, or what will happen."""
    return why.why(operator, request.entry, request.at)


@endpoint("GET", "/entries/{entry}/whatif", heavy=True)
def replay_outages(operator: Operator, request: WhatIfRequest) -> whatif.WhatIf:
    """Play the recorded outages of an entry again under another policy."""
    since = request.since or to_datetime(operator.now()) - OUTAGES
    try:
        return whatif.whatif(
            operator, request.entry, window=request.window, policy=request.policy, since=since
        )
    except ConfigurationError as error:  # of the requested policy; the app's configuration is valid
        raise RefusedError("; ".join(map(str, error.mistakes))) from None


@endpoint("GET", "/schedules/{entry}")
def get_schedule(operator: Operator, request: requests.EntryRequest) -> entries.EntryPage:
    """Show one entry: its facts, next slots, runs by trigger, dead letters and outages."""
    return entries.show_entry(operator, request.entry)


@endpoint("GET", "/runs")
def list_runs(operator: Operator, request: requests.RunsRequest) -> ResultPage[runs.Run]:
    """List runs, newest slot first."""
    found = runs.list_runs(
        operator,
        request.entry,
        triggers=request.trigger_type,
        states=request.state,
        backfill=request.backfill,
        since=request.since,
        until=request.until,
        limit=request.limit,
        cursor=request.cursor,
    )
    return ResultPage(found.runs, found.cursor)


@endpoint("GET", "/runs/{runId}")
def get_run(operator: Operator, request: requests.RunRequest) -> runs.RunDetails:
    """Show everything known about one run."""
    return runs.show_run(operator, request.run_id)


@endpoint("GET", "/skipped", heavy=True)
def list_skipped(operator: Operator, request: requests.SkippedRequest) -> ResultPage[skipped_slots.Skipped]:
    """List the slots that were skipped, with the reasons, newest first."""
    begin, end = request.offset, request.offset + request.limit
    found = skipped_slots.list_skips(
        operator, request.entry, since=request.since, until=request.until, limit=end + 1
    )
    return ResultPage(found[begin:end], str(end) if len(found) > end else None)


@endpoint("GET", "/overdue")
def list_overdue(operator: Operator, request: requests.EntriesRequest) -> ResultPage[deadlines.Overdue]:
    """List the slots that have missed their deadline (`expect_within`), the earliest deadline first."""
    begin, end = request.offset, request.offset + request.limit
    found = deadlines.list_overdue(operator, request.entry, limit=end + 1)
    return ResultPage(found[begin:end], str(end) if len(found) > end else None)


@endpoint("GET", "/preview", heavy=True)
def preview_catchup(operator: Operator, request: requests.PreviewRequest) -> ResultPage[previews.Preview]:
    """Show what the next catch-up would do with each missed slot, by entry."""
    ahead = None if request.at is None else request.at - to_datetime(operator.now())
    if max(ahead or DAY, request.window or DAY) > LONGEST:
        raise RangeError(f"a preview covers at most {LONGEST.days} days, past or future; ask for less")
    # The page is cut before anything is planned, where it is known which entries have a policy.
    other = request.window is not None or request.policy is not None
    names = operator.in_schedule(request.entry) or (() if other else tuple(operator.declared))
    chosen = page_of(names, request)
    if names and not chosen.items:
        return ResultPage([], None, chosen.total)
    try:
        found = previews.preview(
            operator, chosen.items, window=request.window, policy=request.policy, at=request.at
        )
    except ConfigurationError as error:  # of the requested policy; the app's configuration is valid
        raise RefusedError("; ".join(map(str, error.mistakes))) from None
    page = ResultPage(found, chosen.next, chosen.total) if names else page_of(found, request)
    each = request.slots // max(len(page.items), 1)
    return replace(page, items=[truncated(one, each) for one in page.items])


def truncated(found: previews.Preview, limit: int) -> previews.Preview:
    """Keep the first slots of a preview; its counts are still those of all slots."""
    slots: Any = list(islice(found.slots, limit))
    return replace(found, slots=slots)


@endpoint("GET", "/timeline", heavy=True)
def get_timeline(operator: Operator, request: requests.TimelineRequest) -> ResultPage[EntryTimeline]:
    """Show what happened to each slot of these entries; dense neighbours are merged."""
    until = request.until or to_datetime(operator.now())
    since = request.since or until - DAY
    if since > until:
        raise RangeError("since is later than until; swap the two")
    if until - since > LONGEST:
        raise RangeError(f"a timeline covers at most {LONGEST.days} days; ask for a part of it")
    names = operator.known(request.entry) or tuple(operator.schedule)
    small = request.model_copy(update={"limit": min(request.limit, MOST_ENTRIES)})
    page = page_of(names, small)
    found = timeline.timeline(operator, page.items, since=since, until=until, most=request.most)
    return ResultPage([EntryTimeline(*one) for one in found.items()], page.next, page.total)


@endpoint("GET", "/outages")
def list_outages(operator: Operator, request: requests.OutagesRequest) -> ResultPage[status.Outage]:
    """List the times without a leading beat, oldest first."""
    since = request.since or to_datetime(operator.now()) - DAY
    return page_of(status.list_outages(operator, since=since), request)


@endpoint("GET", "/watermarks")
def list_watermarks(operator: Operator, request: requests.EntriesRequest) -> ResultPage[watermarks.Watermark]:
    """Show up to which time every slot is decided; the status has the scheduler's own watermark."""
    page = page_of(watermarks.names_with_watermark(operator, request.entry), request)
    found = watermarks.show_watermarks(operator, page.items).entries if page.items else ()
    return ResultPage(found, page.next, page.total)


@endpoint("GET", "/events", streams=True)
def watch_events(operator: Operator, request: requests.EventsRequest) -> str:
    """Stream what changes, as server-sent events: `ready`, then `changed` with the names of the collections
    to read again."""
    raise NotImplementedError  # the handler streams


@endpoint("GET", "/dead-letters")
def list_dead_letters(
    operator: Operator, request: requests.DeadLettersRequest
) -> ResultPage[dead_letters.DeadLetter]:
    """List the runs that have used up their attempts, the latest first."""
    found = dead_letters.list_dead(
        operator,
        request.entry,
        category=request.category,
        search=request.search,
        limit=request.limit + 1,
        cursor=request.cursor,
    )
    page = found[: request.limit]
    return ResultPage(page, dead_letters.cursor_after(page[-1]) if len(found) > len(page) else None)


@endpoint("GET", "/dead-letters/{runId}")
def get_dead_letter(operator: Operator, request: requests.RunRequest) -> dead_letters.DeadLetter:
    """Show one dead letter."""
    return dead_letters.show_dead(operator, request.run_id)


@endpoint("GET", "/audit")
def list_changes(operator: Operator, request: requests.AuditRequest) -> ResultPage[audit.AuditRecord]:
    """List who changed what, the newest first."""
    found = audit.list_changes(
        operator,
        entries=request.entry,
        actor=request.actor,
        origins=request.origin,
        since=request.since,
        limit=request.limit,
        cursor=request.cursor,
    )
    return ResultPage(found.records, found.cursor)


@endpoint("GET", "/backfills")
def list_backfills(operator: Operator, request: requests.PageRequest) -> ResultPage[backfills.BackfillView]:
    """List the stored backfills, newest first."""
    return page_of(backfills.list_backfills(operator), request)


@endpoint("GET", "/backfills/{id}")
def get_backfill(operator: Operator, request: requests.BackfillIdRequest) -> backfills.BackfillView:
    """Show one backfill and its progress."""
    return backfills.show_backfill(operator, request.id)


@endpoint("POST", "/backfills/preview", heavy=True)
def preview_backfill(operator: Operator, request: requests.BackfillPreviewRequest) -> previews.Preview:
    """Show what a backfill would do with each slot of its range; nothing changes."""
    return truncated(backfills.preview_backfill(operator, request.backfill()), request.slots)
