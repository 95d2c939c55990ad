"""Endpoints that change nothing: each calls one operation and returns its result."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import Any

from celery_catchup.errors import ConfigurationError
from celery_catchup.flower.api import requests, responses
from celery_catchup.flower.api.endpoint import endpoint
from celery_catchup.model import to_datetime
from celery_catchup.operations import (
    Operator,
    RefusedError,
    backfills,
    dead_letters,
    entries,
    previews,
    runs,
    status,
    timeline,
    watermarks,
)

DAY = timedelta(hours=24)
LONGEST = timedelta(days=366)
"""The longest timeline, and the longest window of a preview."""
MOST_PREVIEWED = 100_000
"""Slots of a backfill that is only previewed."""
MOST_ENTRIES = 200
"""Entries of one timeline."""


@endpoint("GET", "/status")
def get_status(operator: Operator, request: requests.Request) -> status.Status:
    """Show whether a beat leads, what it does, and what needs attention."""
    return status.status(operator)


@endpoint("GET", "/overview")
def get_overview(operator: Operator, request: requests.Request) -> status.Overview:
    """Show the status, the last catch-up, and the last 24 hours in numbers."""
    return status.overview(operator)


@endpoint("GET", "/schedules")
def list_schedules(operator: Operator, request: requests.SchedulesRequest) -> entries.EntryRows:
    """List the entries of the beat schedule in the order of declaration, in pages."""
    return entries.list_entry_rows(
        operator, search=request.search, offset=request.offset, limit=request.limit
    )


@endpoint("GET", "/schedules/{entry}")
def get_schedule(operator: Operator, request: requests.EntryRequest) -> entries.EntryPage:
    """Show one entry: its facts, next slots, runs by trigger, dead letters and outages."""
    return entries.show_entry(operator, request.entry)


@endpoint("GET", "/runs")
def list_runs(operator: Operator, request: requests.RunsRequest) -> runs.Runs:
    """List runs, newest slot first."""
    return runs.list_runs(
        operator,
        request.entry,
        triggers=request.trigger_type,
        states=request.state,
        since=request.since,
        until=request.until,
        limit=request.limit,
        cursor=request.cursor,
    )


@endpoint("GET", "/runs/{runId}")
def get_run(operator: Operator, request: requests.RunRequest) -> runs.RunDetails:
    """Show everything known about one run."""
    return runs.show_run(operator, request.run_id)


@endpoint("GET", "/skipped")
def list_skipped(operator: Operator, request: requests.SkippedRequest) -> responses.SkippedList:
    """List the slots that were skipped, with the reasons."""
    return responses.SkippedList(
        runs.list_skips(operator, request.entry, since=request.since, limit=request.limit)
    )


@endpoint("GET", "/preview")
def preview(operator: Operator, request: requests.PreviewRequest) -> responses.PreviewList:
    """Show what the next catch-up would do with each missed slot."""
    ahead = None if request.at is None else request.at - to_datetime(operator.now())
    if max(ahead or DAY, request.window or DAY) > LONGEST:
        raise RefusedError(f"a preview covers at most {LONGEST.days} days, past or future; ask for less")
    try:
        found = previews.preview(
            operator, request.entry, window=request.window, policy=request.policy, at=request.at
        )
    except ConfigurationError as error:  # of the requested policy; the app's configuration is valid
        raise RefusedError("; ".join(map(str, error.mistakes))) from None
    return responses.PreviewList([truncated(one, request.limit) for one in found])


def truncated(found: previews.Preview, limit: int) -> previews.Preview:
    """Keep the first slots of a preview; its counts are still those of all slots."""
    slots: Any = list(islice(found.slots, limit))
    return replace(found, slots=slots)


@endpoint("GET", "/timeline")
def get_timeline(operator: Operator, request: requests.TimelineRequest) -> responses.Timelines:
    """Show what happened to each slot of these entries; dense neighbours are merged."""
    until = request.until or to_datetime(operator.now())
    since = request.since or until - DAY
    if since > until:
        raise RefusedError("since is later than until; swap the two")
    if until - since > LONGEST:
        raise RefusedError(f"a timeline covers at most {LONGEST.days} days; ask for a part of it")
    names = list(dict.fromkeys(request.entry)) or list(operator.schedule)
    if len(names) > MOST_ENTRIES:
        raise RefusedError(f"{len(names)} entries are too many for one timeline; name up to {MOST_ENTRIES}")
    return responses.Timelines(
        timeline.timeline(operator, names, since=since, until=until, most=request.most)
    )


@endpoint("GET", "/outages")
def list_outages(operator: Operator, request: requests.OutagesRequest) -> responses.OutageList:
    """List the times without a leading beat."""
    since = request.since or to_datetime(operator.now()) - DAY
    return responses.OutageList(status.list_outages(operator, since=since))


@endpoint("GET", "/watermarks")
def get_watermarks(operator: Operator, request: requests.EntriesRequest) -> watermarks.WatermarkReport:
    """Show up to which time every slot is decided."""
    return watermarks.show_watermarks(operator, request.entry)


@endpoint("GET", "/dead-letters")
def list_dead_letters(operator: Operator, request: requests.DeadLettersRequest) -> responses.DeadLetterList:
    """List the runs that have used up their attempts, the latest first."""
    return responses.DeadLetterList(
        dead_letters.list_dead(
            operator,
            request.entry,
            category=request.category,
            search=request.search,
            limit=request.limit,
        )
    )


@endpoint("GET", "/dead-letters/{runId}")
def get_dead_letter(operator: Operator, request: requests.RunRequest) -> dead_letters.DeadLetter:
    """Show one dead letter."""
    return dead_letters.show_dead(operator, request.run_id)


@endpoint("GET", "/backfills")
def list_backfills(operator: Operator, request: requests.Request) -> responses.BackfillList:
    """List the stored backfills, newest first."""
    return responses.BackfillList(backfills.list_backfills(operator))


@endpoint("GET", "/backfills/{id}")
def get_backfill(operator: Operator, request: requests.BackfillIdRequest) -> backfills.BackfillView:
    """Show one backfill and its progress."""
    return backfills.show_backfill(operator, request.id)


@endpoint("POST", "/backfill/preview")
def preview_backfill(operator: Operator, request: requests.BackfillPreviewRequest) -> previews.Preview:
    """Show what a backfill would do with each slot of its range; nothing changes."""
    found = backfills.preview_backfill(operator, request.backfill(), most=MOST_PREVIEWED)
    return truncated(found, request.limit)
