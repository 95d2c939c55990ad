"""Request models: pydantic parses, checks and describes the parameters of every endpoint.

A field whose name is in the endpoint's path is read from there, and one with `HEADER` from a header. The
other fields are query parameters of a GET and members of the JSON body of a POST.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
)
from pydantic.config import JsonDict

from celery_catchup.config.policy_choice import PolicyChoice
from celery_catchup.flower.api.values import (
    Absent,
    BackfillId,
    Cursor,
    Description,
    Duration,
    EndTime,
    EntryName,
    IdempotencyKey,
    Json,
    JsonNumber,
    Label,
    QueryNumber,
    Revision,
    RunId,
    SinceTime,
    Text,
    Time,
    WholeBackfillId,
    WholeRunId,
    digits,
)
from celery_catchup.model import RunState, Trigger
from celery_catchup.operations.backfills import MOST_SLOTS, BackfillRequest
from celery_catchup.operations.dead_letters import Category
from celery_catchup.operations.json_form import camel
from celery_catchup.operations.upcoming_slots import MOST_UPCOMING
from celery_catchup.planning.scope import Reprocess
from celery_catchup.store import Origin

QUERY_VALUES, BODY_VALUES = 50, 1000
"""Values that a list may have; a URL has to be short."""
DEFAULT_SLOTS = 1000

# -- parameters of several requests -----------------------------------------------------------

HEADER: JsonDict = {"in": "header"}
"""Marks a field that is a header; its alias is the header's name."""

_SINCE = "Only slots from this time on: a time, or how long ago (`6h`)."

Since = Annotated[SinceTime | Absent, Field(description=_SINCE)]
Limit = Annotated[
    int, Field(ge=1, le=1000, description="Maximum number of results."), BeforeValidator(digits)
]

Terminate = Annotated[
    StrictBool, Field(description="Let the worker kill the process that executes the run, if it is running.")
]
OptionalKey = Annotated[
    IdempotencyKey | Absent,
    Field(
        alias="Idempotency-Key",
        json_schema_extra=HEADER,
        description="A text of your choice: a second request with it creates nothing new.",
    ),
]

# -- requests ---------------------------------------------------------------------------------


class Request(BaseModel):
    """A request without parameters, and the base of all others."""

    # Clients use the aliases; `Endpoint.parse` rejects other names.
    model_config = ConfigDict(alias_generator=camel, populate_by_name=True, extra="forbid", frozen=True)


class PageRequest(Request):
    """Which page of a list."""

    limit: Limit = 50
    cursor: Cursor | Absent = Field(None, description="Continue after a previous page: its `next`.")

    @property
    def offset(self) -> int:
        """How many items to skip, in a list whose cursors are numbers."""
        return int((self.cursor or "0").partition("-")[0])


class EntryRequest(Request):
    """A request about one entry."""

    entry: EntryName = Field(description="Name of an entry.")


class RunRequest(Request):
    """A request about one run."""

    run_id: RunId = Field(description="Run ID, or a unique prefix of it.")


class BackfillIdRequest(Request):
    """A request about one backfill."""

    id: BackfillId = Field(description="Backfill ID, or a unique prefix of it.")


class EntriesRequest(PageRequest):
    """A list about some entries, or all."""

    entry: list[EntryName] = Field(
        [],
        max_length=QUERY_VALUES,
        description="Only these entries, `*` and `?` are wildcards; repeat the parameter for several.",
    )


class SchedulesRequest(PageRequest):
    """Which entries of the schedule to list."""

    search: Text = Field("", description="Only entries whose name or task contains this text.")


class RunsRequest(EntriesRequest):
    """Which runs to list."""

    trigger_type: list[Trigger] = Field(
        [], max_length=QUERY_VALUES, description="Only these triggers; repeat the parameter for several."
    )
    state: list[RunState] = Field(
        [], max_length=QUERY_VALUES, description="Only these states; repeat the parameter for several."
    )
    backfill: BackfillId | Absent = Field(None, description="Only runs of the backfill with this ID.")
    since: Since = None
    until: Time | Absent = Field(None, description="Only slots up to and including this time.")


class SkippedRequest(EntriesRequest):
    """Which skipped slots to list."""

    since: Since = None
    until: Time | Absent = Field(None, description="Only slots up to and including this time.")


