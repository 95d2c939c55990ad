"""Endpoints that change something; each also has a dry run, or a preview."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from urllib.parse import quote

from celery_catchup.error_text import path
from celery_catchup.errors import ConfigurationError, EntryError, Mistake
from celery_catchup.flower.allowed_tasks import why_not_allowed
from celery_catchup.flower.api import requests
from celery_catchup.flower.api.endpoint import endpoint
from celery_catchup.flower.api.errors import ApiError, ErrorCode
from celery_catchup.flower.api.read_endpoints import truncated
from celery_catchup.flower.api.responses import (
    Created,
    EntryOutcome,
    EntryResult,
    ResultPage,
    Resumed,
    RunOutcome,
)
from celery_catchup.flower.operators import follow_at_once
from celery_catchup.operations import (
    Operator,
    backfills,
    dead_letters,
    manual_runs,
    open_runs,
    pauses,
    watermarks,
)
from celery_catchup.operations.dead_letters import HandledRun, Outcome
from celery_catchup.operations.refusals import NoPolicyError, UnknownEntryError
from celery_catchup.operations.upcoming_slots import UpcomingSlots, upcoming_slots
from celery_catchup.store.listing import Record
from celery_catchup.stored_entries.stored_entry import StoredEntry
from celery_catchup.stored_entries.validation import PLACE

# -- entries ----------------------------------------------------------------------------------


@endpoint("POST", "/schedules/{entry}/pause", changes=True)
def pause_schedule(operator: Operator, request: requests.PauseRequest) -> pauses.Paused:
    """Pause an entry: decide no more slots. Runs that exist already continue."""
    (found,) = pauses.pause(
        operator, [operator.one(request.entry)], reason=request.reason, dry_run=request.dry_run
    )
    return found


@endpoint("POST", "/schedules/pause", changes=True, heavy=True)
def pause_schedules(operator: Operator, request: requests.PausesRequest) -> ResultPage[EntryOutcome]:
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
    operator.one(request.entry)
    found = pauses.resume(operator, [request.entry], catchup=request.catchup, dry_run=request.dry_run)
    preview = truncated(found.previews[0], requests.DEFAULT_SLOTS) if found.previews else None
    return Resumed(request.entry, found.entries[0].changed, preview)


@endpoint("POST", "/schedules/resume", changes=True, heavy=True)
def resume_schedules(operator: Operator, request: requests.ResumesRequest) -> ResultPage[EntryOutcome]:
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


@endpoint("POST", "/schedules/{entry}/approve", changes=True, heavy=True)
def approve_catchup(operator: Operator, request: requests.HeldRequest) -> Resumed:
    """Run the catch-up of an entry that is held, because it has more runs than `hold_above`."""
    return _decided(pauses.approve, operator, request)


@endpoint("POST", "/schedules/{entry}/discard", changes=True, heavy=True)
def discard_catchup(operator: Operator, request: requests.HeldRequest) -> Resumed:
    """Skip the missed slots of an entry whose catch-up is held, as `discarded`; new slots run."""
    return _decided(pauses.discard_held, operator, request)


def _decided(
    decide: Callable[..., pauses.Resumption], operator: Operator, request: requests.HeldRequest
) -> Resumed:
    name = operator.one(request.entry)
    found = decide(operator, [name], dry_run=request.dry_run)
    preview = truncated(found.previews[0], requests.DEFAULT_SLOTS) if found.previews else None
    return Resumed(name, found.entries[0].changed, preview)


@endpoint("POST", "/schedules/{entry}/watermark", changes=True, heavy=True)
def move_watermark(operator: Operator, request: requests.WatermarkRequest) -> watermarks.WatermarkMove:
    """Move an entry's watermark: earlier slots are dropped, later ones caught up as the policy says."""
    name = operator.one(request.entry)
    found = watermarks.set_watermark(operator, name, request.at, dry_run=request.dry_run)
    before, after = (
        tuple(truncated(one, requests.DEFAULT_SLOTS) for one in some) for some in (found.before, found.after)
    )
    return replace(found, before=before, after=after)


