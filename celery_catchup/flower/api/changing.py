"""Endpoints that change something."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from celery_catchup.flower.api.answers import HandledRuns, PausedEntries
from celery_catchup.flower.api.endpoints import Endpoint, Field, Values
from celery_catchup.flower.api.kinds import Flag, Text
from celery_catchup.flower.api.looking import shortened
from celery_catchup.flower.api.parameters import BACKFILL, BACKFILL_ID, ENTRY, RUN_ID, SLOTS, asked_for
from celery_catchup.operations import Operator
from celery_catchup.operations.backfills import BackfillView, create_backfill, set_backfill_state
from celery_catchup.operations.dead_letters import HandledRun, discard, raise_if_refused, replay, select_dead
from celery_catchup.operations.pauses import Resumption, pause, resume

_DRY_RUN = Field(
    name="dryRun", kind=Flag(), help="Tell what would be done, and change nothing.", default=False
)
_RUN_IDS = Field(
    name="runIds", kind=RUN_ID.kind, help="Ids of runs, or beginnings.", required=True, many=True
)
_REASON = Field(name="reason", kind=Text(), help="Why, for the record.", default="")


def _resume(operator: Operator, given: Values) -> Resumption:
    found = resume(operator, [given["entry"]], catchup=given["catchup"], dry_run=given["dryRun"])
    return replace(found, previews=tuple(shortened(one, SLOTS.default) for one in found.previews))


def _pause(operator: Operator, given: Values) -> PausedEntries:
    return PausedEntries(pause(operator, [given["entry"]], reason=given["reason"], dry_run=given["dryRun"]))


def _replay(operator: Operator, given: Values) -> HandledRuns:
    return HandledRuns(replay(operator, select_dead(operator, given["runIds"]), dry_run=given["dryRun"]))


def _replay_one(operator: Operator, given: Values) -> HandledRun:
    found = replay(operator, select_dead(operator, [given["runId"]]), dry_run=given["dryRun"])
    raise_if_refused(found)
    return found[0]


def _discard(operator: Operator, given: Values) -> HandledRuns:
    return HandledRuns(discard(operator, select_dead(operator, given["runIds"]), dry_run=given["dryRun"]))


def _direct(state: str, operator: Operator, given: Values) -> BackfillView:
    return set_backfill_state(operator, given["id"], state, dry_run=given["dryRun"])


CHANGING = (
    Endpoint(
        method="POST",
        path="/schedules/{entry}/pause",
        name="pauseSchedule",
        summary="Decide no slot of an entry any more; runs that are under way go on.",
        answer=PausedEntries,
        where=(ENTRY,),
        body=(_REASON, _DRY_RUN),
        changes=True,
        operation=_pause,
    ),
    Endpoint(
        method="POST",
        path="/schedules/{entry}/resume",
        name="resumeSchedule",
        summary="Decide slots of an entry again, and catch up what it missed.",
        answer=Resumption,
        where=(ENTRY,),
        body=(
            Field(name="catchup", kind=Flag(), help="Catch up what was missed meanwhile.", default=True),
            _DRY_RUN,
        ),
        changes=True,
        operation=_resume,
    ),
    Endpoint(
        method="POST",
        path="/runs/{runId}/replay",
        name="replayRun",
        summary="Attempt a run again, with the inputs it had.",
        answer=HandledRun,
        where=(RUN_ID,),
        body=(_DRY_RUN,),
        changes=True,
        operation=_replay_one,
    ),
    Endpoint(
        method="POST",
        path="/replay",
        name="replayRuns",
        summary="Attempt several runs again; the answer says of each what became of it.",
        answer=HandledRuns,
        body=(_RUN_IDS, _DRY_RUN),
        changes=True,
        operation=_replay,
    ),
    Endpoint(
        method="POST",
        path="/discard",
        name="discardRuns",
        summary="Take runs off the dead letters; they stay in the ledger as failed.",
        answer=HandledRuns,
        body=(_RUN_IDS, _DRY_RUN),
        changes=True,
        operation=_discard,
    ),
    Endpoint(
        method="POST",
        path="/backfills",
        name="createBackfill",
        summary="Ask for a range of slots; the leading beat begins with its next tick.",
        answer=BackfillView,
        body=BACKFILL,
        changes=True,
        operation=lambda operator, given: create_backfill(operator, asked_for(given)),
    ),
    *(
        Endpoint(
            method="POST",
            path=f"/backfills/{{id}}/{verb}",
            name=f"{verb}Backfill",
            summary=summary,
            answer=BackfillView,
            where=(BACKFILL_ID,),
            body=(_DRY_RUN,),
            changes=True,
            operation=partial(_direct, state),
        )
        for verb, state, summary in (
            ("pause", "paused", "Start no run of a backfill any more; those under way go on."),
            ("resume", "running", "Go on with a backfill."),
            ("cancel", "cancelled", "End a backfill; what waits in it will not run."),
        )
    ),
)
