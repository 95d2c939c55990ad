"""Send runs again that have not ended, and cancel them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kombu.exceptions import OperationalError

from celery_catchup.events.command_lines import command_line
from celery_catchup.events.log_lines import logfmt
from celery_catchup.model import RunState
from celery_catchup.operations.dead_letters import HandledRun, Outcome, Progress, Result, handle_each
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.runs import task_id_of
from celery_catchup.store import AuditAction, Change
from celery_catchup.store.controls import Resend
from celery_catchup.store.leases import ReportOutcome
from celery_catchup.store.listing import Record

logger = logging.getLogger(__name__)


def resend(
    operator: Operator, records: Sequence[Record], *, dry_run: bool = False, progress: Progress | None = None
) -> list[HandledRun]:
    """Send the messages of queued runs again, and start the next attempts of failed runs now.

    Workers with the plugin execute a run once, however many messages it has.
    """
    return handle_each(
        operator,
        records,
        lambda one, change: _resend(operator, one, change, dry_run=dry_run),
        progress,
        change=operator.change(AuditAction.RUNS_RESEND),
    )


def cancel(
    operator: Operator,
    records: Sequence[Record],
    *,
    terminate: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> list[HandledRun]:
    """End runs that have not ended, as revoked; their chains go on. A running one is ended only with
    ``terminate``: its worker kills the process that executes it."""
    return handle_each(
        operator,
        records,
        lambda one, change: _cancel(operator, one, change, terminate=terminate, dry_run=dry_run),
        progress,
        change=operator.change(AuditAction.RUNS_CANCEL, terminate=terminate),
    )


def _resend(operator: Operator, record: Record, change: Change, *, dry_run: bool) -> Result:
    run_id, state = record["id"], RunState(record["state"])
    if dry_run:
        return (Outcome.WOULD, None) if state.in_flight else _refused(Resend.ENDED, run_id)
    answer = operator.controls.resend(run_id, change=change, entry=record["entry"])
    logger.info(logfmt("Run sent again", run_id=run_id, outcome=answer, by=operator.by))
    if answer is Resend.SENT:
        operator.sender.sent_events.pushed_runs(operator.ledger, [run_id])
        return Outcome.RESENT, None
    return _refused(answer, run_id)


def _refused(answer: Resend, run_id: str) -> Result:
    reasons = {
        Resend.UNSENT: "the broker has not taken its message yet; a leading beat publishes it",
        Resend.WAITING: "it waits for its turn",
        Resend.RUNNING: f"it is running; to end it: {command_line('runs', 'cancel', run_id, '--terminate')}",
        Resend.ENDED: f"it has ended; to attempt it again: {command_line('dlq', 'replay', run_id)}",
        Resend.UNKNOWN: "it is not in the ledger any more",
        Resend.LOST: "its message is not kept any more; use a backfill",
    }
    return Outcome.REFUSED, reasons[answer]


def _cancel(operator: Operator, record: Record, change: Change, *, terminate: bool, dry_run: bool) -> Result:
    run_id, state = record["id"], RunState(record["state"])
    if not state.in_flight:
        return Outcome.REFUSED, f"it has ended: {state}"
    if state is RunState.RUNNING and not terminate:
        return Outcome.REFUSED, "it is running; add --terminate to kill the process that executes it"
    if dry_run:
        return Outcome.WOULD, None
    why = f"cancelled by {operator.by}" if operator.by else "cancelled by hand"
    logger.info(logfmt("Run cancelled", run_id=run_id, by=operator.by))
    if state is RunState.RUNNING:
        tasks = operator.controls.end_running(run_id, change=change, why=why)
        if not tasks:
            return Outcome.REFUSED, "it has ended meanwhile"
        if _revoke(operator, tasks, terminate=True):
            operator.ledger.revoked(tasks)
        return Outcome.ENDING, _restart(operator, record.get("worker"))
    end = operator.leases.give_up(
        run_id, change=change, entry=record["entry"], state=RunState.REVOKED, error=why
    )
    if end.outcome is not ReportOutcome.RECORDED:
        return Outcome.REFUSED, "it has started meanwhile; try again"
    # A worker without the plugin would execute the message all the same.
    _revoke(operator, [task_id_of(record, int(record.get("attempt", 1)))], terminate=False)
    return Outcome.CANCELLED, None


def _restart(operator: Operator, worker: object) -> str | None:
    """Name the worker that cannot end a task."""
    if worker not in operator.workers.solo_alive():
        return None
    return f"its worker cannot end a task (pool solo); restart {worker}, and the run ends with its lease"


def _revoke(operator: Operator, tasks: list[str], *, terminate: bool) -> bool:
    try:
        operator.app.control.revoke(tasks, terminate=terminate)
    except (OperationalError, OSError) as error:  # the next leader asks again, or the lease ends
        logger.warning(logfmt("Workers could not be asked to end tasks", error=str(error)))
        return False
    return True