def _of_entries(
    operator: Operator,
    request: requests.EntriesChangeRequest,
    done: EntryResult,
    change: Callable[[list[str]], Sequence[pauses.Paused]],
) -> ResultPage[EntryOutcome]:
    outcomes: dict[str, EntryOutcome | None] = {}
    for written in request.entries:
        try:
            outcomes |= dict.fromkeys(pauses.pausable(operator, written))
        except NoPolicyError as error:
            outcomes[written] = EntryOutcome(written, EntryResult.REFUSED, str(error))
        except UnknownEntryError as error:
            outcomes[written] = EntryOutcome(written, EntryResult.UNKNOWN, str(error))
    changed = EntryResult.WOULD if request.dry_run else done
    for one in change([name for name, outcome in outcomes.items() if outcome is None]):
        outcomes[one.entry] = EntryOutcome(one.entry, changed if one.changed else EntryResult.UNCHANGED)
    items = [one for one in outcomes.values() if one is not None]
    return ResultPage(items, None, len(items))


# -- stored entries ---------------------------------------------------------------------------


@endpoint("POST", "/entries", changes=True)
def create_entry(operator: Operator, request: requests.NewEntryRequest) -> Created[StoredEntry]:
    """Create an entry; beat runs it from its next tick on. Its task must match `catchup_allowed_tasks`."""
    fields, name = {"task": "", "schedule": "", **request.fields()}, request.name
    create = partial(operator.stored_entries.create, name, **fields)
    with _mistakes_of_request(name):
        _check_task(operator, fields["task"], partial(create, dry_run=True), name=name)
        made = create(dry_run=request.dry_run)
    follow_at_once(operator.app)
    return Created(made, None if request.dry_run else f"/entries/{quote(made.name, safe='')}")


@endpoint("POST", "/entries/{entry}/update", changes=True)
def update_entry(operator: Operator, request: requests.EntryUpdateRequest) -> StoredEntry:
    """Change some fields of a stored entry: enable or disable it, for example."""
    fields, stored, name = request.fields(), operator.stored_entries, request.entry
    before = stored.get(name)
    update = partial(stored.update, name, revision=request.expected, **fields)
    with _mistakes_of_request(name):
        for task in (before.task, fields.get("task", before.task)):
            _check_task(operator, task, partial(update, dry_run=True), name=name)
        changed = update(dry_run=request.dry_run)
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


@endpoint("POST", "/entries/preview", heavy=True)
def preview_entry(operator: Operator, request: requests.EntryPreviewRequest) -> UpcomingSlots:
    """Show the next slots of an entry as it is written, and store nothing."""
    with _mistakes_of_request(request.name):
        return upcoming_slots(
            operator,
            name=request.name,
            schedule=request.schedule,
            catchup=request.catchup,
            count=request.slots,
        )


def _check_task(
    operator: Operator, task: str, dry_run: Callable[[], object] | None = None, *, name: str = ""
) -> None:
    """Refuse a task that may not be run by entries which are changed over HTTP.

    The mistakes that a dry run finds in other fields are listed, too.
    """
    problem = why_not_allowed(operator, task)
    if problem is None:
        return
    mistakes = [Mistake("task", problem)]
    if dry_run is not None:
        try:
            dry_run()
        except ConfigurationError as error:
            found = [Mistake(_member(one.where, name), one.problem) for one in error.mistakes]
            mistakes += [one for one in found if one.where != "task"]
        except EntryError:
            pass  # a conflict is reported when the task is allowed
    raise ApiError(ErrorCode.TASK_NOT_ALLOWED, problem, mistakes)


@contextmanager
def _mistakes_of_request(name: str) -> Iterator[None]:
    """Report wrong fields of this entry as mistakes of the request, not of the configuration."""
    try:
        yield
    except ConfigurationError as error:
        noun = "mistake" if len(error.mistakes) == 1 else "mistakes"
        message = f"{len(error.mistakes)} {noun} in the entry"
        mistakes = [Mistake(_member(one.where, name), one.problem) for one in error.mistakes]
        raise ApiError(ErrorCode.INVALID_REQUEST, message, mistakes) from None


