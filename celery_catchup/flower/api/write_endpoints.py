"""Endpoints that change something; each also has a dry run, or a preview."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from urllib.parse import quote

from celery_catchup.error_text import shown
from celery_catchup.errors import ConfigurationError
from celery_catchup.flower.api import requests
from celery_catchup.flower.api.endpoint import endpoint
from celery_catchup.flower.api.errors import ApiError, ErrorCode
from celery_catchup.flower.api.read_endpoints import truncated
from celery_catchup.flower.api.responses import (
    Created,
    EntryOutcome,
    EntryResult,
    Page,
    Resumed,
    RunOutcome,
)
from celery_catchup.flower.operators import follow_at_once
from celery_catchup.operations import Operator, backfills, dead_letters, manual_runs, pauses, watermarks
from celery_catchup.operations.dead_letters import HandledRun, Outcome
from celery_catchup.operations.refusals import NoPolicyError, UnknownEntryError
from celery_catchup.store.listing import Record
from celery_catchup.stored_entries.stored_entry import StoredEntry

# -- entries ----------------------------------------------------------------------------------


@endpoint("POST", "/schedules/{entry}/pause", changes=True)
def pause_schedule(operator: Operator, request: requests.PauseRequest) -> pauses.Paused:
    """Pause an entry: decide no more slots. Runs that exist already continue."""
    (found,) = pauses.pause(operator, [request.entry], reason=request.reason, dry_run=request.dry_run)
    return found


@endpoint("POST", "/schedules/pause", changes=True, heavy=True)
def pause_schedules(operator: Operator, request: requests.PausesRequest) -> Page[EntryOutcome]:
    """Pause several entries."""
    return _of_entries(
        operator,
        request,
        EntryResult.PAUSED,
        lambda names: pauses.pause(operator, names, reason=request.reason, dry_run=request.dry_run),
    )


@endpoint("POST", "/schedules/{entry}/resume", changes=True, heavy=True)
def resume_schedule(operator: Operator, request: requests.ResumeRequest) -> Resumed:
    """Resume an entry, and catch up the slots that it missed."""
    found = pauses.resume(operator, [request.entry], catchup=request.catchup, dry_run=request.dry_run)
    preview = truncated(found.previews[0], requests.DEFAULT_SLOTS) if found.previews else None
    return Resumed(request.entry, found.entries[0].changed, preview)


@endpoint("POST", "/schedules/resume", changes=True, heavy=True)
def resume_schedules(operator: Operator, request: requests.ResumesRequest) -> Page[EntryOutcome]:
    """Resume several entries, and catch up the slots that they missed."""
    return _of_entries(
        operator,
        request,
        EntryResult.RESUMED,
        lambda names: (
            pauses.resume(
                operator, names, catchup=request.catchup, dry_run=request.dry_run, with_previews=False
            ).entries
        ),
    )


@endpoint("POST", "/schedules/{entry}/watermark", changes=True, heavy=True)
def move_watermark(operator: Operator, request: requests.WatermarkRequest) -> watermarks.WatermarkMove:
    """Move an entry's watermark: earlier slots are dropped, later ones caught up as the policy says."""
    found = watermarks.set_watermark(operator, request.entry, request.at, dry_run=request.dry_run)
    before, after = (
        tuple(truncated(one, requests.DEFAULT_SLOTS) for one in some) for some in (found.before, found.after)
    )
    return replace(found, before=before, after=after)


def _of_entries(
    operator: Operator,
    request: requests.EntriesChangeRequest,
    done: EntryResult,
    change: Callable[[list[str]], Sequence[pauses.Paused]],
) -> Page[EntryOutcome]:
    outcomes: dict[str, EntryOutcome | None] = dict.fromkeys(request.entries)
    for name in outcomes:
        try:
            pauses.check_pausable(operator, name)
        except NoPolicyError as error:
            outcomes[name] = EntryOutcome(name, EntryResult.REFUSED, str(error))
        except UnknownEntryError as error:
            outcomes[name] = EntryOutcome(name, EntryResult.UNKNOWN, str(error))
    changed = EntryResult.WOULD if request.dry_run else done
    for one in change([name for name, outcome in outcomes.items() if outcome is None]):
        outcomes[one.entry] = EntryOutcome(one.entry, changed if one.changed else EntryResult.UNCHANGED)
    items = [one for one in outcomes.values() if one is not None]
    return Page(items, None, len(items))


# -- stored entries ---------------------------------------------------------------------------


@endpoint("POST", "/entries", changes=True)
def create_entry(operator: Operator, request: requests.NewEntryRequest) -> Created[StoredEntry]:
    """Create an entry; beat runs it from its next tick on. Its task must match `catchup_allowed_tasks`."""
    fields = {"task": "", "schedule": "", **request.fields()}
    _check_task(operator, fields["task"])
    with _mistakes_of_request():
        made = operator.stored_entries.create(request.name, **fields, dry_run=request.dry_run)
    follow_at_once(operator.app)
    return Created(made, None if request.dry_run else f"/entries/{quote(made.name, safe='')}")


@endpoint("POST", "/entries/{entry}/update", changes=True)
def update_entry(operator: Operator, request: requests.EntryUpdateRequest) -> StoredEntry:
    """Change some fields of a stored entry: enable or disable it, for example."""
    fields, stored = request.fields(), operator.stored_entries
    before = stored.get(request.entry)
    _check_task(operator, before.task)
    _check_task(operator, fields.get("task", before.task))
    with _mistakes_of_request():
        changed = stored.update(request.entry, revision=request.expected, **fields, dry_run=request.dry_run)
    follow_at_once(operator.app)
    return changed


