"""Parameters that several endpoints share."""

from __future__ import annotations

from dataclasses import replace

from celery_catchup.flower.api.endpoints import Field, Values
from celery_catchup.flower.api.kinds import Flag, Moment, Text, Whole, Word
from celery_catchup.operations.backfills import BackfillRequest
from celery_catchup.operations.dead_letters import Category
from celery_catchup.planning.scope import Reprocess

ENTRY = Field(name="entry", kind=Text(shortest=1), help="Name of an entry.", required=True)
ENTRIES = replace(ENTRY, required=False, many=True, help="Only these entries; may be given several times.")
RUN_ID = Field(
    name="runId",
    kind=Text(pattern="[0-9a-zA-Z-]{4,60}", longest=60, shortest=4),
    help="Id of a run, or a beginning of it that no other has.",
    required=True,
)
BACKFILL_ID = Field(
    name="id",
    kind=Text(pattern="[0-9a-zA-Z]{1,32}", longest=32, shortest=1),
    help="Id of a backfill, or a beginning of it that no other has.",
    required=True,
)
CATEGORY = Field(name="category", kind=Word(Category), help="Only this.")
SEARCH = Field(
    name="search",
    kind=Text(),
    help="Only those whose error, traceback, entry, task, worker or id has this text.",
    default="",
)
SINCE = Field(
    name="since", kind=Moment(since=True), help="Slots from then on: a time, or how long ago (`6h`)."
)
UNTIL = Field(name="until", kind=Moment(), help="Slots up to then, that one included.")
LIMIT = Field(name="limit", kind=Whole(1, 1000), help="At most so many.", default=50)
SLOTS = Field(name="limit", kind=Whole(0, 10_000), help="At most so many slots of each entry.", default=1000)

BACKFILL = (
    ENTRY,
    Field(name="start", kind=Moment(), help="The first slot, or a time before it.", required=True),
    Field(name="end", kind=Moment(whole_day=True), help="The last slot, or a time behind it.", required=True),
    Field(
        name="reprocess",
        kind=Word(Reprocess),
        help="Which slots that have a run already run again: none, failed ones, or all.",
        default=Reprocess.NONE,
    ),
    Field(name="maxActive", kind=Whole(1, 1000), help="So many of its runs at once.", default=1),
    Field(name="newestFirst", kind=Flag(), help="Begin with the newest slot.", default=False),
)


def asked_for(given: Values) -> BackfillRequest:
    """A backfill as it is asked for."""
    names = {"maxActive": "max_active", "newestFirst": "newest_first"}
    wanted = {field.name for field in BACKFILL}
    return BackfillRequest(
        **{names.get(name, name): value for name, value in given.items() if name in wanted}
    )