def _member(where: str, name: str) -> str:
    """Return the member of the request that a mistake is in: ``catchup.window``."""
    for place in (path(PLACE, name), f"{PLACE}[0]"):
        if where == place:
            return "entry"
        if where.startswith(f"{place}."):
            return where.removeprefix(f"{place}.")
    return where


# -- runs -------------------------------------------------------------------------------------


@endpoint("POST", "/runs", changes=True)
def start_run(operator: Operator, request: requests.StartRunRequest) -> Created[manual_runs.StartedRun]:
    """Start the run of a slot, or one for this moment; slots missed before it are not caught up any more,
    unless `keepMissed` says so."""
    started, is_new = manual_runs.start_once(
        operator,
        request.entry,
        at=request.at,
        keep_missed=request.keep_missed,
        key=request.idempotency_key,
        dry_run=request.dry_run,
    )
    return Created(started, f"/runs/{started.run_id}" if is_new else None)


@endpoint("POST", "/runs/{runId}/replay", changes=True)
def replay_run(operator: Operator, request: requests.RunChangeRequest) -> HandledRun:
    """Attempt a run again, with its original inputs."""
    return _one(dead_letters.replay, operator, request)


@endpoint("POST", "/runs/{runId}/discard", changes=True)
def discard_run(operator: Operator, request: requests.RunChangeRequest) -> HandledRun:
    """Remove a run from the dead letters; it stays in the ledger as failed."""
    return _one(dead_letters.discard, operator, request)


@endpoint("POST", "/runs/{runId}/resend", changes=True)
def resend_run(operator: Operator, request: requests.RunChangeRequest) -> HandledRun:
    """Send the message of a queued run again, or start the next attempt of a failed run now."""
    return _one(open_runs.resend, operator, request)


@endpoint("POST", "/runs/{runId}/cancel", changes=True)
def cancel_run(operator: Operator, request: requests.RunCancelRequest) -> HandledRun:
    """End a run that has not ended, as revoked; a running one only with `terminate`."""
    return _one(partial(open_runs.cancel, terminate=request.terminate), operator, request)


@endpoint("POST", "/runs/replay", changes=True, heavy=True)
def replay_runs(operator: Operator, request: requests.RunsChangeRequest) -> ResultPage[RunOutcome]:
    """Attempt several runs again, with their original inputs."""
    return _several(dead_letters.replay, operator, request)


@endpoint("POST", "/runs/discard", changes=True, heavy=True)
def discard_runs(operator: Operator, request: requests.RunsChangeRequest) -> ResultPage[RunOutcome]:
    """Remove runs from the dead letters; they stay in the ledger as failed."""
    return _several(dead_letters.discard, operator, request)


@endpoint("POST", "/runs/resend", changes=True, heavy=True)
def resend_runs(operator: Operator, request: requests.RunsChangeRequest) -> ResultPage[RunOutcome]:
    """Send the messages of queued runs again, and start the next attempts of failed runs now."""
    return _several(open_runs.resend, operator, request)


@endpoint("POST", "/runs/cancel", changes=True, heavy=True)
def cancel_runs(operator: Operator, request: requests.RunsCancelRequest) -> ResultPage[RunOutcome]:
    """End runs that have not ended, as revoked; running ones only with `terminate`."""
    return _several(partial(open_runs.cancel, terminate=request.terminate), operator, request)


def _one(
    change: Callable[..., list[HandledRun]], operator: Operator, request: requests.RunChangeRequest
) -> HandledRun:
    handled = change(operator, dead_letters.select_dead(operator, [request.run_id]), dry_run=request.dry_run)
    dead_letters.raise_if_refused(handled)
    return handled[0]


def _several(
    change: Callable[..., list[HandledRun]], operator: Operator, request: requests.RunsChangeRequest
) -> ResultPage[RunOutcome]:
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
    return ResultPage(items, None, len(items))


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
