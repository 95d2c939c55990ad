"""Endpoints that change something; each also has a dry run, or a preview."""

from __future__ import annotations

from dataclasses import replace

from celery_catchup.flower.api import requests, responses
from celery_catchup.flower.api.endpoint import endpoint
from celery_catchup.flower.api.read_endpoints import truncated
from celery_catchup.operations import Operator, backfills, dead_letters, pauses


@endpoint("POST", "/schedules/{entry}/pause", changes=True)
def pause_schedule(operator: Operator, request: requests.PauseRequest) -> responses.PausedList:
    """Pause an entry: decide no more slots. Runs that exist already continue."""
    return responses.PausedList(
        pauses.pause(operator, [request.entry], reason=request.reason, dry_run=request.dry_run)
    )


@endpoint("POST", "/schedules/{entry}/resume", changes=True)
def resume_schedule(operator: Operator, request: requests.ResumeRequest) -> pauses.Resumption:
    """Resume an entry, and catch up the slots that it missed."""
    found = pauses.resume(operator, [request.entry], catchup=request.catchup, dry_run=request.dry_run)
    return replace(found, previews=tuple(truncated(one, requests.DEFAULT_SLOTS) for one in found.previews))


@endpoint("POST", "/runs/{runId}/replay", changes=True)
def replay_run(operator: Operator, request: requests.RunChangeRequest) -> dead_letters.HandledRun:
    """Attempt a run again, with its original inputs."""
    records = dead_letters.select_dead(operator, [request.run_id])
    handled = dead_letters.replay(operator, records, dry_run=request.dry_run)
    dead_letters.raise_if_refused(handled)
    return handled[0]


@endpoint("POST", "/replay", changes=True)
def replay_runs(operator: Operator, request: requests.RunsChangeRequest) -> responses.HandledList:
    """Attempt several runs again; the response has the result for each."""
    records = dead_letters.select_dead(operator, request.run_ids)
    return responses.HandledList(dead_letters.replay(operator, records, dry_run=request.dry_run))


@endpoint("POST", "/discard", changes=True)
def discard_runs(operator: Operator, request: requests.RunsChangeRequest) -> responses.HandledList:
    """Remove runs from the dead letters; they stay in the ledger as failed."""
    records = dead_letters.select_dead(operator, request.run_ids)
    return responses.HandledList(dead_letters.discard(operator, records, dry_run=request.dry_run))


@endpoint("POST", "/backfills", changes=True)
def create_backfill(operator: Operator, request: requests.BackfillRangeRequest) -> backfills.BackfillView:
    """Request a range of slots; the leading beat starts with its next tick."""
    return backfills.create_backfill(operator, request.backfill())


@endpoint("POST", "/backfills/{id}/pause", changes=True)
def pause_backfill(operator: Operator, request: requests.BackfillChangeRequest) -> backfills.BackfillView:
    """Pause a backfill: start no more of its runs. Runs that have started continue."""
    return backfills.set_backfill_state(operator, request.id, "paused", dry_run=request.dry_run)


@endpoint("POST", "/backfills/{id}/resume", changes=True)
def resume_backfill(operator: Operator, request: requests.BackfillChangeRequest) -> backfills.BackfillView:
    """Resume a paused backfill."""
    return backfills.set_backfill_state(operator, request.id, "running", dry_run=request.dry_run)


@endpoint("POST", "/backfills/{id}/cancel", changes=True)
def cancel_backfill(operator: Operator, request: requests.BackfillChangeRequest) -> backfills.BackfillView:
    """Cancel a backfill; its waiting runs do not start."""
    return backfills.set_backfill_state(operator, request.id, "cancelled", dry_run=request.dry_run)
