"""What a worker reports of a run: how it ended, or that it is to be tried again."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celery_catchup.errors import StoreError
from celery_catchup.events import AttemptEnded, Events, ReportRefused, RunDied
from celery_catchup.events.redaction import redacted
from celery_catchup.model import RunState
from celery_catchup.store import Leases
from celery_catchup.store.connection import STORE_FAILS
from celery_catchup.store.leases import Ending, Finish
from celery_catchup.store.workers import Workers
from celery_catchup.worker_plugin.failure_categories import Categories

STORE_TROUBLE = (*STORE_FAILS, StoreError)
"""What it looks like when the store cannot be used; it may be over a second later."""

LONGEST_ERROR = 300
"""Characters of an error that the ledger keeps; the whole of it is in the worker's log."""

LONGEST_TRACEBACK = 8000
"""Characters of a traceback that a dead letter keeps; its end, where the cause is."""

NOBODY = ""
"""The owner of a run that nobody has claimed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What became of a run, by the one who knows.

    Without a state it is to be tried again, ``delay_ms`` from now. ``even_unclaimed``: it
    counts also when its owner had not come to claim the run, as long as nobody else has.
    """

    run_id: str
    entry: str
    owner: str
    state: RunState | None
    error: str = ""
    letter: str = ""
    delay_ms: int = 0
    even_unclaimed: bool = False


def deliver(
    report: Report,
    leases: Leases,
    workers: Workers,
    publish: Callable[[Sequence[str], Sequence[str]], None],
    events: Events,
) -> Finish:
    """Tell the store, and publish what that released. It may be told twice: what has ended stays
    as it is."""
    recorded: Mapping[str, Any] = {"state": RunState.QUEUED}
    if report.state is None:
        outcome = workers.retry(
            report.run_id, owner=report.owner, delay_ms=report.delay_ms, error=report.error
        )
    else:
        outcome, released, recorded, pushed = _finish(report, report.state, leases)
        publish(released, pushed)
    _tell(report, outcome, recorded, events)
    return outcome


def _finish(report: Report, state: RunState, leases: Leases) -> Ending:
    def told_by(owner: str) -> Ending:
        return leases.finish(
            report.run_id,
            entry=report.entry,
            owner=owner,
            state=state,
            error=report.error,
            letter=report.letter,
        )

    ending = told_by(report.owner)
    if ending.outcome is Finish.SUPERSEDED and report.even_unclaimed and report.owner != NOBODY:
        return told_by(NOBODY)
    return ending


def _tell(report: Report, outcome: Finish, recorded: Mapping[str, Any], events: Events) -> None:
    if outcome is Finish.SUPERSEDED:
        events.emit(ReportRefused(report.entry, report.run_id, report.state))
    if outcome is not Finish.RECORDED:
        return
    state = RunState(recorded["state"])
    events.emit(AttemptEnded(report.entry, report.run_id, state, report.error))
    if state is RunState.DEAD:
        events.emit(RunDied(report.entry, report.run_id, recorded["slot"], _why_dead(report, recorded)))


def _why_dead(report: Report, recorded: Mapping[str, Any]) -> str:
    """The error; and that it has ended the attempts, where the policy had more of them."""
    decided = recorded.get("decided", {})
    early = decided.get("reason") == "permanent" and decided["failures"] < decided["max_attempts"]
    return f"{report.error} (permanent: not attempted again)" if early else report.error


def in_a_line(error: object) -> str:
    """An error as the ledger keeps it: its kind and its first line."""
    if not isinstance(error, BaseException):
        return ""
    text = redacted(" ".join(_encodable(str(error)).split("\n", 1)[0].split()))
    name = type(error).__name__
    return f"{name}: {text}"[:LONGEST_ERROR] if text else name


def letter_of(error: object, categories: Categories) -> str:
    """What a dead letter tells of a failure, as JSON; nothing of the task's arguments."""
    if not isinstance(error, BaseException):
        return ""
    kind = type(error)
    return json.dumps(
        {
            "type": f"{kind.__module__}.{kind.__qualname__}",
            "category": categories.of(error),
            "traceback": redacted(
                _encodable("".join(traceback.format_exception(error)))[-LONGEST_TRACEBACK:]
            ),
        }
    )


def _encodable(text: str) -> str:
    """Without lone surrogates, which names of files can have and neither UTF-8 nor the scripts' JSON does."""
    return text.encode(errors="backslashreplace").decode()
