"""Decisions: when a failed run is attempted again, or why it is not, and by which policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from celery_catchup.config.durations import format_duration
from celery_catchup.model import RunState, to_datetime

_SHOWN_IN = (RunState.WAITING, RunState.FAILED, RunState.DEAD)


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided when a run had failed or was lost, and the policy in force at that time.

    ``failures`` and ``losses`` are attempts that failed and workers that were lost since the last
    replay. ``reason`` is why there is no next attempt: ``permanent``, ``max_attempts`` or ``lost``.
    """

    decided_at: datetime
    failures: int
    losses: int
    next_attempt_at: datetime | None
    reason: str | None
    max_attempts: int
    retry_delay: timedelta
    retry_backoff: float
    retry_max_delay: timedelta | None
    on_failure: str

    @property
    def policy(self) -> str:
        """The policy in a line, in the words of the settings."""
        told = [f"max_attempts {self.max_attempts}"]
        if self.max_attempts > 1:
            told.append(f"retry_delay {_length(self.retry_delay)}")
        if self.retry_backoff != 1:
            longest = "" if self.retry_max_delay is None else f" up to {_length(self.retry_max_delay)}"
            told.append(f"retry_backoff {self.retry_backoff:g}{longest}")
        return ", ".join([*told, f"on_failure {self.on_failure}"])

    @property
    def why(self) -> str:
        """Why there is no next attempt, as a sentence; empty when there is one."""
        match self.reason:
            case "permanent":
                return "the failure is permanent: another attempt would fail too"
            case "max_attempts":
                return f"{self.failures} of {self.max_attempts} attempts have failed"
            case "lost":
                return f"its worker was lost {self.losses} times"
            case _:
                return self.reason or ""


def decision_of(record: Mapping[str, Any]) -> Decision | None:
    """The decision about a run that waits for its next attempt, or has none any more; else None."""
    state, decided = RunState(record["state"]), record.get("decided")
    retried = state is RunState.WAITING and not record.get("failures")
    if state not in _SHOWN_IN or retried or not isinstance(decided, Mapping):
        return None
    longest, due = decided.get("retry_max_delay_ms"), decided.get("next")
    return Decision(
        decided_at=to_datetime(int(decided["at"])),
        failures=int(decided.get("failures", 0)),
        losses=int(decided.get("losses", 0)),
        next_attempt_at=None if due is None else to_datetime(int(due)),
        reason=decided.get("reason"),
        max_attempts=int(decided.get("max_attempts", 1)),
        retry_delay=timedelta(milliseconds=decided.get("retry_delay_ms", 0)),
        retry_backoff=float(decided.get("retry_backoff", 1)),
        retry_max_delay=None if longest is None else timedelta(milliseconds=longest),
        on_failure=str(decided.get("on_failure", "continue")),
    )


def _length(value: timedelta) -> str:
    return format_duration(value) if value else "none"
