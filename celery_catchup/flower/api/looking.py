"""Endpoints that look, and change nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import Any

from celery_catchup.errors import ConfigurationError
from celery_catchup.flower.api.answers import (
    Backfills,
    DeadLetters,
    Outages,
    Previews,
    SkippedSlots,
    Timelines,
)
from celery_catchup.flower.api.endpoints import Endpoint, Field, Values
from celery_catchup.flower.api.kinds import Length, Moment, Text, Whole, Word
from celery_catchup.flower.api.parameters import (
    BACKFILL,
    BACKFILL_ID,
    CATEGORY,
    ENTRIES,
    ENTRY,
    LIMIT,
    RUN_ID,
    SEARCH,
    SINCE,
    SLOTS,
    UNTIL,
    asked_for,
)
from celery_catchup.model import RunState, Trigger, to_datetime
from celery_catchup.operations import Operator, RefusedError
from celery_catchup.operations.backfills import (
    BackfillView,
    list_backfills,
    preview_backfill,
    show_backfill,
)
from celery_catchup.operations.dead_letters import DeadLetter, list_dead, show_dead
from celery_catchup.operations.entries import EntryPage, EntryRows, list_entry_rows, show_entry
from celery_catchup.operations.previews import PolicyChoice, Preview, preview
from celery_catchup.operations.runs import RunDetails, Runs, list_runs, list_skips, show_run
from celery_catchup.operations.status import Overview, Status, list_outages, overview, status
from celery_catchup.operations.timeline import timeline
from celery_catchup.operations.watermarks import WatermarkReport, show_watermarks

DAY = timedelta(hours=24)
LONGEST = timedelta(days=366)
"""Of a timeline, and of what is imagined in a preview."""
MOST_PREVIEWED = 100_000
"""Slots of a backfill that is only looked at."""
LANES = 200
"""Entries of one timeline."""


def shortened(found: Preview, limit: int) -> Preview:
    """A preview with the first of its slots; the counts are of all of them."""
    slots: Any = list(islice(found.slots, limit))
    return replace(found, slots=slots)


def _preview(operator: Operator, given: Values) -> Previews:
    ahead = None if given["at"] is None else given["at"] - to_datetime(operator.now())
    if max(ahead or DAY, given["window"] or DAY) > LONGEST:
        raise RefusedError(f"a preview looks {LONGEST.days} days far at the most, both ways")
    try:
        found = preview(
            operator, given["entry"], window=given["window"], policy=given["policy"], at=given["at"]
        )
    except ConfigurationError as error:  # what was asked for; the app's own was read before
        raise RefusedError("; ".join(map(str, error.mistakes))) from None
    return Previews([shortened(one, given["limit"]) for one in found])


def _runs(operator: Operator, given: Values) -> Runs:
    return list_runs(
        operator,
        given["entry"],
        triggers=given["triggerType"],
        states=given["state"],
        since=given["since"],
        until=given["until"],
        limit=given["limit"],
        cursor=given["cursor"],
    )


def _timeline(operator: Operator, given: Values) -> Timelines:
    names: Iterable[str] = given["entry"]
    until = given["until"] or to_datetime(operator.now())
    since = given["since"] or until - DAY
    if since > until:
        raise RefusedError("since is later than until; swap the two")
    if until - since > LONGEST:
        raise RefusedError(f"a timeline is of {LONGEST.days} days at the most; ask for a part of it")
    wanted = list(dict.fromkeys(names)) or list(operator.schedule)
    if len(wanted) > LANES:
        raise RefusedError(f"{len(wanted)} entries are too many for one timeline; name up to {LANES}")
    return Timelines(timeline(operator, wanted, since=since, until=until, most=given["most"]))


def _outages(operator: Operator, given: Values) -> Outages:
    return Outages(list_outages(operator, since=given["since"] or to_datetime(operator.now()) - DAY))


LOOKING = (
    Endpoint(
        method="GET",
        path="/status",
        name="getStatus",
        summary="Whether a beat leads, what it is doing, and what waits for somebody.",
        answer=Status,
        operation=lambda operator, given: status(operator),
    ),
    Endpoint(
        method="GET",
        path="/overview",
        name="getOverview",
        summary="The status, the last catch-up, and the last 24 hours in numbers.",
        answer=Overview,
        operation=lambda operator, given: overview(operator),
    ),
    Endpoint(
        method="GET",
        path="/schedules",
        name="listSchedules",
        summary="The entries of the beat schedule, page by page, in the order of declaration.",
        answer=EntryRows,
        query=(
            Field(
                name="search", kind=Text(), help="Only those whose name or task contains this.", default=""
            ),
            Field(name="offset", kind=Whole(0, 1_000_000), help="Leave out so many.", default=0),
            LIMIT,
        ),
        operation=lambda operator, given: list_entry_rows(operator, **given),
    ),
    Endpoint(
        method="GET",
        path="/schedules/{entry}",
        name="getSchedule",
        summary="One entry: facts, next slots, runs by trigger, dead letters, outages.",
        answer=EntryPage,
        where=(ENTRY,),
        operation=lambda operator, given: show_entry(operator, given["entry"]),
    ),
    Endpoint(
        method="GET",
        path="/runs",
        name="listRuns",
        summary="Runs, the newest slot first.",
        answer=Runs,
        query=(
            ENTRIES,
            Field(name="triggerType", kind=Word(Trigger), help="Only these; several times.", many=True),
            Field(name="state", kind=Word(RunState), help="Only these; several times.", many=True),
            SINCE,
            UNTIL,
            LIMIT,
            Field(
                name="cursor",
                kind=Text(pattern="[0-9]{1,15}-[0-9a-zA-Z-]{1,60}", longest=80),
                help="Go on behind a page before: its `cursor`.",
            ),
        ),
        operation=_runs,
    ),
    Endpoint(
        method="GET",
        path="/runs/{runId}",
        name="getRun",
        summary="Everything that is known of one run.",
        answer=RunDetails,
        where=(RUN_ID,),
        operation=lambda operator, given: show_run(operator, given["runId"]),
    ),
    Endpoint(
        method="GET",
        path="/skipped",
        name="listSkipped",
        summary="Slots that were decided not to run, and why.",
        answer=SkippedSlots,
        query=(ENTRIES, SINCE, LIMIT),
        operation=lambda operator, given: SkippedSlots(
            list_skips(operator, given["entry"], since=given["since"], limit=given["limit"])
        ),
    ),
    Endpoint(
        method="GET",
        path="/preview",
        name="preview",
        summary="What the next catch-up would do with each slot that was missed.",
        answer=Previews,
        query=(
            ENTRIES,
            Field(name="window", kind=Length(), help="With this window, such as `6h`."),
            Field(name="policy", kind=Word(PolicyChoice), help="With this policy."),
            Field(name="at", kind=Moment(), help="If beat were back at this time."),
            SLOTS,
        ),
        refuses=True,
        operation=_preview,
    ),
    Endpoint(
        method="GET",
        path="/timeline",
        name="getTimeline",
        summary="What became of each slot of these entries; dense neighbours are merged.",
        answer=Timelines,
        query=(
            ENTRIES,
            replace(SINCE, help="From then on; by default a day before `until`."),
            replace(UNTIL, help="Up to then; by default now."),
            Field(
                name="most",
                kind=Whole(1, 2000),
                help="About so many values per entry; fewer of many entries.",
                default=400,
            ),
        ),
        refuses=True,
        operation=_timeline,
    ),
    Endpoint(
        method="GET",
        path="/outages",
        name="listOutages",
        summary="Times in which no beat led.",
        answer=Outages,
        query=(replace(SINCE, help="That ended after then; by default a day ago."),),
        operation=_outages,
    ),
    Endpoint(
        method="GET",
        path="/watermarks",
        name="getWatermarks",
        summary="Up to where everything is decided.",
        answer=WatermarkReport,
        query=(ENTRIES,),
        refuses=True,
        operation=lambda operator, given: show_watermarks(operator, given["entry"]),
    ),
    Endpoint(
        method="GET",
        path="/dead-letters",
        name="listDeadLetters",
        summary="Runs that have used up their attempts, those that died last first.",
        answer=DeadLetters,
        query=(ENTRIES, CATEGORY, SEARCH, LIMIT),
        operation=lambda operator, given: DeadLetters(
            list_dead(
                operator, given["entry"], **{name: given[name] for name in ("category", "search", "limit")}
            )
        ),
    ),
    Endpoint(
        method="GET",
        path="/dead-letters/{runId}",
        name="getDeadLetter",
        summary="One dead letter.",
        answer=DeadLetter,
        where=(RUN_ID,),
        operation=lambda operator, given: show_dead(operator, given["runId"]),
    ),
    Endpoint(
        method="GET",
        path="/backfills",
        name="listBackfills",
        summary="Backfills that are remembered, the newest first.",
        answer=Backfills,
        operation=lambda operator, given: Backfills(list_backfills(operator)),
    ),
    Endpoint(
        method="GET",
        path="/backfills/{id}",
        name="getBackfill",
        summary="One backfill and how far it is.",
        answer=BackfillView,
        where=(BACKFILL_ID,),
        operation=lambda operator, given: show_backfill(operator, given["id"]),
    ),
    Endpoint(
        method="POST",
        path="/backfill/preview",
        name="previewBackfill",
        summary="What a backfill would do with each slot of its range. It changes nothing.",
        answer=Preview,
        body=(*BACKFILL, SLOTS),
        refuses=True,
        operation=lambda operator, given: shortened(
            preview_backfill(operator, asked_for(given), most=MOST_PREVIEWED), given["limit"]
        ),
    ),
)