@endpoint("POST", "/entries/{entry}/delete", changes=True)
def delete_entry(operator: Operator, request: requests.EntryDeletionRequest) -> StoredEntry:
    """Delete a stored entry; its history is kept as long as the ledger keeps runs."""
    stored = operator.stored_entries
    before = stored.get(request.entry)
    _check_task(operator, before.task)
    if not request.dry_run:
        stored.delete(request.entry, revision=request.expected)
        follow_at_once(operator.app)
    return before


def _check_task(operator: Operator, task: str) -> None:
    """Refuse a task that may not be run by entries which are changed over HTTP."""
    allowed = operator.declared_configuration.settings.allowed_tasks
    if not any(fnmatchcase(task, pattern) for pattern in allowed):
        message = f"task {shown(task)} is not allowed; add a pattern for it to catchup_allowed_tasks"
        raise ApiError(ErrorCode.TASK_NOT_ALLOWED, message)


@contextmanager
def _mistakes_of_request() -> Iterator[None]:
    """Report wrong fields as mistakes of the request, not of the configuration."""
    try:
        yield
    except ConfigurationError as error:
        noun = "mistake" if len(error.mistakes) == 1 else "mistakes"
        message = f"{len(error.mistakes)} {noun} in the entry"
        raise ApiError(ErrorCode.INVALID_REQUEST, message, error.mistakes) from None


# -- runs -------------------------------------------------------------------------------------


@endpoint("POST", "/runs", changes=True)
def start_run(operator: Operator, request: requests.StartRunRequest) -> Created[manual_runs.StartedRun]:
    """Start the run of a slot, or one for this moment; slots missed before it are not caught up any more,
    unless `keepMissed` says so."""
    started = manual_runs.start_run(
        operator,
        request.entry,
        at=request.at,
        keep_missed=request.keep_missed,
        dry_run=request.dry_run,
    )
    return Created(started, None if request.dry_run else f"/runs/{started.run_id}")


@endpoint("POST", "/runs/{runId}/replay", changes=True)
def replay_run(operator: Operator, request: requests.RunChangeRequest) -> HandledRun:
    """Attempt a run again, with its original inputs."""
    return _one(dead_letters.replay, operator, request)


@endpoint("POST", "/runs/{runId}/discard", changes=True)
def discard_run(operator: Operator, request: requests.RunChangeRequest) -> HandledRun:
    """Remove a run from the dead letters; it stays in the ledger as failed."""
    return _one(dead_letters.discard, operator, request)


@endpoint("POST", "/runs/replay", changes=True, heavy=True)
def replay_runs(operator: Operator, request: requests.RunsChangeRequest) -> Page[RunOutcome]:
    """Attempt several runs again, with their original inputs."""
    return _several(dead_letters.replay, operator, request)


@endpoint("POST", "/runs/discard", changes=True, heavy=True)
def discard_runs(operator: Operator, request: requests.RunsChangeRequest) -> Page[RunOutcome]:
    """Remove runs from the dead letters; they stay in the ledger as failed."""
    return _several(dead_letters.discard, operator, request)


def _one(
    change: Callable[..., list[HandledRun]], operator: Operator, request: requests.RunChangeRequest
) -> HandledRun:
    handled = change(operator, dead_letters.select_dead(operator, [request.run_id]), dry_run=request.dry_run)
    dead_letters.raise_if_refused(handled)
    return handled[0]


def _several(
    change: Callable[..., list[HandledRun]], operator: Operator, request: requests.RunsChangeRequest
) -> Page[RunOutcome]:
    """Change the runs, the oldest slot first; the outcomes are in the order of the request."""
    wanted = list(dict.fromkeys(run_id.lower() for run_id in request.run_ids))
    records: list[Record] = operator.listing.records(wanted)
    records.sort(key=lambda record: (record["slot"], record["id"]))
    handled = {one.run_id: one for one in change(operator, records, dry_run=request.dry_run)}
    items = []
    for run_id in wanted:
        one = handled.get(run_id)
        items.append(
            RunOutcome(run_id, Outcome.UNKNOWN, "no such run")
            if one is None
            else RunOutcome(run_id, one.outcome, one.reason, one.entry, one.scheduled_time)
        )
    return Page(items, None, len(items))


# -- backfills --------------------------------------------------------------------------------


@endpoint("POST", "/backfills", changes=True)
def create_backfill(
    operator: Operator, request: requests.NewBackfillRequest
) -> Created[backfills.BackfillView]:
    """Request a range of slots; the leading beat starts with its next tick."""
    made, is_new = backfills.create_once(
        operator,
        request.backfill(max_slots=request.max_slots),
        key=request.idempotency_key,
        dry_run=request.dry_run,
    )
    return Created(made, f"/backfills/{made.id}" if is_new else None)


@endpoint("POST", "/backfills/{id}/pause", changes=True)
def pause_backfill(operator: Operator, request: requests.BackfillChangeRequest) -> backfills.BackfillView:
    """Pause a backfill: start no more of its runs. Runs that have started continue."""
    return _directed(operator, request, "paused")


@endpoint("POST", "/backfills/{id}/resume", changes=True)
def resume_backfill(operator: Operator, request: requests.BackfillChangeRequest) -> backfills.BackfillView:
    """Resume a paused backfill."""
    return _directed(operator, request, "running")


@endpoint("POST", "/backfills/{id}/cancel", changes=True)
def cancel_backfill(operator: Operator, request: requests.BackfillChangeRequest) -> backfills.BackfillView:
    """Cancel a backfill; its waiting runs do not start."""
    return _directed(operator, request, "cancelled")


def _directed(
    operator: Operator, request: requests.BackfillChangeRequest, state: str
) -> backfills.BackfillView:
    return backfills.set_backfill_state(operator, request.id, state, dry_run=request.dry_run, whole_id=True)
