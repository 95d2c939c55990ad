"""Attempts: the executions of a run, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from celery_catchup.model import RunState, to_datetime

_FAILED = (RunState.FAILED, RunState.DEAD, RunState.REVOKED)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution. ``outcome`` is ``lost`` when its worker fell silent, ``retried`` when its task asked
    for another try, else the state that the run was in after it."""

    attempt: int
    started_at: datetime | None
    ended_at: datetime | None
    worker: str | None
    outcome: str
    error: str | None


def attempts_of(record: Mapping[str, Any]) -> tuple[Attempt, ...]:
    """The last attempts of a run, the oldest first; the one under way, or that it ended with, is the last."""
    past = list(record.get("past", ()))
    started = record.get("attempt_started")
    if started is not None:
        state = RunState(record["state"])
        past.append(
            {
                "attempt": record.get("attempt", 1),
                "started": started,
                "ended": record.get("finished"),
                "worker": record.get("worker"),
                "outcome": str(state),
                "error": record.get("error") if state in _FAILED else None,
            }
        )
    return tuple(_attempt(one) for one in past)


def _attempt(one: Mapping[str, Any]) -> Attempt:
    return Attempt(
        attempt=int(one["attempt"]),
        started_at=_moment(one.get("started")),
        ended_at=_moment(one.get("ended")),
        worker=one.get("worker"),
        outcome=str(one["outcome"]),
        error=one.get("error"),
    )


def _moment(instant: Any) -> datetime | None:
    return None if instant is None else to_datetime(int(instant))