class PreviewRequest(EntriesRequest):
    """Which entries to preview, and under which policy."""

    window: Duration | Absent = Field(None, description="Use this window, such as `6h`.")
    policy: PolicyChoice | Absent = Field(None, description="Use this policy.")
    at: Time | Absent = Field(None, description="Assume that beat comes back at this time.")
    slots: QueryNumber = Field(
        DEFAULT_SLOTS, ge=0, le=10_000, description="Maximum number of slots that are listed, in all."
    )


class TimelineRequest(EntriesRequest):
    """Which part of the timeline to show."""

    since: SinceTime | Absent = Field(
        None, description="Start: a time, or how long ago (`6h`); by default a day before `until`."
    )
    until: Time | Absent = Field(None, description="End; by default now.")
    most: QueryNumber = Field(
        400, ge=1, le=2000, description="Approximate number of values per entry; fewer for many entries."
    )


class OutagesRequest(PageRequest):
    """Which outages to list."""

    since: SinceTime | Absent = Field(
        None, description="Only outages that ended after this time; by default a day ago."
    )


class EventsRequest(Request):
    """How long to listen."""

    most: QueryNumber | Absent = Field(
        None,
        ge=1,
        le=1000,
        description="End the stream after this number of changes; 1 waits for the next one.",
    )
    seconds: QueryNumber = Field(
        3600, ge=0, le=3600, description="End the stream after this time; browsers connect again."
    )


class DeadLettersRequest(EntriesRequest):
    """Which dead letters to list."""

    category: Category | Absent = Field(None, description="Only this category.")
    search: Text = Field(
        "", description="Only dead letters whose error, traceback, entry, task, worker or ID has this text."
    )


class AuditRequest(EntriesRequest):
    """Which changes to list."""

    actor: Text = Field("", description="Only by actors whose names contain this text.")
    origin: list[Origin] = Field(
        [], max_length=QUERY_VALUES, description="Only from these origins; repeat the parameter for several."
    )
    since: SinceTime | Absent = Field(
        None, description="Only changes from this time on: a time, or how long ago (`6h`)."
    )


class ChangeRequest(Request):
    """A change that can be tried without effect."""

    dry_run: StrictBool = Field(False, description="Report what would be done, and change nothing.")


class EntriesChangeRequest(ChangeRequest):
    """Which entries to change."""

    entries: list[EntryName] = Field(
        min_length=1,
        max_length=BODY_VALUES,
        description="Names of entries, or patterns with `*` and `?`; each entry has its own outcome.",
    )


class PauseRequest(EntryRequest, ChangeRequest):
    """Which entry to pause, and why."""

    reason: Text = Field("", description="Reason, for the record.")


class PausesRequest(EntriesChangeRequest):
    """Which entries to pause, and why."""

    reason: Text = Field("", description="Reason, for the record.")


class ResumeRequest(EntryRequest, ChangeRequest):
    """Which entry to resume."""

    catchup: StrictBool = Field(True, description="Catch up the slots missed during the pause.")


class HeldRequest(EntryRequest, ChangeRequest):
    """Which held entry to decide on."""


class ResumesRequest(EntriesChangeRequest):
    """Which entries to resume."""

    catchup: StrictBool = Field(True, description="Catch up the slots missed during the pause.")


class WatermarkRequest(EntryRequest, ChangeRequest):
    """Where to move a watermark."""

    at: Time = Field(description="Slots up to this time count as decided; later ones are caught up.")


class StoredEntriesRequest(PageRequest):
    """Which stored entries to list."""

    prefix: Text = Field("", description="Only entries whose names begin with this text.")
    task: Text | Absent = Field(None, description="Only entries of this task.")
    label: list[Label] = Field(
        [], max_length=QUERY_VALUES, description="Only entries with these labels: `name=value`."
    )


class EntryFieldsRequest(ChangeRequest):
    """The fields of a stored entry; those that are not sent keep their values, or their defaults."""

    task: Text | Absent = Field(None, description="The name of the task to run.")
    schedule: Json | Absent = Field(
        None, description="A cron string, an object with `every` or `at`, or a list."
    )
    args: list[Any] | Absent = Field(None, description="Positional arguments of the task.")
    kwargs: dict[str, Any] | Absent = Field(None, description="Keyword arguments of the task.")
    options: dict[str, Any] | Absent = Field(None, description="Options of `apply_async`.")
    catchup: Json | Absent = Field(None, description="The policy, a window such as `6h`, or false.")
    description: Description | Absent = Field(None, description="A note for people.")
    labels: dict[str, str] | Absent = Field(None, description="Labels, which replace the former ones.")
    enabled: StrictBool | Absent = Field(None, description="Whether it runs.")

    def fields(self) -> dict[str, Any]:
        """Return the fields that were sent."""
        sent = self.model_dump(exclude_unset=True, include=set(EntryFieldsRequest.model_fields))
        return {name: value for name, value in sent.items() if name != "dry_run"}


class NewEntryRequest(EntryFieldsRequest):
    """The entry to create."""

    name: Text = Field(description="Name of the new entry.")


class EntryPreviewRequest(Request):
    """The schedule and the policy whose slots to show."""

    name: EntryName = Field("entry", description="Name of the entry; intervals of one that exists continue.")
    schedule: Json = Field(description="A cron string, an object with `every` or `at`, or a list.")
    catchup: Json | Absent = Field(None, description="The policy, a window such as `6h`, or false.")
    slots: JsonNumber = Field(10, ge=1, le=MOST_UPCOMING, description="Maximum number of slots.")


class StoredEntryRequest(Request):
    """A stored entry, and the revision that the client has read."""

    entry: EntryName = Field(description="Name of a stored entry.")
    revision: Revision | Absent = Field(
        None,
        alias="If-Match",
        json_schema_extra=HEADER,
        description="The `revision` that the client has read; if the entry has another, nothing changes.",
    )

    @property
    def expected(self) -> int | None:
        """The revision that the entry must have; None for any."""
        return None if self.revision in (None, "*") else int(self.revision.strip('"'))


class EntryUpdateRequest(StoredEntryRequest, EntryFieldsRequest):
    """How to change a stored entry."""


class EntryDeletionRequest(StoredEntryRequest, ChangeRequest):
    """Which stored entry to delete."""


class StartRunRequest(EntryRequest, ChangeRequest):
    """Which run to start."""

    at: Time | Absent = Field(None, description="The slot to run; by default a run for this moment.")
    keep_missed: StrictBool = Field(
        False, description="Catch up the slots missed before all the same; else they are skipped."
    )
    idempotency_key: OptionalKey = None


class RunChangeRequest(ChangeRequest):
    """Which run to change."""

    run_id: WholeRunId = Field(description="The whole run ID.")


class RunCancelRequest(RunChangeRequest):
    """Which run to cancel."""

    terminate: Terminate = False


class RunsChangeRequest(ChangeRequest):
    """Which runs to change."""

    run_ids: list[WholeRunId] = Field(
        min_length=1, max_length=BODY_VALUES, description="Whole run IDs; each has its own outcome."
    )


class RunsCancelRequest(RunsChangeRequest):
    """Which runs to cancel."""

    terminate: Terminate = False


class BackfillChangeRequest(ChangeRequest):
    """Which backfill to change."""

    id: WholeBackfillId = Field(description="The whole backfill ID.")


class BackfillRangeRequest(EntryRequest):
    """Which slots to backfill, and how."""

    start: Time = Field(description="The first slot, or a time before it.")
    end: EndTime = Field(description="The last slot, or a time after it.")
    reprocess: Reprocess = Field(
        Reprocess.NONE,
        description="Which slots that already have a run run again: none, failed ones, or all.",
    )
    max_active: JsonNumber = Field(1, ge=1, le=1000, description="Maximum number of its runs at once.")
    newest_first: StrictBool = Field(False, description="Start with the newest slot.")
    span: Duration | Absent = Field(
        None,
        description="Make one run for the slots of up to this time, such as 1d, instead of one for each.",
    )

    def backfill(self, **more: Any) -> BackfillRequest:
        """Convert the request to the value that the operations take."""
        fields = {name: getattr(self, name) for name in BackfillRangeRequest.model_fields}
        return BackfillRequest(**fields, **more)


class NewBackfillRequest(BackfillRangeRequest, ChangeRequest):
    """Which backfill to create."""

    max_slots: JsonNumber = Field(
        MOST_SLOTS, ge=1, le=100_000_000, description="Refuse a range with more slots than this."
    )
    idempotency_key: OptionalKey = None


class BackfillPreviewRequest(BackfillRangeRequest):
    """Which backfill to preview."""

    slots: JsonNumber = Field(
        DEFAULT_SLOTS, ge=0, le=10_000, description="Maximum number of slots that are listed."
    )
